"""Circuit breaker: stops calling a server after repeated failures and probes it periodically. In memory."""

import threading
import time
from collections.abc import Callable

FAILURES_UNTIL_OPEN = 3
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 5.0


class CircuitBreaker:
    """Opens after several consecutive failures: then only one probe per pause passes, until a call succeeds.

    Pauses double up to a maximum. Thread-safe; `now` is a monotonic clock.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._mutex = threading.Lock()
        self._failures = 0
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._probe_at = 0.0
        self.is_open = False

    def lets_through(self) -> bool:
        with self._mutex:
            if not self.is_open:
                return True
            if self._now() < self._probe_at:
                return False
            # Set before the probe's outcome is known: one that never reports cannot keep the next from being tried.
            self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
            self._probe_at = self._now() + self._pause_seconds
            return True

    def failed(self) -> bool:
        """True if that opened it."""
        with self._mutex:
            self._failures += 1
            if self.is_open or self._failures < FAILURES_UNTIL_OPEN:
                return False
            self.is_open, self._pause_seconds = True, FIRST_PAUSE_SECONDS
            self._probe_at = self._now() + FIRST_PAUSE_SECONDS
            return True

    def succeeded(self) -> bool:
        """True if that closed it."""
        with self._mutex:
            was_open, self.is_open, self._failures = self.is_open, False, 0
            return was_open
