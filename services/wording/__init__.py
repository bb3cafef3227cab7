"""How values read to people: durations, short ids, refusals of Postgres, text with invisible characters."""
