"""Runs coroutine handlers in one event loop, beside the threads of the pool. Start reading at `AsyncRuns._call`.

The loop never waits for Postgres: what the heart confirms from memory is called at once; everything else is asked by a
thread (`_ask`) and called within half a second of its answer. Another thread turns what handlers return into results.

A handler that blocks the loop is named after half a second (`_watch`). After a few seconds the loop gets no further
executions: a new one takes over, and the blocked one ends with what it has begun.
"""

import asyncio
import logging
import sysconfig
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock
from types import FrameType
from typing import Any

from database.clock import awake_or_not
from enhanced_scheduler import results
from enhanced_scheduler.calling import left_behind, result_of
from enhanced_scheduler.containment import Raised, Returned, contained
from enhanced_scheduler.context import ExecutionContext
from enhanced_scheduler.log_capture import speak_for
from enhanced_scheduler.results import JobResult
from services.engine.event_loop import EventLoop
from services.engine.run import Run
from services.engine.threads import Threads
from services.telemetry import metrics
from services.wording.names import name_of

logger = logging.getLogger(__name__)

CONFIRMED_SECONDS = 0.5  # the heart's SAFETY_SECONDS are longer: nobody gives us up meanwhile
ASK_AGAIN_SECONDS = 0.5
LOOK_SECONDS = 0.1
BLOCKED_SECONDS = 0.5  # a loop that does not answer for so long is blocked
REPLACED_SECONDS = 5.0
LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What the pool does for its runs, wherever they run. Each is called from any thread."""

    is_sure: Callable[[ExecutionContext], bool]
    answer: Callable[[ExecutionContext], bool | None]  # may it run? None: unknown at the moment
    begin: Callable[[Run], bool]
    refuse: Callable[[Run], None]
    finish: Callable[[Run, JobResult], object]


@dataclass(slots=True, eq=False)
class _Hall:
    """A loop with what waits for it and what it runs; both are changed in the loop only, except for `append`."""

    loop: EventLoop
    waiting: deque[Run] = field(default_factory=deque)
    going: set[Run] = field(default_factory=set)
    is_blocked_by: str | None = None  # as it was told
    is_retired: bool = False


class AsyncRuns:
    """At most `most` at once. Nothing is started before the first coroutine handler comes."""

    def __init__(self, most: int, desk: Desk, threads: Threads) -> None:
        self._most, self._desk, self._threads = most, desk, threads
        self._lock = Lock()
        self._halls: list[_Hall] = []  # the last one takes new runs
        self._unsure: SimpleQueue[Run | None] = SimpleQueue()
        self._ended: SimpleQueue[tuple[Run, asyncio.Task[Any]] | None] = SimpleQueue()
        self._has_runs = threads.event()
        self._is_open = self._is_closed = False
        self.blocked = 0  # how often a handler blocked a loop

    def submit(self, run: Run) -> None:
        with self._lock:
            if self._is_closed:  # the pool has taken it back
                return
            hall = self._open_hall()
            hall.waiting.append(run)
        self._has_runs.set()
        hall.loop.call(self._start_some, hall)

    def give_up(self, run: Run) -> None:
        """Its execution has ended without it: if it goes on, it no longer takes a place."""
        for hall in list(self._halls):
            hall.loop.call(self._leave, hall, run)

    def close(self) -> None:
        """Running coroutines are cancelled; then the threads end, except for that of a blocked loop."""
        with self._lock:
            halls, self._halls, self._is_closed = self._halls, [], True
        for hall in halls:
            hall.loop.close()
        self._unsure.put(None)
        self._ended.put(None)
        self._has_runs.set()

    def _open_hall(self) -> _Hall:
        """Under the lock."""
        if not self._halls:
            self._halls.append(_Hall(EventLoop(self._threads, self._most)))
        if not self._is_open:
            self._is_open = True
            for work in (self._ask, self._settle, self._watch):
                self._threads.thread(target=work, name=f"job-loop-{work.__name__.strip('_')}", daemon=True).start()
        return self._halls[-1]

    # --- in a loop ---

    def _start_some(self, hall: _Hall) -> None:
        while hall.waiting and len(hall.going) < self._most:
            run = hall.waiting.popleft()
            hall.going.add(run)
            task = hall.loop.start(run, self._call(hall, run))
            task.add_done_callback(lambda task, run=run: self._end(hall, run, task))  # type: ignore[misc]

    async def _call(self, hall: _Hall, run: Run) -> object:
        """The check and the first step of the handler are one step of the loop: nothing comes between them."""
        if not self._is_confirmed(run):
            self._unsure.put(run)
            return None
        context = run.context
        task = asyncio.current_task()
        run.stop = partial(hall.loop.call, _cancel, task, context)
        if not self._desk.begin(run):
            return None
        speak_for(context)
        config = run.definition.parse_config(context.job_config)
        called: Any = run.definition.handler(context, config)
        return await called

    def _is_confirmed(self, run: Run) -> bool:
        if self._desk.is_sure(run.context):
            return True
        return run.confirmed_at is not None and awake_or_not() - run.confirmed_at < CONFIRMED_SECONDS

    def _end(self, hall: _Hall, run: Run, task: "asyncio.Task[Any]") -> None:
        self._leave(hall, run)
        if run.context.begun or (not task.cancelled() and task.exception() is not None):
            if left := hall.loop.leave(run):
                run.context.log(left_behind(left))
            self._ended.put((run, task))

    def _leave(self, hall: _Hall, run: Run) -> None:
        hall.going.discard(run)
        self._start_some(hall)
        if hall.is_retired and not hall.going:
            with self._lock:
                self._halls = [other for other in self._halls if other is not hall]
            hall.loop.close()

    # --- threads of their own ---

    def _ask(self) -> None:
        """Asks whether executions are still ours, one after the other; those without an answer again and again."""
        later: list[Run] = []
        while True:
            try:
                run = self._unsure.get(timeout=ASK_AGAIN_SECONDS if later else None)
            except Empty:
                asked, later = later, []
            else:
                if run is None:
                    return
                asked = [run]
            for one in asked:
                if not self._has_answer(one):
                    later.append(one)

    def _has_answer(self, run: Run) -> bool:
        if run.settled:
            return True
        asked_at = awake_or_not()
        match contained(lambda: self._desk.answer(run.context)):
            case Returned(True):
                run.confirmed_at = asked_at
                self.submit(run)
            case Returned(None):
                return False
            case Returned(_):
                self._desk.refuse(run)
            case Raised(error):
                self._desk.finish(run, results.failed(error, run.context.mask))
        return True

    def _settle(self) -> None:
        while (ended := self._ended.get()) is not None:
            run, task = ended
            mask = run.context.mask
            outcome = contained(lambda task=task, mask=mask: results.succeeded(task.result(), mask))  # type: ignore[misc]
            self._desk.finish(run, result_of(outcome, run.context))

    def _watch(self) -> None:
        """Only while something runs."""
        while not self._is_closed:
            self._has_runs.wait()
            self._has_runs.clear()
            while any(hall.going or hall.waiting or hall.is_blocked_by for hall in list(self._halls)):
                for hall in list(self._halls):
                    contained(lambda hall=hall: self._look_at(hall))  # type: ignore[misc]
                time.sleep(LOOK_SECONDS)

    def _look_at(self, hall: _Hall) -> None:
        silent = hall.loop.silent_seconds()
        if silent < BLOCKED_SECONDS:
            if hall.is_blocked_by is not None:
                logger.warning("%s no longer blocks the event loop", hall.is_blocked_by, extra={"event": "loop_free"})
                hall.is_blocked_by = None
            return
        if hall.is_blocked_by is None:
            run, frame = hall.loop.blocking()
            if frame is not None:
                hall.is_blocked_by = self._tell(run, frame, silent)
        if silent >= REPLACED_SECONDS:
            self._replace(hall)

    def _tell(self, run: Run | None, frame: FrameType, silent: float) -> str:
        self.blocked += 1
        job_type = "unknown" if run is None else run.context.job_type
        metrics.loop_blocked(job_type)
        who = "a callback" if run is None else f"{name_of(run.context)} (job type {job_type})"
        place = _place_of(frame)
        text = f"has blocked the event loop for {silent:.1f} s so far, at {place}; use await, or asyncio.to_thread"
        extra = {"event": "loop_blocked", "job_type": job_type, "where": place}
        if run is not None:
            extra |= {"execution_id": str(run.context.execution_id), "schedule_id": str(run.context.schedule_id)}
            run.context.overhear("WARNING", f"it {text}")
        logger.warning("%s %s", who, text, extra=extra)
        return who

    def _replace(self, hall: _Hall) -> None:
        with self._lock:
            if hall.is_retired or self._is_closed or self._halls[-1] is not hall:
                return
            hall.is_retired = True
            new = _Hall(EventLoop(self._threads, self._most))
            self._halls.append(new)
            while hall.waiting:
                new.waiting.append(hall.waiting.popleft())
        logger.warning(
            "the event loop has been blocked for %.0f s: a new one takes further executions; %d wait in the old one",
            REPLACED_SECONDS,
            len(hall.going),
            extra={"event": "loop_replaced", "executions": len(hall.going)},
        )
        new.loop.call(self._start_some, new)


def _cancel(task: "asyncio.Task[Any]", context: ExecutionContext) -> None:
    if task.cancel():
        context.notice_stop()


def _place_of(frame: FrameType) -> str:
    """The innermost line that is not Python's own or a package's; without one, the innermost."""
    own: FrameType | None = frame
    while own is not None and own.f_code.co_filename.startswith(LIBRARIES):
        own = own.f_back
    if own is None or own.f_code.co_filename == __file__:
        own = frame
    return f"{own.f_code.co_filename}:{own.f_lineno} in {own.f_code.co_name}"
