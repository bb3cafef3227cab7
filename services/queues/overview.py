"""State of all queues: depth, age, failures, pause and circuit; and one sample of it per minute, for charts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from config import Settings
from database.connection import DatabaseConnection
from database.workflow_statuses import CircuitStatus
from services.checks.queue_numbers import QueueNumbers
from services.queues.dead_letters import DeadLetters
from services.queues.item_threads import abandoned
from services.queues.queue import Queue, queues
from services.queues.queue_state import QueueState, QueueStates
from services.queues.scheduled_numbers import scheduled_numbers
from services.telemetry import metrics

SAMPLE_DAYS = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    name: str
    job_id: str
    display_name: str
    depth: int
    due: int
    processing: int
    stale: int
    failed: int
    dead: int
    oldest_seconds: float
    circuit: str
    circuit_changed_at: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    paused_reason: str | None
    batch_size: int | None
    concurrency: int  # this and the next three: from the queue's own schedule
    run_budget_seconds: float
    item_timeout_seconds: float
    max_attempts: int
    last_run_at: datetime | None
    totals: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Sample:
    sampled_at: datetime
    depth: int
    processing: int
    failed: int
    dead: int
    oldest_seconds: float
    succeeded: int
    retried: int
    unsuccessful: int


class QueueOverview:
    def __init__(self, db: DatabaseConnection, settings: Settings) -> None:
        self._db, self._settings = db, settings

    def look(self) -> list[QueueView]:
        """In the order of the pipeline."""
        return self._views(queues.all())

    def look_at(self, queue: Queue[Any]) -> QueueView:
        return self._views([queue])[0]

    def watch(self) -> None:
        """For metrics and charts. Every replica calls it; the first sample of each minute is kept."""
        views = self.look()
        for view in views:
            metrics.queue_seen(
                view.name,
                depth=view.depth,
                processing=view.processing,
                stale=view.stale,
                failed=view.failed,
                dead=view.dead,
                oldest_seconds=view.oldest_seconds,
                leaked=abandoned.count(view.name),
            )
            paused, circuit = view.paused_at is not None, CircuitStatus(view.circuit)
            metrics.queue_state(view.name, circuit, paused=paused, batch_size=view.batch_size)
        with self._db.transaction() as connection:
            for view in views:
                connection.exec_driver_sql(SAMPLE, _sample(view))

    def samples(self, queue: str, since: datetime, step_seconds: int = 1) -> list[Sample]:
        """Oldest first; the last one of each step."""
        values = {"queue": queue, "since": since, "step": step_seconds}
        with self._db.transaction() as connection:
            rows = connection.exec_driver_sql(SAMPLES, values)
            return [Sample(**row._mapping) for row in rows]

    def cleanup(self, days: int) -> None:
        DeadLetters(self._db).cleanup(days)
        with self._db.transaction() as connection:
            connection.exec_driver_sql(OLD_SAMPLES, {"days": min(days, SAMPLE_DAYS)})

    def _views(self, those: Sequence[Queue[Any]]) -> list[QueueView]:
        states, dead = QueueStates(self._db).all(), DeadLetters(self._db).count()
        with self._db.transaction() as connection:
            scheduled = scheduled_numbers(connection)
        return [
            self._view(queue, states.get(queue.name), dead.get(queue.name, 0), scheduled.get(queue.name, {}))
            for queue in those
        ]

    def _view(
        self, queue: Queue[Any], state: QueueState | None, dead: int, scheduled: Mapping[UUID, QueueNumbers]
    ) -> QueueView:
        limits = queue.scheduled_limits(self._settings, scheduled)
        with self._db.transaction() as connection:
            numbers = queue.table.counts(connection, limits.stale_after_seconds)
        return QueueView(
            name=queue.name,
            job_id=queue.job_id,
            display_name=queue.display_name,
            depth=numbers.depth,
            due=numbers.due,
            processing=numbers.processing,
            stale=numbers.stale,
            failed=numbers.failed,
            dead=dead,
            oldest_seconds=numbers.oldest_seconds,
            circuit=state.circuit.value if state else "closed",
            circuit_changed_at=state.circuit_changed_at if state else None,
            paused_at=state.paused_at if state else None,
            paused_by=state.paused_by if state else None,
            paused_reason=state.paused_reason if state else None,
            batch_size=state.batch_size if state else None,
            concurrency=limits.concurrency,
            run_budget_seconds=limits.run_budget_seconds,
            item_timeout_seconds=limits.item_timeout_seconds,
            max_attempts=limits.max_attempts,
            last_run_at=state.last_run_at if state else None,
            totals=state.totals if state else {},
        )


def _sample(view: QueueView) -> dict[str, Any]:
    totals = view.totals
    return {
        "queue": view.name,
        "depth": view.depth,
        "processing": view.processing,
        "failed": view.failed,
        "dead": view.dead,
        "oldest_seconds": view.oldest_seconds,
        "succeeded": totals.get("succeeded", 0),
        "retried": totals.get("retried", 0),
        "unsuccessful": totals.get("failed", 0) + totals.get("dead", 0),
    }


_FIELDS = "depth, processing, failed, dead, oldest_seconds, succeeded, retried, unsuccessful"

SAMPLE = f"""
INSERT INTO workflow_samples (queue, sampled_at, {_FIELDS})
VALUES (%(queue)s, date_trunc('minute', now()), %(depth)s, %(processing)s, %(failed)s, %(dead)s, %(oldest_seconds)s,
        %(succeeded)s, %(retried)s, %(unsuccessful)s)
ON CONFLICT DO NOTHING
"""  # noqa: S608

SAMPLES = f"""
SELECT * FROM (
    SELECT DISTINCT ON (floor(extract(epoch FROM sampled_at) / %(step)s)) sampled_at, {_FIELDS} FROM workflow_samples
    WHERE queue = %(queue)s AND sampled_at >= %(since)s
    ORDER BY floor(extract(epoch FROM sampled_at) / %(step)s), sampled_at DESC
) AS last_of_step ORDER BY sampled_at
"""  # noqa: S608

OLD_SAMPLES = "DELETE FROM workflow_samples WHERE sampled_at < now() - make_interval(days => %(days)s)"
