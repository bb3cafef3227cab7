"""Runs executions in threads, each with its timeout. Start reading at `WorkerPool._work`.

Coroutine handlers take no thread: async_runs.py runs them in an event loop.

The watchdog (timeouts.py) ends what exceeds its timeout.

Each submitted context ends in exactly one of three ways: `on_done` is called once, `may_run` refuses it (dropped), or
`take_back` or `shutdown` returns it. The first thread to settle it under the lock decides; later results are discarded.
`on_done` is called from a worker or from the watchdog: it must be fast, and its exceptions are only logged.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from uuid import UUID

from enhanced_scheduler import results
from enhanced_scheduler.calling import call_handler, stopped_result
from enhanced_scheduler.containment import Outcome, Raised, Returned, contained
from enhanced_scheduler.context import ExecutionContext
from enhanced_scheduler.results import JobResult
from services.engine.async_runs import AsyncRuns, Desk
from services.engine.isolation import run_isolated
from services.engine.journals import Journals
from services.engine.run import Run
from services.engine.threads import OF_THE_SYSTEM, Threads
from services.engine.timeouts import Watchdog
from services.jobs.child_process import KILL_SECONDS
from services.jobs.registry import JobRegistry
from services.wording.names import name_of

log = logging.getLogger(__name__)

CLEAN_UP_SECONDS = 2.0  # what a handler gets to hand back what it holds, when a shutdown ends it

OnDone = Callable[[ExecutionContext, JobResult, float], None]
MayRun = Callable[[ExecutionContext], bool]
MOST_ASYNC = 100


class WorkerPool:
    """`max_workers` daemon threads on one queue, and one watchdog. A hanging job cannot keep the process alive."""

    def __init__(
        self,
        max_workers: int,
        registry: JobRegistry,
        on_done: OnDone,
        *,
        may_run: MayRun = lambda _context: True,
        is_sure: MayRun = lambda _context: False,
        answer: Callable[[ExecutionContext], bool | None] | None = None,
        max_async: int = MOST_ASYNC,
        on_begin: Callable[[ExecutionContext], None] = lambda _context: None,
        journals: Journals | None = None,
        grace_seconds: float = 0.5,
        threads: Threads = OF_THE_SYSTEM,
    ) -> None:
        self.max_workers, self._registry, self._grace_seconds = max_workers, registry, grace_seconds
        self.max_async = max_async
        self._on_done, self._may_run, self._threads = on_done, may_run, threads
        self._on_begin = on_begin
        self._journals = journals
        self._queue: SimpleQueue[Run | None] = threads.queue()
        self._changed = threads.condition()
        self._runs: dict[UUID, Run] = {}  # until `on_done` has returned
        self.leaked = 0  # threads that ignored their end and still run
        self.dropped = 0  # executions that `may_run` refused
        self._closing = False
        desk = Desk(is_sure=is_sure, answer=answer or may_run, begin=self._begin, refuse=self._refuse, finish=self._end)
        self.in_loop = AsyncRuns(max_async, desk, threads)
        for _ in range(max_workers):
            self._start_worker()
        self._watchdog = Watchdog(
            self._changed,
            self._runs,
            grace_seconds,
            give_up=lambda run: _log_if_raised(contained(lambda: self._give_up(run)), run),
            is_over=lambda: self._closing and not self._runs,
        )
        self._watchdog.start(threads)

    # --- for the dispatcher ---

    @property
    def running(self) -> list[ExecutionContext]:
        """Those whose handler was called and has not ended."""
        return [context for context in self.held if context.begun]

    @property
    def held(self) -> list[ExecutionContext]:
        """Those that run or wait for a worker."""
        with self._changed:
            return [run.context for run in self._runs.values() if not run.settled]

    def submit(self, context: ExecutionContext) -> None:
        """Raises RuntimeError after `shutdown`, and for an execution that is here already."""
        run = Run(context, self._registry.get_or_refusal(context.job_type))
        with self._changed:
            if self._closing:
                raise RuntimeError("the pool is shut down")
            if context.execution_id in self._runs:
                raise RuntimeError(f"execution {context.execution_id} was submitted twice")
            self._runs[context.execution_id] = run
        if run.in_loop:
            self.in_loop.submit(run)
        else:
            self._queue.put(run)

    def cancel(self, execution_id: UUID, reason: str = "on request") -> bool:
        """Tell an execution to stop; False if it is not in this pool."""
        with self._changed:
            run = self._runs.get(execution_id)
            if run is None or run.settled:
                return False
            run.context.cancel(reason)
            self._watchdog.look_by(0)
        return True

    def take_back(self, waited_seconds: float, *, in_loop: bool | None = None) -> list[ExecutionContext]:
        """Take back executions that have waited this long for a worker, or for the event loop; they will not be run."""
        since = time.monotonic() - waited_seconds
        with self._changed:
            waiting = [run for run in self._runs.values() if run.begun_at is None and run.submitted_at <= since]
            if in_loop is not None:
                waiting = [run for run in waiting if run.in_loop is in_loop]
            returned = [run for run in waiting if self._settle(run)]
            for run in returned:
                self._forget(run)
        return [run.context for run in returned]

    def warn(self) -> None:
        """Tell the running handlers that a shutdown is coming."""
        with self._changed:
            for run in self._runs.values():
                run.context.drain()

    def shutdown(self, wait_seconds: float) -> list[ExecutionContext]:
        """Wait for running executions; returns the unfinished (`begun`: its handler was called)."""
        with self._changed:
            self._closing = True
            for _ in range(self.max_workers):
                self._queue.put(None)
            returned = [run for run in self._runs.values() if run.begun_at is None and self._settle(run)]
            for run in returned:
                self._forget(run)
            self.warn()
            self._watchdog.look_by(0)
            self._changed.wait_for(lambda: not self._runs, wait_seconds)
            stuck = [run for run in self._runs.values() if self._settle(run)]
            for run in stuck:
                run.context.cancel("the replica is shutting down")
                run.tell()
            self._changed.wait_for(lambda: not self._runs, CLEAN_UP_SECONDS)
            for run in stuck:
                if not run.isolated:
                    self._forget(run)
            # What is left: processes that are being killed, and results that are being handed over.
            self._changed.wait_for(lambda: not self._runs, self._grace_seconds + KILL_SECONDS)
        self.in_loop.close()
        return [run.context for run in returned + stuck]

    # --- a worker ---

    def _start_worker(self) -> None:
        self._threads.thread(target=self._work, name="job-worker", daemon=True).start()

    def _work(self) -> None:
        while (run := self._queue.get()) is not None:
            if not self._is_allowed(run) or not self._begin(run):
                continue  # refused, cancelled or returned while it waited
            _log_start(run.context)
            if not self._end(run, self._run(run)):
                return  # another thread has taken this place

    def _is_allowed(self, run: Run) -> bool:
        """Asked before the timeout starts: waiting for the answer is not the handler's time."""
        if run.settled:
            return False
        match contained(lambda: self._may_run(run.context)):
            case Returned(True):
                return True
            case Returned(_):
                self._refuse(run)
            case Raised(error):
                if self._settle(run):
                    self._deliver(run, results.failed(error, run.context.mask))
                self._forget(run)
        return False

    def _begin(self, run: Run) -> bool:
        with self._changed:
            if run.settled:
                return False
            run.context.begin()
            run.begun_at = time.monotonic()
            if self._journals is not None:
                run.journal = self._journals.begin(run.context)
            self._watchdog.look_by(run.begun_at + run.context.timeout_seconds)
        _log_if_raised(contained(lambda: self._on_begin(run.context)), run)
        return True

    def _run(self, run: Run) -> JobResult:
        match contained(lambda: self._attempt(run)):
            case Returned(result):
                return result
            case Raised(error):  # not the handler's: it is contained already
                return results.failed(error, run.context.mask)

    def _attempt(self, run: Run) -> JobResult:
        if run.isolated:
            return run_isolated(run.definition, run.context, self._registry.modules, self._grace_seconds)
        return call_handler(run.definition, run.context)

    def _end(self, run: Run, result: JobResult) -> bool:
        """False: it was given up before."""
        if not self._settle(run):
            self._too_late(run)
            return False
        self._deliver(run, result)
        self._forget(run)
        return True

    def _refuse(self, run: Run) -> None:
        self.dropped += self._settle(run)
        self._forget(run)

    def _too_late(self, run: Run) -> None:
        self._forget(run)
        if not run.abandoned:
            return
        with self._changed:
            self.leaked -= 1
        _warn("late_result_dropped", "it ended after it was given up; its result is dropped", run)

    # --- the watchdog ---

    def _give_up(self, run: Run) -> None:
        with self._changed:
            if not self._settle(run):
                return  # it ended in the last moment
            run.abandoned = run.begun_at is not None
            self.leaked += run.abandoned
        self._deliver(run, stopped_result(run.context))
        self._forget(run)
        if run.abandoned and run.in_loop:
            _warn("coroutine_leaked", "it ignored the CancelledError, or blocks the event loop", run)
            self.in_loop.give_up(run)
        elif run.abandoned:
            _warn("worker_leaked", "it ignored the stop request; its thread is replaced", run)
            self._start_worker()

    # --- both ---

    def _settle(self, run: Run) -> bool:
        """True for the one caller that decides how this run ends."""
        with self._changed:
            first, run.settled = not run.settled, True
            return first

    def _deliver(self, run: Run, result: JobResult) -> None:
        kept = replace(result, details={**result.details, **run.context.trace()})
        _log_if_raised(contained(lambda: self._on_done(run.context, kept, run.duration_seconds)), run)
        if self._journals is not None and run.journal is not None:
            self._journals.end(run.journal)

    def _forget(self, run: Run) -> None:
        with self._changed:
            if self._runs.get(run.context.execution_id) is run:
                del self._runs[run.context.execution_id]
            if self._closing:
                self._changed.notify_all()


def _log_start(context: ExecutionContext) -> None:
    if not log.isEnabledFor(logging.INFO):
        return
    facts = {
        "event": "execution_started",
        "execution_id": str(context.execution_id),
        "schedule_id": str(context.schedule_id),
        "job_type": context.job_type,
        "domain": context.domain,
        "attempt": context.attempt,
    }
    log.info("%s at %s: started", name_of(context), context.scheduled_for, extra=facts)


def _warn(event: str, what: str, run: Run) -> None:
    context = run.context
    extra = {"event": event, "execution_id": str(context.execution_id)}
    log.warning("execution %s of %s: %s", context.execution_id, name_of(context), what, extra=extra)


def _log_if_raised(outcome: Outcome[None], run: Run) -> None:
    if isinstance(outcome, Raised):
        extra = {"event": "result_not_delivered", "execution_id": str(run.context.execution_id)}
        log.error(
            "the end of execution %s was not delivered", run.context.execution_id, exc_info=outcome.error, extra=extra
        )
