"""An estimate of Postgres' clock: fires become due by that clock, not by the machine's own."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

SLOW_ANSWER_SECONDS = 1.0
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def awake_or_not() -> float:
    """Like time.monotonic, but where the platform allows it keeps counting while the machine sleeps."""
    return time.clock_gettime(_BOOT_CLOCK)


class DatabaseClock:
    """The local clock, corrected by the last measured skew."""

    def __init__(self, max_skew_seconds: float, local: Callable[[], float] = time.time) -> None:
        self._local, self._max_skew = local, max_skew_seconds
        self._skew = 0.0
        self._measured = False
        self._lock = threading.Lock()

    @property
    def skew_seconds(self) -> float:
        """How far the local clock is ahead of Postgres' clock."""
        return self._skew

    @property
    def is_trustworthy(self) -> bool:
        return abs(self._skew) <= self._max_skew

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.timestamp(), UTC)

    def timestamp(self) -> float:
        return self._local() - self._skew

    def measure(self, ask: Callable[[], float]) -> None:
        """`ask` returns Postgres' clock; the answer is taken as the time at the middle of the round trip.

        A slow answer is imprecise: it is used only if there is no better one.
        """
        before = self._local()
        theirs = ask()
        after = self._local()
        with self._lock:
            if after - before < SLOW_ANSWER_SECONDS or not self._measured:
                self._skew = (before + after) / 2 - theirs
                self._measured = True
