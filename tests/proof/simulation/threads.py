"""What stands for threads, events, conditions and queues. No lock is needed: a task goes on until it waits."""

from collections import deque
from collections.abc import Callable
from queue import Empty
from typing import Any

from services.engine.threads import Threads
from tests.proof.simulation.world import Task, World

# Of no concern to a fire; each costs a dozen statements at the start of a replica.
LEFT_OUT = ("tidy", "census", "queues", "log-writer")


def world() -> World:
    if World.it is None:
        raise RuntimeError("no history is being played")
    return World.it


def wait_in(waiting: list[Task], seconds: float | None) -> None:
    task = world().me
    waiting.append(task)
    world().park(seconds)
    if task in waiting:  # the time is over: nobody may wake it out of its next wait
        waiting.remove(task)


class VirtualEvent:
    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Task] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            world().wake(task)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            wait_in(self._waiting, timeout)
        return self._set


class VirtualThread:
    """Belongs to the replica whose thread makes it."""

    def __init__(self, target: Callable[[], object], name: str = "", daemon: bool = True) -> None:
        self._target, self._name = target, name
        self._owner = world().me.owner
        self._task: Task | None = None

    def start(self) -> None:
        if self._name not in LEFT_OUT and self._name not in world().left_out:
            place = self._owner.label if self._owner else "somebody"
            self._task = world().spawn(f"{place}/{self._name}", self._owner, self._target)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done

    def join(self, timeout: float | None = None) -> None:
        if self._task is not None and not self._task.done:
            wait_in(self._task.waiting_for_end, timeout)


class VirtualCondition:
    def __init__(self) -> None:
        self._waiting: list[Task] = []

    def __enter__(self) -> "VirtualCondition":
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def wait(self, timeout: float | None = None) -> None:
        wait_in(self._waiting, timeout)

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> bool:
        until = world().now + timeout
        while not predicate() and world().now < until:
            self.wait(until - world().now)
        return predicate()

    def notify_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            world().wake(task)


class VirtualQueue:
    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: list[Task] = []

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiting:
            world().wake(self._waiting.pop(0))

    def get(self, timeout: float | None = None) -> Any:
        until = None if timeout is None else world().now + timeout
        while not self._items:
            if until is not None and world().now >= until:
                raise Empty
            wait_in(self._waiting, None if until is None else until - world().now)
        item = self._items.popleft()
        world().sleep(0.0001)  # a thread that has taken something may lose the processor right there
        return item


class _Current:
    """Is equal to no thread: a loop that stops itself does not wait for itself."""


class VirtualLock:
    def __init__(self) -> None:
        self._held = False
        self._waiting: list[Task] = []

    def __enter__(self) -> "VirtualLock":
        while self._held:
            wait_in(self._waiting, None)
        self._held = True
        return self

    def __exit__(self, *error: object) -> None:
        self._held = False
        if self._waiting:
            world().wake(self._waiting.pop(0))


def _current() -> object:
    return _Current()


def virtual_threads() -> Threads:
    given: Any = {
        "thread": VirtualThread, "event": VirtualEvent, "condition": VirtualCondition, "queue": VirtualQueue,
        "current": _current, "lock": VirtualLock,
    }  # fmt: skip
    return Threads(**given)
