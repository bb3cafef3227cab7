"""Virtual time and virtual threads: one greenlet runs at a time, and the seed decides which one is next.

`install` replaces the clocks of the module `time`. It has to be called before the first import of the product, so that
names which are bound at import (default arguments, default factories) are virtual as well. Start at `World.run`.
"""

import heapq
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, ClassVar, Protocol

import greenlet

from tests.proof.simulation.dice import Dice

EPOCH = 1_900_000_000.0  # where every history begins
MOST_SWITCHES = 400_000  # a history has some thousands; more is a loop that never waits
REAL_TIME, REAL_MONOTONIC, REAL_SLEEP = time.time, time.monotonic, time.sleep


class Crash(BaseException):
    """Thrown into the threads of a replica that dies. Whoever catches it meets it again at its next step."""


class Owner(Protocol):
    """The process that a task belongs to."""

    name: str
    label: str  # with the number of its process
    scope: str  # of what is done to it: a replica, or a worker of the fleet
    dead: bool
    frozen_until: float
    skew: float


class Task:
    """One virtual thread."""

    __slots__ = ("blocked_on", "done", "greenlet", "name", "on_wire", "owner", "steps", "version", "waiting_for_end")

    def __init__(self, name: str, owner: Owner | None, function: Callable[[], object], world: "World") -> None:
        self.name, self.owner = name, owner
        self.version = self.steps = 0
        self.blocked_on: Any = None  # a session whose statement waits for a lock
        self.on_wire = False  # its request is on its way: a process that freezes or dies cannot take it back
        self.done = False
        self.waiting_for_end: list[Task] = []
        # Its end gives the turn to the hub, not to the thread that made it.
        self.greenlet = greenlet.greenlet(lambda: self._run(function, world), world.hub)

    def _run(self, function: Callable[[], object], world: "World") -> None:
        try:
            function()
        except Crash:
            pass
        except Exception:  # noqa: BLE001 - a thread of the product that ends like this is a finding
            world.escaped.append(f"{self.name} ended by {traceback.format_exc()}")
        finally:
            self.done = True
            for task in self.waiting_for_end:
                world.wake(task)


class World:
    """`World.it` is the history that is being played."""

    it: ClassVar["World | None"] = None

    def __init__(self, seed: int) -> None:
        World.it = self
        random.seed(seed)  # the product's own jitter
        self.seed, self.dice = seed, Dice(seed)
        self.now = EPOCH
        self.current: Task | None = None
        self.hub = greenlet.getcurrent()
        self.tasks: list[Task] = []
        self.blocked: list[Task] = []
        self.counts: Counter[str] = Counter()
        self.lines: list[tuple[float, str]] = []  # the history, as people read it
        self.escaped: list[str] = []
        self.left_out: frozenset[str] = frozenset()  # threads that do not begin in this history
        self.strike: Callable[[Task], bool] = lambda _task: False  # a fault that hits this task right now
        self.is_free: Callable[[Task], bool] = lambda _task: False  # asked for each task that waits for a lock
        self._heap: list[tuple[float, float, int, int, Task | Callable[[], None]]] = []
        self._ties = 0
        self._names: Counter[str] = Counter()
        self._digest = blake2b(digest_size=8)

    # --- for tasks ---

    @property
    def me(self) -> Task:
        if self.current is None:
            raise RuntimeError("only a virtual thread can wait")
        return self.current

    def sleep(self, seconds: float) -> None:
        self._at(self.me, self.now + max(0.0, seconds))
        self.switch()

    def park(self, seconds: float | None = None) -> None:
        """Until somebody wakes this task, or the time is over."""
        if seconds is not None:
            self._at(self.me, self.now + max(0.0, seconds))
        self.switch()

    def wake(self, task: Task) -> None:
        if not task.done and task.blocked_on is None and not task.on_wire:
            self._at(task, self.now)

    def switch(self) -> None:
        owner = self.me.owner
        if owner is not None and owner.dead:
            raise Crash
        self.hub.switch()
        if owner is not None and owner.dead:
            raise Crash

    # --- for the hub ---

    def spawn(self, name: str, owner: Owner | None, function: Callable[[], object], delay: float = 0.0) -> Task:
        self._names[name] += 1
        number = self._names[name]
        task = Task(name if number == 1 else f"{name}-{number}", owner, function, self)
        self.tasks.append(task)
        self._at(task, self.now + delay)
        return task

    def call_at(self, when: float, action: Callable[[], None]) -> None:
        """Something that a server does by itself. It must not wait."""
        self._ties += 1
        heapq.heappush(self._heap, (when, 0.0, self._ties, 0, action))

    def _at(self, task: Task, when: float) -> None:
        task.version += 1
        task.steps += 1
        self._ties += 1
        tie = self.dice.roll(f"{task.name}#{task.steps}")
        heapq.heappush(self._heap, (when, tie, self._ties, task.version, task))

    def run(self, until: float) -> None:
        """Play everything up to that time."""
        while self._heap and self._heap[0][0] <= until:
            when, _, _, version, task = heapq.heappop(self._heap)
            if not isinstance(task, Task):
                self.now = max(self.now, when)
                task()
                self._look_at_blocked()
                continue
            if task.done or version != task.version:
                continue
            owner = task.owner
            if owner is not None and not task.on_wire:
                if owner.frozen_until > max(when, self.now):
                    late = self.dice.between(f"thaw {task.name}#{task.steps}", 0, 0.002)
                    self._at(task, owner.frozen_until + late)
                    continue
                self.now = max(self.now, when)
                if self.strike(task):
                    self._look_at_blocked()
                    continue
            self.now = max(self.now, when)
            self._resume(task)
            self._look_at_blocked()
        self.now = max(self.now, until)

    def delay(self, task: Task, until: float) -> None:
        """It does not get its turn before then."""
        self._at(task, until)

    def _resume(self, task: Task) -> None:
        self.current = task
        self.counts["switches"] += 1
        if self.counts["switches"] > MOST_SWITCHES:
            raise RuntimeError(f"a loop that never waits: {task.name}")
        try:
            task.greenlet.switch()
        finally:
            self.current = None

    def _look_at_blocked(self) -> None:
        """At once, whoever let them go: else it would depend on the real clock which statement comes first."""
        for task in list(self.blocked):
            if self.is_free(task):
                self.blocked.remove(task)
                task.blocked_on = None
                self._at(task, self.now)

    def kill(self, owner: Owner) -> None:
        """All its threads end, wherever they are; also one of them may call this, about its own process."""
        owner.dead = True
        for task in [each for each in self.tasks if each.owner is owner and not each.done]:
            self._end(task)
        self.tasks = [each for each in self.tasks if not each.done]

    def end(self) -> None:
        for task in self.tasks:
            self._end(task)
        self.tasks.clear()

    def _end(self, task: Task) -> None:
        if task in self.blocked:
            self.blocked.remove(task)
        if task.greenlet:  # it has begun and has not ended
            before, self.current = self.current, task
            try:
                task.greenlet.throw(Crash)
            finally:
                self.current = before
        task.done = True

    # --- the history ---

    def note(self, text: str) -> None:
        """Equal seeds give equal histories: their digests are compared."""
        self._digest.update(f"{self.now:.6f} {text}".encode())
        self.lines.append((self.now - EPOCH, text))

    def remark(self, text: str) -> None:
        """For readers only."""
        self.lines.append((self.now - EPOCH, text))

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()


# --- the clocks of the process ---


def _time() -> float:
    world = World.it
    if world is None:
        return REAL_TIME()
    owner = world.current.owner if world.current else None
    return world.now + (owner.skew if owner else 0.0)


def _monotonic() -> float:
    return REAL_MONOTONIC() if World.it is None else World.it.now - EPOCH + 1000.0


def _sleep(seconds: float) -> None:
    world = World.it
    if world is not None and world.current is not None:
        world.sleep(seconds)
    else:
        REAL_SLEEP(seconds)


def install() -> None:
    virtual = {"time": _time, "monotonic": _monotonic, "sleep": _sleep, "clock_gettime": lambda _clock: _monotonic()}
    for name, function in virtual.items():
        setattr(time, name, function)
