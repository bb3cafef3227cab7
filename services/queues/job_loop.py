"""One run of a status queue: claim -> load -> work -> save and finish, until the queue is empty or the budget spent.

Start reading at `JobLoop.run`. The run's own thread does everything that needs Postgres, in short transactions; the
items' threads only `work`. A run therefore holds at most one connection, and none while it waits for its items.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar

from sqlalchemy import ClauseElement
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase

from database.connection import DatabaseConnection, get_db_connection
from enhanced_scheduler.containment import Returned
from services.errors import ConfigurationError, Unavailable
from services.ledger.verdicts import Reason
from services.queues.async_steps import AsyncSteps, PlainSessions, Sessions
from services.queues.circuit import Entry
from services.queues.item_loader import ItemLoader
from services.queues.item_threads import ItemThreads
from services.queues.item_writer import ItemWriter
from services.queues.loop_limits import SAVE_SECONDS, LoopLimits
from services.queues.outcomes import Claim, Ending, K, RunContext, Summary, Unwatched, Verdict
from services.queues.queue_state import QueueState, QueueStates
from services.queues.queue_table import QueueTable, Words
from services.queues.rescue import Rescue
from services.queues.run_ledger import RunLedger
from services.queues.steps import Process, Steps
from services.telemetry import metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

POLL_SECONDS = 0.1  # how soon a run notices that it should stop
LOOK_AGAIN_SECONDS = 1.0  # between two looks at an empty queue, while the last items are in progress
RESCUE_SECONDS = 30.0
PATIENCE_SECONDS = 30.0  # how long a run waits for an unavailable Postgres
AGAIN_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Downstream:
    """Backpressure: the queue that this one fills, and how many rows whose turn has come may wait there.

    Later rows of a huge site do not count (fair_turns.py): one site must not block all the others.
    """

    table: QueueTable[Any]
    limit: int

    def is_full(self, db: DatabaseConnection) -> bool:
        with db.transaction() as connection:
            return self.table.backlog(connection, self.limit + 1) > self.limit


class JobLoop(Generic[K]):
    """One run. Runs and replicas share only the queue's table and `workflow_queues`."""

    def __init__(
        self,
        db: DatabaseConnection,
        queue: str,
        table: QueueTable[K],
        steps: Steps[K],
        limits: LoopLimits,
        context: RunContext,
        downstream: Downstream | None = None,
        actor: str | None = None,
    ) -> None:
        self._actor = actor or f"system:{queue}"
        self._async: AsyncSteps[K] | None = None
        sessions: Sessions = PlainSessions(db)
        if steps.is_async:
            self._async = AsyncSteps(db, steps, limits.concurrency, limits.item_timeout_seconds)
            steps, sessions = self._async.steps, self._async.sessions
        self._db, self._queue, self._table, self._work, self._limits = db, queue, table, steps.work, limits
        self._context, self._downstream = context, downstream
        self._states = QueueStates(db)
        self._ledger = RunLedger(self._states, queue, limits.breaker, own_sites=steps.own_sites)
        self._loader = ItemLoader(sessions, steps.load)
        self._threads: ItemThreads[K] = ItemThreads(queue, limits.concurrency, limits.item_timeout_seconds)
        self._writer = ItemWriter(
            db,
            queue,
            table,
            steps,
            sessions,
            actor=self._actor,
            max_attempts=limits.max_attempts,
            backoff_seconds=limits.retry_backoff_seconds,
        )
        self._rescue = Rescue(db, queue, table, self._writer, limits.stale_after_seconds)
        self._batch = limits.pace(None, threads=steps.work is not None)
        self._unwritten: list[Ending[K]] = []
        self._asked = self._got = 1  # by the last claim
        self._look_at = self._rescued_at = self._wrote_at = time.monotonic()
        self._probing = False
        self._stop: str | None = None  # why the run claims no further item

    def run(self) -> Summary:
        """Once: an event loop that its steps need ends with it."""
        try:
            return self._run()
        finally:
            if self._async is not None:
                self._async.close()

    def _run(self) -> Summary:
        self._rescue.run(self._ledger)
        if reason := self._refusal():
            self._ledger.summary.skipped = reason
            self._ledger.report()
            return self._ledger.summary
        try:
            while self._round():
                self._context.check()
        finally:
            self._leave()
        return self._ledger.summary

    def _round(self) -> bool:
        """False when no item is in progress and none will follow."""
        endings = self._begin(self._patiently(self._claim))
        endings += self._threads.ended(0 if endings else POLL_SECONDS)
        self._finish(endings)
        self._keep_house()
        return self._threads.busy > 0 or self._room() > 0 or self._waits_to_write()

    # --- the steps of a round ---

    def _claim(self) -> list[Claim[K]]:
        count = self._room()
        if count == 0 or time.monotonic() < self._look_at:
            return []
        asked_at = time.monotonic()
        with self._db.transaction() as connection:
            claims = self._table.claim(connection, count)
        if time.monotonic() - asked_at > self._limits.late_claim_seconds:
            self._hand_back(claims)  # the rescue would take them over before the work ends
            claims = []
        self._asked, self._got = count, len(claims)
        self._look_at = time.monotonic() + (0 if claims else LOOK_AGAIN_SECONDS)
        self._ledger.claimed(len(claims))
        return claims

    def _room(self) -> int:
        """How many rows to claim: never more than can be worked on at once, so a claimed row does not wait."""
        busy = self._threads.busy
        if self._stop or (self._got == 0 and not busy):
            return 0
        if self._probing:
            return 0 if busy else 1
        if self._work is None:
            return self._batch.size
        return max(0, min(self._batch.size, self._threads.places) - busy)

    def _begin(self, claims: Sequence[Claim[K]]) -> list[Ending[K]]:
        """Starts `work` for each item; returns items that have already ended: without `work`, or failed to load."""
        endings = []
        for claim, outcome in self._patiently(lambda: self._loader.load(claims)):
            if self._work is not None and isinstance(outcome, Returned):
                self._threads.start(claim, partial(self._work, outcome.value))
            else:
                endings.append(Ending(claim, outcome))
        return endings

    def _finish(self, endings: Sequence[Ending[K]]) -> None:
        if not self._unwritten:
            self._wrote_at = time.monotonic()
        self._unwritten += endings
        if not self._unwritten:
            return
        begun_at = time.monotonic()
        try:
            self._patiently(self._write)
        except ConfigurationError as error:
            self._pause(str(error))
        if endings:  # an item that only waits for a row lock has been counted before
            seconds = sum(ending.seconds for ending in endings) if self._work else time.monotonic() - begun_at
            self._batch.ended(len(endings), seconds, deep=self._got == self._asked)

    def _write(self) -> None:
        written: list[tuple[Ending[K], Verdict]] = []
        try:
            for ending, verdict in self._writer.write(self._unwritten):
                written.append((ending, verdict))
        finally:  # also when Postgres went away in the middle
            done = {ending.claim for ending, _ in written}
            self._unwritten = [ending for ending in self._unwritten if ending.claim not in done]
            self._ledger.settled(written)

    def _waits_to_write(self) -> bool:
        """Items whose row was locked are written again, until the rescue would take them over anyway."""
        return bool(self._unwritten) and time.monotonic() - self._wrote_at < SAVE_SECONDS

    def _pause(self, reason: str) -> None:
        """No item can succeed until an operator changes a setting: hand everything back and pause the queue."""
        self._stop = Reason.PAUSED
        self._hand_back_all()
        self._patiently(lambda: self._states.pause(self._queue, reason, self._actor))
        self._context.log(f"paused: {reason}")
        logger.error("queue %s was paused automatically: %s", self._queue, reason, extra={"event": "queue_paused"})

    # --- periodic work ---

    def _keep_house(self) -> None:
        if time.monotonic() - self._rescued_at > RESCUE_SECONDS:
            self._rescued_at = time.monotonic()
            self._patiently(lambda: self._rescue.run(self._ledger))
        if self._ledger.is_due or (self._probing and not self._threads.busy):
            self._obey(self._patiently(lambda: self._ledger.report(self._batch_to_share)))
        if self._stop is None and self._ledger.seconds >= self._limits.run_budget_seconds:
            self._stop = "budget"
        if self._stop is None and self._context.draining:
            self._stop = "draining"

    @property
    def _batch_to_share(self) -> int | None:
        return self._batch.size if self._limits.adapts else None

    def _obey(self, state: QueueState) -> None:
        metrics.queue_state(self._queue, state.circuit, paused=state.is_paused, batch_size=state.batch_size)
        self._context.progress(self._ledger.summary.claimed - self._threads.busy)
        self._probing = state.circuit == "half_open"
        if state.is_paused:
            self._stop = Reason.PAUSED
        elif state.circuit == "open":
            self._stop = Reason.CIRCUIT_OPEN
            self._context.log("the circuit breaker opened: too many of the last items failed")
        elif self._patiently(self._is_downstream_full):
            self._stop = Reason.BACKPRESSURE

    # --- start and end ---

    def _refusal(self) -> str | None:
        """The reason why this run does nothing, if there is one."""
        if self._work is not None and self._threads.places == 0:
            return self._skip(Reason.HUNG_THREADS)
        if self._is_downstream_full():
            return self._skip(Reason.BACKPRESSURE)
        permission = self._states.enter(self._queue, self._limits.breaker)
        if permission.state.is_paused:
            return self._skip(Reason.PAUSED, permission.state.paused_reason)
        if permission.entry is Entry.SKIP:
            return self._skip(Reason.CIRCUIT_OPEN, f"since {permission.state.circuit_changed_at.isoformat()}")
        self._probing = permission.entry is Entry.PROBE
        self._batch = self._limits.pace(permission.state.batch_size, threads=self._work is not None)
        return None

    def _is_downstream_full(self) -> bool:
        return self._downstream is not None and self._downstream.is_full(self._db)

    def _skip(self, reason: str, why: str | None = None) -> str:
        metrics.queue_skipped(self._queue, reason)
        self._context.log(f"skipped: {reason}" + (f" ({why})" if why else ""))
        return reason

    def _leave(self) -> None:
        """Items in progress go back to the queue; their threads can write nothing from now on."""
        self._hand_back_all()
        summary = self._ledger.summary
        full = self._work is not None and self._threads.places == 0  # hanging threads occupy all slots
        summary.ended = self._stop or (Reason.HUNG_THREADS if full else "empty")
        summary.seconds = self._ledger.seconds
        metrics.queue_run_took(self._queue, summary.seconds)
        self._context.progress(summary.claimed)
        try:
            self._ledger.report(self._batch_to_share)
            if self._probing:
                self._states.not_probed(self._queue, self._limits.breaker)
        except Unavailable as error:
            logger.warning("%s", error, extra={"event": "server_unavailable", "queue": self._queue})

    def _hand_back_all(self) -> None:
        claims = [*self._threads.stop(), *(ending.claim for ending in self._unwritten)]
        self._unwritten = []
        self._hand_back(claims)

    def _hand_back(self, claims: Sequence[Claim[K]]) -> None:
        for claim in claims:
            try:
                with self._db.transaction() as connection:
                    self._table.hand_back(connection, claim)
            except (Unavailable, DBAPIError) as error:
                logger.warning(
                    "%s %s could not be handed back; the rescue will requeue it: %s", self._queue, claim.key, error,
                    extra={"event": "item_stranded", "queue": self._queue},
                )  # fmt: skip
                if isinstance(error, Unavailable):  # any other error concerns only this row, such as a lock
                    return

    def _patiently(self, call: Callable[[], T]) -> T:
        """Retries while Postgres is unavailable, so that a short outage costs no results."""
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return call()
            except Unavailable:
                if time.monotonic() > give_up_at:
                    raise
            self._context.check()
            time.sleep(AGAIN_SECONDS)


def run_job_loop(
    model: type[DeclarativeBase],
    status_enum: type[Enum],
    queued_status: Enum,
    processing_status: Enum,
    completed_status: Enum,
    failed_status: Enum,
    processing_function: Process[K] | Steps[K],
    batch_size: int = 10,
    order_by_column: ClauseElement | None = None,
    status_field_name: str = "status",
    error_field_name: str = "error",
    *,
    column_prefix: str = "",
    queue: str | None = None,
    limits: LoopLimits = LoopLimits(),
    db: DatabaseConnection | None = None,
    context: RunContext = Unwatched(),
    downstream: Downstream | None = None,
) -> Summary:
    """Process the rows of `model` whose status is `queued_status`; returns the number of items by verdict.

    The model has the columns of `QueueColumns`, each with `column_prefix`. `processing_function(key, session)` is for
    work without slow I/O; `Steps(load=…, work=…, save=…)` for everything else. The function may begin, commit and roll
    back on its session; if it sets `failed_status` and the error itself, the item ends as failed. A coroutine function
    gets an AsyncSession (extra `async`), and a CancelledError after the item timeout; `async_job_loop.run_job_loop` can
    be awaited. Without `order_by_column` urgent rows go first, and a point of priority is worth ten minutes of waiting.
    Circuit breaker, pause, totals and dead letters are stored under the name `queue`; all runs on the same rows must
    use the same name.
    """
    words = Words(queued_status, processing_status, completed_status, failed_status)
    strangers = [word for word in astuple(words) if not isinstance(word, status_enum)]
    if strangers:
        raise ValueError(f"{strangers[0]!r} is not one of {status_enum.__name__}")
    table: QueueTable[K] = QueueTable(
        model,
        words,
        status_field_name=status_field_name,
        error_field_name=error_field_name,
        prefix=column_prefix,
        order_by=order_by_column,
    )
    steps = processing_function if isinstance(processing_function, Steps) else Steps.own_session(processing_function)
    name = queue or f"{model.__tablename__}.{status_field_name}"
    chosen = replace(limits, batch_size=batch_size)
    return JobLoop(db or get_db_connection(), name, table, steps, chosen, context, downstream).run()
