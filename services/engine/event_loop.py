"""One event loop in a thread of its own, for coroutine handlers. `async_runs.py` decides what runs in it.

The loop knows which execution a task belongs to, also a task that a handler has started: so what is left of a handler
is cancelled with it, and a handler that blocks the loop can be named.
"""

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from queue import SimpleQueue
from types import FrameType
from typing import Any

from enhanced_scheduler.containment import Raised, Returned, contained
from services.engine.run import Run
from services.engine.threads import Threads

logger = logging.getLogger(__name__)

END_SECONDS = 1.0  # what cancelled tasks get to clean up, when the process ends
_current: ContextVar[Run | None] = ContextVar("run", default=None)
_loops: list["EventLoop"] = []  # of this process, for the copies of it that a handler may make


class EventLoop:
    """Lives until `close`. Whatever a task raises, SystemExit included, the loop goes on."""

    def __init__(self, threads: Threads, most_threads: int) -> None:
        self._loop = self.loop = asyncio.SelectorEventLoop()
        self._loop.set_task_factory(self._make_task)
        self._loop.set_default_executor(DaemonThreads(most_threads))
        vars(self._loop)["shutdown_default_executor"] = _leave_to_others
        self._tasks: dict[Run, set[asyncio.Task[Any]]] = {}
        self._runs: dict[asyncio.Task[Any], Run] = {}
        self._pinged_at: float | None = None
        self._is_closing = False
        self._thread = threads.thread(target=self._live, name="job-loop", daemon=True)
        _loops.append(self)
        self._thread.start()

    # --- called by any thread ---

    def call(self, function: Callable[..., object], *arguments: object) -> bool:
        """In the loop, soon. False: it has ended."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return False
        return True

    def silent_seconds(self) -> float:
        """How long the loop has not answered: asks, and looks for the answer at the next call."""
        now = time.monotonic()
        if self._pinged_at is None:
            self._pinged_at = now
            self.call(self._answer)
            return 0.0
        return now - self._pinged_at

    def blocking(self) -> tuple[Run | None, FrameType | None]:
        """The execution whose code holds the loop now, if it is known, and where it is. No frame: nothing does."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        task = asyncio.current_task(self._loop)
        if frame is None or (task is None and frame.f_code.co_filename.endswith("selectors.py")):
            return None, None  # it waits for events: the machine is slow, not a handler
        return (None if task is None else self._runs.get(task)), frame

    def close(self) -> None:
        """Cancels what is left. A loop that something blocks is left behind: its thread is a daemon."""
        self._is_closing = True
        self.call(self._loop.stop)
        if self._thread is not threading.current_thread():
            self._thread.join(END_SECONDS)

    # --- in the loop ---

    def start(self, run: Run, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        former = _current.set(run)
        try:
            return self._loop.create_task(coroutine, name=f"{run.context.job_type} {run.context.execution_id}")
        finally:
            _current.reset(former)

    def leave(self, run: Run) -> int:
        """Cancel the tasks that this execution has started and not awaited; returns how many."""
        left = [task for task in self._tasks.pop(run, ()) if not task.done()]
        for task in left:
            task.cancel()
        return len(left)

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, /, **options: Any) -> "asyncio.Task[Any]":
        task = asyncio.Task(coroutine, loop=loop, **options)
        if (run := _current.get()) is not None:
            self._tasks.setdefault(run, set()).add(task)
            self._runs[task] = run
            task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        run = self._runs.pop(task, None)
        if run is not None and (tasks := self._tasks.get(run)) is not None:
            tasks.discard(task)
            if not tasks:
                del self._tasks[run]

    def _answer(self) -> None:
        self._pinged_at = None

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        while True:
            contained(self._loop.run_forever)  # a task that calls sys.exit() ends it
            if self._is_closing:
                break
        contained(self._end)
        contained(self._loop.close)
        _loops.remove(self)

    def _end(self) -> None:
        """A task that ignores its cancellation is left behind."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=END_SECONDS))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    def _be_a_copy(self) -> None:
        """In a fork that a handler made: of this loop only the handler's own step goes on, and then the process ends.

        All other tasks are those of the parent. With nothing ready the loop's turn ends, by an error at the latest, and
        `contained` ends the process.
        """
        self._is_closing = True
        if self._thread is threading.current_thread():
            self._loop.stop()
            vars(self._loop)["_ready"].clear()


class DaemonThreads(ThreadPoolExecutor):
    """For asyncio.to_thread. Python waits at its end for the threads of its own executor; a handler may hang in one."""

    def __init__(self, most: int) -> None:
        super().__init__(1)
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._most, self._started, self._idle = most, 0, threading.Semaphore(0)
        self._lock = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            match contained(lambda: fn(*args, **kwargs)):
                case Returned(value):
                    future.set_result(value)
                case Raised(error):
                    future.set_exception(error)

        self._calls.put(call)
        with self._lock:
            if not self._idle.acquire(blocking=False) and self._started < self._most:
                self._started += 1
                threading.Thread(target=self._work, name="job-loop-thread", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Its threads end, each when its call does; nothing waits for them."""
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            self._idle.release()


async def _leave_to_others(*_timeout: float | None) -> None:
    """A handler that ends its loop's threads, as programs do at their end, would take them from all others."""


def _after_fork() -> None:
    for loop in list(_loops):
        loop._be_a_copy()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
