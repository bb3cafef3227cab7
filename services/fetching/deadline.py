"""How much time is left."""

import time
from collections.abc import Callable

NO_LIMIT_SECONDS = 86_400.0  # sockets take no infinity; nothing here waits longer than a day


class Deadline:
    """Counts down from its making. `also` is asked for a second limit each time, and may raise."""

    def __init__(self, seconds: float | None, also: Callable[[], float] | None = None) -> None:
        self._ends_at = time.monotonic() + (NO_LIMIT_SECONDS if seconds is None else seconds)
        self._also = also

    def left(self) -> float:
        """Always more than nothing; raises TimeoutError when the time is over."""
        also = NO_LIMIT_SECONDS if self._also is None else self._also()
        seconds = min(self._ends_at - time.monotonic(), also)
        if seconds <= 0:
            raise TimeoutError("the time for the whole request is over")
        return seconds

    def check(self) -> None:
        """Ask the second limit alone."""
        if self._also is not None:
            self._also()

    def extend(self, seconds: float) -> None:
        self._ends_at += seconds
