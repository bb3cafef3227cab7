"""Circuit breaker: stops calling a server after repeated failures and probes it periodically. In memory."""

import threading
import time
from collections.abc import Callable

from services.coordination.backoff import Backoff

FAILURES_UNTIL_OPEN = 3
PAUSES = Backoff(first_seconds=1.0, longest_seconds=5.0, jitter=0.0)


class CircuitBreaker:
    """Opens after several consecutive failures: then only one probe per pause passes, until a call succeeds.

    Pauses double up to a maximum. Thread-safe; `now` is a monotonic clock.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._mutex = threading.Lock()
        self._failures = 0
        self._pauses = 0  # since it opened
        self._probe_at = 0.0
        self.is_open = False

    def lets_through(self) -> bool:
        with self._mutex:
            if not self.is_open:
                return True
            if self._now() < self._probe_at:
                return False
            # Set before the probe's outcome is known: a probe that never reports must not prevent the next one.
            self._pause()
            return True

    def failed(self) -> bool:
        """True if this failure opened the circuit."""
        with self._mutex:
            self._failures += 1
            if self.is_open or self._failures < FAILURES_UNTIL_OPEN:
                return False
            self.is_open, self._pauses = True, 0
            self._pause()
            return True

    def succeeded(self) -> bool:
        """True if this success closed the circuit."""
        with self._mutex:
            was_open, self.is_open, self._failures = self.is_open, False, 0
            return was_open

    def _pause(self) -> None:
        self._pauses += 1
        self._probe_at = self._now() + PAUSES.after(self._pauses)
