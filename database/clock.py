"""Postgres' clock, as far as this process knows it: fires are due by that clock, not by the machine's own."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

SLOW_ANSWER_SECONDS = 1.0
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def awake_or_not() -> float:
    """Seconds like time.monotonic, which stands still while the machine sleeps; this one goes on where it can."""
    return time.clock_gettime(_BOOT_CLOCK)


class DatabaseClock:
    """The local clock corrected by the skew that was last measured."""

    def __init__(self, max_skew_seconds: float, local: Callable[[], float] = time.time) -> None:
        self._local, self._max_skew = local, max_skew_seconds
        self._skew = 0.0
        self._measured = False
        self._lock = threading.Lock()

    @property
    def skew_seconds(self) -> float:
        """How far the local clock is ahead of Postgres'."""
        return self._skew

    @property
    def is_trustworthy(self) -> bool:
        return abs(self._skew) <= self._max_skew

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.timestamp(), UTC)

    def timestamp(self) -> float:
        return self._local() - self._skew

    def measure(self, ask: Callable[[], float]) -> None:
        """`ask` returns Postgres' clock; the answer counts for the middle of the round trip.

        A slow answer says little: it counts only if there is no better one.
        """
        before = self._local()
        theirs = ask()
        after = self._local()
        with self._lock:
            if after - before < SLOW_ANSWER_SECONDS or not self._measured:
                self._skew = (before + after) / 2 - theirs
                self._measured = True
