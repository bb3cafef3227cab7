"""Writes how executions ended: one commit for all that ended in the last few milliseconds.

A result is kept until it is written or refused by its fence; while Postgres is away it waits here.
"""

import logging
import queue
import time
from collections.abc import Callable

from sqlalchemy.exc import DBAPIError

from database.models import ExecutionStatus
from services import metrics
from services.distributed_lock import Coordinator
from services.execution_store import ExecutionStore, FinishReport
from services.fires import Claim, Ending, leases

logger = logging.getLogger(__name__)

GATHER_SECONDS = 0.004
MAX_BATCH = 500
LOCKED_AGAIN_SECONDS = 0.05
VALUE_ERRORS = ("22", "23", "54")  # SQLSTATE classes: data, constraints, limits


class Finisher:
    def __init__(self, store: ExecutionStore, coordinator: Coordinator) -> None:
        self._store, self._coordinator = store, coordinator
        self._queue: queue.SimpleQueue[Ending] = queue.SimpleQueue()
        self._unwritten: list[Ending] = []
        self.on_written: Callable[[Claim], None] = lambda claim: None
        self.wake: Callable[[], None] = lambda: None

    def put(self, ending: Ending) -> None:
        self._queue.put(ending)
        self.wake()

    @property
    def unwritten(self) -> int:
        return self._queue.qsize() + len(self._unwritten)

    def tick(self) -> float | None:
        if self._queue.empty() and not self._unwritten:
            return None
        time.sleep(GATHER_SECONDS)
        while self._gather():
            report = self._write(self._unwritten)
            later = {ending.claim.execution_id for ending in report.later}
            refused = {claim.execution_id for claim in report.refused}
            written = [ending for ending in self._unwritten if ending.claim.execution_id not in later]
            self._unwritten = report.later
            self._coordinator.release_leases(leases(ending.claim for ending in written))
            for ending in written:
                self._report(ending, ending.claim.execution_id in refused)
            if report.later:
                return LOCKED_AGAIN_SECONDS
        return None

    def _write(self, endings: list[Ending]) -> FinishReport:
        """A result that Postgres cannot store must not keep the others from being written."""
        try:
            return self._store.finish(endings)
        except DBAPIError as error:
            if (getattr(error.orig, "pgcode", None) or "")[:2] not in VALUE_ERRORS:
                raise  # it is about the moment: a lock, a timeout, a server that only reads; the results are good
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
        return self._unwritten

    def _report(self, ending: Ending, refused: bool) -> None:
        claim = ending.claim
        self.on_written(claim)
        if refused:
            metrics.finish_refused()
            logger.warning(
                "the result of execution %s came too late: it was taken from this replica meanwhile",
                claim.execution_id,
                extra={"event": "finish_refused", "execution_id": str(claim.execution_id)},
            )
            return
        metrics.execution_finished(ending)
        logger.info(
            "%s at %s: %s",
            claim.job_id,
            claim.scheduled_for,
            ending.status,
            extra={
                "event": "execution_finished",
                "execution_id": str(claim.execution_id),
                "schedule_id": str(claim.schedule_id),
                "status": ending.status.value,
                "attempt": claim.attempt,
                "duration_seconds": ending.duration_seconds,
            },
        )
