"""Formatting for people: durations, counts, short ids, errors from Postgres, text with invisible characters."""
