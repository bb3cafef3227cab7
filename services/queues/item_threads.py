"""The threads that work on items, each item under its deadline.

A thread that ignores its item's deadline is abandoned: the item counts as timed out and a late result is discarded.
While the thread lives it occupies one of the queue's slots in this process, so that hanging threads cannot pile up.
"""

import queue
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from threading import Lock, Thread, current_thread
from typing import Any, Generic

from enhanced_scheduler.containment import Raised, contained
from services.jobs import JobStopped
from services.queues.deadline import ItemDeadline, current
from services.queues.outcomes import Claim, Ending, ItemTimedOut, K

TOGETHER_SECONDS = 0.004


class Abandoned:
    """The abandoned threads of this process, by queue."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._threads: dict[str, list[Thread]] = {}

    def add(self, queue_name: str, thread: Thread) -> None:
        with self._lock:
            self._threads.setdefault(queue_name, []).append(thread)

    def count(self, queue_name: str) -> int:
        """Only threads that are still alive."""
        with self._lock:
            living = [thread for thread in self._threads.get(queue_name, ()) if thread.is_alive()]
            self._threads[queue_name] = living
            return len(living)


abandoned = Abandoned()


@dataclass(slots=True, eq=False)
class _Task(Generic[K]):
    claim: Claim[K]
    call: Callable[[], Any]
    deadline: ItemDeadline
    begun_at: float = field(default_factory=time.monotonic)
    thread: Thread | None = None  # set when a thread takes the task


class ItemThreads(Generic[K]):
    """For one run; only the run's own thread calls it. Threads are started on demand and end with the run."""

    def __init__(self, queue_name: str, concurrency: int, timeout_seconds: float) -> None:
        self._queue_name, self._concurrency, self._timeout_seconds = queue_name, concurrency, timeout_seconds
        self._in_flight: dict[Claim[K], _Task[K]] = {}
        self._tasks: queue.SimpleQueue[_Task[K] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Ending[K]] = queue.SimpleQueue()
        self._threads = 0  # without the abandoned ones
        self._lock = Lock()

    @property
    def busy(self) -> int:
        return len(self._in_flight)

    @property
    def places(self) -> int:
        """Maximum items in progress at once."""
        return max(0, self._concurrency - abandoned.count(self._queue_name))

    def start(self, claim: Claim[K], call: Callable[[], Any]) -> None:
        task = _Task(claim, call, ItemDeadline(time.monotonic() + self._timeout_seconds))
        self._in_flight[claim] = task
        self._tasks.put(task)
        if self._threads < self.busy:
            self._threads += 1
            work = partial(copy_context().run, self._take_tasks)  # what it logs belongs to the run's execution
            Thread(target=work, name=f"item-{self._queue_name}", daemon=True).start()

    def ended(self, wait_seconds: float) -> list[Ending[K]]:
        """Items that end within `wait_seconds`, including those past their deadline.

        After the first one it waits a moment for others, so that they are written together.
        """
        ended: list[Ending[K]] = []
        for oldest in list(self._in_flight.values())[:1]:
            wait_seconds = min(wait_seconds, max(0.0, oldest.deadline.at - time.monotonic()))
        wait_until = time.monotonic() + wait_seconds
        while self._in_flight:
            try:
                result = self._results.get(timeout=max(0.0, wait_until - time.monotonic()))
            except queue.Empty:
                break
            if self._in_flight.pop(result.claim, None):  # otherwise it was given up before
                wait_until = wait_until if ended else time.monotonic() + TOGETHER_SECONDS
                ended.append(result)
        return ended + self._give_up_overdue()

    def stop(self) -> list[Claim[K]]:
        """Abandon every item in progress; returns their claims."""
        claims = list(self._in_flight)
        for task in self._in_flight.values():
            self._abandon(task)
        self._in_flight.clear()
        for _ in range(self._threads):
            self._tasks.put(None)
        self._threads = 0
        return claims

    def _give_up_overdue(self) -> list[Ending[K]]:
        """Tasks are in start order and share one timeout, so the overdue ones come first."""
        overdue, now = [], time.monotonic()
        for task in list(self._in_flight.values()):
            if task.deadline.at > now:
                break
            del self._in_flight[task.claim]
            self._abandon(task)
            overdue.append(Ending(task.claim, Raised(ItemTimedOut(self._timeout_seconds)), now - task.begun_at))
        return overdue

    def _abandon(self, task: _Task[K]) -> None:
        with self._lock:
            task.deadline.given_up.set()
            thread = task.thread
        if thread is not None:
            self._threads -= 1
            abandoned.add(self._queue_name, thread)

    # --- in a thread ---

    def _take_tasks(self) -> None:
        while (task := self._tasks.get()) is not None:
            if self._take(task) and not self._work_on(task):
                return  # abandoned: another thread replaces this one

    def _take(self, task: _Task[K]) -> bool:
        """False if the task was given up before a thread took it. Otherwise its thread can be abandoned from now on."""
        with self._lock:
            if not task.deadline.given_up.is_set():
                task.thread = current_thread()
            return task.thread is not None

    def _work_on(self, task: _Task[K]) -> bool:
        """False if the task was given up in the meantime, and this thread with it."""
        current.set(task.deadline)
        begun_at = time.monotonic()
        outcome = contained(task.call)
        if isinstance(outcome, Raised) and isinstance(outcome.error, JobStopped):
            outcome = Raised(ItemTimedOut(self._timeout_seconds))
        with self._lock:  # from here on there is no thread to abandon: this one takes the next task
            task.thread, given_up = None, task.deadline.given_up.is_set()
        if not given_up:
            self._results.put(Ending(task.claim, outcome, time.monotonic() - begun_at))
        return not given_up
