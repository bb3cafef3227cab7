"""Every background loop has one shape: a tick that may be called at any time, an interval, and a last progress.

A loop never dies of an exception; liveness means that every loop made progress lately.
"""

import logging
import threading
import time
from collections.abc import Callable

from services.errors import Unavailable

logger = logging.getLogger(__name__)

AFTER_FAILURE_SECONDS = 0.5


class Loop:
    """Calls `tick` every `interval_seconds`, at once when woken, and earlier when the tick itself says when."""

    def __init__(
        self, name: str, tick: Callable[[], float | None], interval_seconds: float, patience_seconds: float = 30.0
    ) -> None:
        self.name, self._tick, self.interval_seconds = name, tick, interval_seconds
        self._patience = patience_seconds
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._progress_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._progress_at = time.monotonic()
        self._thread.start()

    def wake(self) -> None:
        if not self._wake.is_set():  # else the next tick is on its way, and looks after it has cleared this
            self._wake.set()

    def stop(self, timeout_seconds: float | None = 10.0) -> bool:
        """Says whether it has ended by then."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def stalled_seconds(self) -> float:
        """How long ago the last tick ended."""
        return time.monotonic() - self._progress_at

    @property
    def is_live(self) -> bool:
        return self._thread.is_alive() and self.stalled_seconds() < self.interval_seconds + self._patience

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            wait_seconds = self._tick_safely()
            self._progress_at = time.monotonic()
            self._wake.wait(wait_seconds)

    def _tick_safely(self) -> float:
        try:
            sooner = self._tick()
        except Unavailable as error:
            logger.warning("%s waits: %s", self.name, error, extra={"event": "server_unavailable"})
        except Exception:
            logger.exception("%s failed; it goes on", self.name, extra={"event": "loop_failed"})
        else:
            return self.interval_seconds if sooner is None else min(sooner, self.interval_seconds)
        self._stopping.wait(AFTER_FAILURE_SECONDS)  # not woken by new work: that would be a busy loop
        return 0.0
