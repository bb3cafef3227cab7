"""Rate limit: a token bucket per caller, in the memory of this process."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

MOST_CALLERS = 10_000  # beyond that the least recent caller is dropped


class RateLimits:
    """Safe to share between threads. A caller may use its whole minute at once; the bucket refills evenly."""

    def __init__(
        self, per_minute: int, now: Callable[[], float] = time.monotonic, most_callers: int = MOST_CALLERS
    ) -> None:
        self._capacity, self._per_second = float(per_minute), per_minute / 60
        self._now, self._most = now, most_callers
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # caller -> (tokens left, as of when)
        self._lock = threading.Lock()

    def seconds_to_wait(self, caller: str) -> float:
        """Takes one token from the caller's bucket; 0 means that the request may proceed."""
        if not self._capacity:
            return 0.0
        with self._lock:
            now = self._now()
            left, since = self._buckets.pop(caller, (self._capacity, now))
            left = min(self._capacity, left + (now - since) * self._per_second)
            allowed = left >= 1
            self._buckets[caller] = (left - 1 if allowed else left, now)
            while len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._per_second
