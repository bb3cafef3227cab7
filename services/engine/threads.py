"""Threads, and what they wait with. Every engine thread is made here, so that a simulation can give it virtual time."""

from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Condition, Event, Thread, current_thread
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads:
    """Locks are not among them: none is held while its thread waits for a server, a queue or an event."""

    thread: Callable[..., Thread] = Thread
    event: Callable[[], Event] = Event
    condition: Callable[[], Condition] = Condition
    queue: Callable[[], SimpleQueue[Any]] = SimpleQueue
    current: Callable[[], Thread] = current_thread


OF_THE_SYSTEM = Threads()
