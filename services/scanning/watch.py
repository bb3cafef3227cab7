"""The watch of a scan: time left, progress, log."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

CHECK_EVERY_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    remaining_seconds: Callable[[], float] = lambda: math.inf  # raises to stop the scan; 0: save the findings
    progress: Callable[[int, int], None] = lambda _done, _total: None
    log: Callable[[str], None] = lambda _line: None

    @property
    def is_over(self) -> bool:
        return self.remaining_seconds() <= 0

    def wait(self, seconds: float) -> None:
        """Returns early when the time is over."""
        ends_at = time.monotonic() + seconds
        while (left := ends_at - time.monotonic()) > 0 and not self.is_over:
            time.sleep(min(left, CHECK_EVERY_SECONDS))
