"""Politeness: a minimum distance between requests to one host, across threads."""

import threading
import time
from collections.abc import Callable

CHECK_EVERY_SECONDS = 0.2
MAX_HOSTS = 1_000


class Pace:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free_at: dict[str, float] = {}

    def wait(self, host: str, delay_seconds: float, check: Callable[[], object]) -> float:
        """Wait for our turn; returns the seconds waited. `check` is called meanwhile and may raise."""
        begun_at = time.monotonic()
        turn_at = self._take_turn(host, begun_at, delay_seconds)
        while (left := turn_at - time.monotonic()) > 0:
            check()
            time.sleep(min(left, CHECK_EVERY_SECONDS))
        return time.monotonic() - begun_at

    def _take_turn(self, host: str, now: float, delay_seconds: float) -> float:
        with self._lock:
            if len(self._free_at) > MAX_HOSTS:
                self._free_at = {name: at for name, at in self._free_at.items() if at > now}
            turn_at = max(now, self._free_at.get(host, now))
            self._free_at[host] = turn_at + delay_seconds
            return turn_at
