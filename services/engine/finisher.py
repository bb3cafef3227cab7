"""Writes the results of executions: one commit for all that ended in the last few milliseconds.

A result is kept until it is written or refused by its fencing token; while Postgres is down it waits here. A result
whose row another session locks is retried with increasing delays, so that it does not hold up the others.
"""

import heapq
import logging
import queue
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy.exc import DBAPIError

from database.backoff import Backoff
from database.models import ExecutionStatus
from services.distributed_lock import Coordinator
from services.engine.held_claims import HeldClaims
from services.engine.loops import Loop
from services.ledger.claims import ExecutionStore, FinishReport, is_about_values
from services.ledger.fires import Ending, leases
from services.telemetry import metrics

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0
GATHER_SECONDS = 0.004
MAX_BATCH = 500
PATIENCE = Backoff(first_seconds=0.05, longest_seconds=2.0, jitter=0.0)
MadeRoom = Callable[[Collection[UUID], Collection[str]], None]  # of schedules and limit keys, each once per place
FAILURES = (ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT)


@dataclass(order=True, frozen=True, slots=True)
class _Later:
    """A result whose row another session had locked."""

    try_at: float
    times_held: int
    ending: Ending = field(compare=False)


class Finisher:
    def __init__(self, store: ExecutionStore, held: HeldClaims, coordinator: Coordinator) -> None:
        self._store, self._held, self._coordinator = store, held, coordinator
        self._queue: queue.SimpleQueue[Ending] = queue.SimpleQueue()
        self._unwritten: list[Ending] = []
        self._later: list[_Later] = []  # heap
        self._times_held: dict[UUID, int] = {}  # of those that are tried again right now
        self._freed: Callable[[set[str]], None] = lambda keys: None
        self._made_room: MadeRoom = lambda schedule_ids, keys: None
        self._ended: Callable[[Ending], None] = lambda ending: None
        self.loop = Loop("finisher", self.tick, TICK_SECONDS)

    def tell(self, freed: Callable[[set[str]], None]) -> None:
        """Who looks for rows that wait for these limits, once their places are free."""
        self._freed = freed

    def tell_fleet(self, made_room: MadeRoom) -> None:
        """Who announces what waits for room of these schedules and limits; it must not wait for anything."""
        self._made_room = made_room

    def tell_ends(self, ended: Callable[[Ending], None]) -> None:
        """Sets what is called with each end that was written; it must not wait for anything."""
        self._ended = ended

    def put(self, ending: Ending) -> None:
        self._queue.put(ending)
        self.loop.wake()

    @property
    def unwritten(self) -> int:
        return self._queue.qsize() + len(self._unwritten) + len(self._later)

    def write_what_is_left(self, within_seconds: float) -> None:
        """At the end of the process, while the loop still runs."""
        deadline = time.monotonic() + within_seconds
        while self.unwritten and time.monotonic() < deadline:
            self.loop.wake()
            time.sleep(0.02)

    def tick(self) -> float | None:
        if self._queue.empty() and not self._unwritten and not self._later:
            return None
        time.sleep(GATHER_SECONDS)
        while self._gather():
            report = self._write(self._unwritten)
            later = {ending.claim.execution_id for ending in report.later}
            refused = {claim.execution_id for claim in report.refused}
            written = [ending for ending in self._unwritten if ending.claim.execution_id not in later]
            self._unwritten = []
            self._hold(report.later)
            self._times_held.clear()
            self._coordinator.release_leases(leases(ending.claim for ending in written))
            self._held.forget(ending.claim for ending in written)
            if freed := {key for ending in written for key in ending.claim.limits}:
                self._freed(freed)
            ended = [ending.claim for ending in written]
            self._made_room([claim.schedule_id for claim in ended], [key for claim in ended for key in claim.limits])
            for ending in written:
                self._report(ending, ending.claim.execution_id in refused)
        return max(0.0, self._later[0].try_at - time.monotonic()) if self._later else None

    def _hold(self, endings: list[Ending]) -> None:
        for ending in endings:
            times = self._times_held.get(ending.claim.execution_id, 0) + 1
            heapq.heappush(self._later, _Later(time.monotonic() + PATIENCE.after(times), times, ending))

    def _write(self, endings: list[Ending]) -> FinishReport:
        """A result that Postgres cannot store must not prevent the others from being written."""
        try:
            return self._store.finish(endings)
        except DBAPIError as error:
            if not is_about_values(error):
                raise  # the results are good
            if len(endings) > 1:
                reports = [self._write([ending]) for ending in endings]
                return FinishReport(
                    [claim for report in reports for claim in report.refused],
                    [ending for report in reports for ending in report.later],
                )
            return self._write_bare(endings[0], error)

    def _write_bare(self, ending: Ending, error: DBAPIError) -> FinishReport:
        reason = f"its result could not be stored: {type(error.orig).__name__}"
        logger.error("execution %s: %s", ending.claim.execution_id, reason, extra={"event": "result_unstorable"})
        bare = Ending(claim=ending.claim, status=ExecutionStatus.FAILED, error_message=reason)
        return self._store.finish([bare])

    def _gather(self) -> list[Ending]:
        while len(self._unwritten) < MAX_BATCH:
            try:
                self._unwritten.append(self._queue.get_nowait())
            except queue.Empty:
                break
        now = time.monotonic()
        while self._later and self._later[0].try_at <= now and len(self._unwritten) < 2 * MAX_BATCH:
            held = heapq.heappop(self._later)
            self._times_held[held.ending.claim.execution_id] = held.times_held
            self._unwritten.append(held.ending)
        return self._unwritten

    def _report(self, ending: Ending, refused: bool) -> None:
        claim = ending.claim
        if refused:
            metrics.finish_refused()
            logger.warning(
                "the result of execution %s came too late: another replica had taken over the execution",
                claim.execution_id,
                extra={"event": "finish_refused", "execution_id": str(claim.execution_id)},
            )
            return
        metrics.execution_finished(ending)
        self._ended(ending)
        logger.log(
            _severity(ending),
            "%s at %s: %s%s",
            claim.name,
            claim.scheduled_for,
            ending.status,
            f": {ending.error_message}" if ending.error_message else "",
            extra={
                "event": "execution_finished",
                "execution_id": str(claim.execution_id),
                "schedule_id": str(claim.schedule_id),
                "status": ending.status.value,
                "attempt": claim.attempt,
                "duration_seconds": ending.duration_seconds,
            },
        )


def _severity(ending: Ending) -> int:
    if ending.status not in FAILURES:
        return logging.INFO
    return logging.ERROR if ending.retry_in_seconds is None else logging.WARNING
