"""The stop signal: SIGTERM, SIGINT, or a call of `give`. Every waiting thread receives it, whenever it comes."""

import signal
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType

from services.engine.threads import OF_THE_SYSTEM, Threads

WAIT_SECONDS = 1.0


class StopSignal:
    """Not an Event: set() in a signal handler can deadlock with the wait() that it interrupts."""

    def __init__(self, threads: Threads = OF_THE_SYSTEM) -> None:
        self._orders: SimpleQueue[None] = threads.queue()

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.hear)

    def hear(self, number: int, frame: FrameType | None) -> None:
        self.give()

    def give(self) -> None:
        self._orders.put(None)

    def wait(self) -> None:
        """In short waits: a signal that comes just before a thread begins to wait does not wake it."""
        while not self.comes_within(WAIT_SECONDS):
            pass

    def comes_within(self, seconds: float) -> bool:
        with suppress(Empty):
            self._orders.get(timeout=seconds)
            return True
        return False
