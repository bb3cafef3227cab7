"""Deadline: the time left for a request."""

import time
from collections.abc import Callable

NO_LIMIT_SECONDS = 86_400.0  # sockets do not accept infinity; nothing here waits longer than a day


class Deadline:
    """Counts down from its creation. `also` is a second limit, evaluated each time; it may raise."""

    def __init__(self, seconds: float | None, also: Callable[[], float] | None = None) -> None:
        self._ends_at = time.monotonic() + (NO_LIMIT_SECONDS if seconds is None else seconds)
        self._also = also

    def left(self) -> float:
        """Always positive; raises TimeoutError when the time is over."""
        also = NO_LIMIT_SECONDS if self._also is None else self._also()
        seconds = min(self._ends_at - time.monotonic(), also)
        if seconds <= 0:
            raise TimeoutError("the time for the whole request is over")
        return seconds

    def check(self) -> None:
        """Evaluate the second limit only."""
        if self._also is not None:
            self._also()

    def extend(self, seconds: float) -> None:
        self._ends_at += seconds
