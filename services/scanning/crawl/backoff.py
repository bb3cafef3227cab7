"""How long a scan waits before it asks again. A server that wants more patience is left alone."""

from services.coordination.backoff import Backoff

BACKOFF = Backoff(first_seconds=1.0, longest_seconds=60.0, jitter=0.0)
