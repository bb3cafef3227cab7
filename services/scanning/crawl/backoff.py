"""The backoff between attempts at a page. A server that demands a longer wait is not called again."""

from database.backoff import Backoff

BACKOFF = Backoff(first_seconds=1.0, longest_seconds=60.0, jitter=0.0)
