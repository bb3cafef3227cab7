"""Threads, and what they wait with. Every engine thread is made here, so that a simulation can give it virtual time."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Condition, Event, Lock, Thread, current_thread
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads:
    """`lock` is for one that is held while its thread waits for a server; all others are plain."""

    thread: Callable[..., Thread] = Thread
    event: Callable[[], Event] = Event
    condition: Callable[[], Condition] = Condition
    queue: Callable[[], SimpleQueue[Any]] = SimpleQueue
    lock: Callable[[], AbstractContextManager[Any]] = Lock
    current: Callable[[], Thread] = current_thread


OF_THE_SYSTEM = Threads()
