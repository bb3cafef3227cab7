"""Formatting for people: durations, short ids, errors from Postgres, text with invisible characters."""
