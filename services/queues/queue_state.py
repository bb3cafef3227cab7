"""State of each queue that all replicas share, in `workflow_queues`: pause, circuit breaker, batch size, totals."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row

from database.connection import DatabaseConnection
from database.workflow_statuses import CircuitStatus
from enhanced_scheduler.texts import storable
from services.queues.circuit import Breaker, Circuit, Entry
from services.queues.outcomes import MAX_ERROR_CHARACTERS

TOTALS = ("claimed", "succeeded", "retried", "failed", "dead", "lost", "stale")


@dataclass(frozen=True, slots=True)
class QueueState:
    queue: str
    paused_at: datetime | None
    paused_by: str | None
    paused_reason: str | None
    circuit: CircuitStatus
    circuit_changed_at: datetime
    recent: str
    batch_size: int | None
    last_run_at: datetime | None
    totals: Mapping[str, int]

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether a run may start, and the queue's state at that moment."""

    entry: Entry
    state: QueueState


class QueueStates:
    """Each call is one short transaction on one row."""

    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def enter(self, queue: str, breaker: Breaker) -> Permission:
        """May a run start? After the cool-down the first run probes, and the others skip."""
        with self._db.transaction() as connection:
            state, now = self._lock(connection, queue)
            if state.is_paused:
                return Permission(Entry.SKIP, state)
            entry, circuit = _circuit(state).entry(now, breaker)
            if entry is not Entry.SKIP:
                self._write(connection, queue, circuit, "last_run_at = clock_timestamp()")
            return Permission(entry, state)

    def report(
        self, queue: str, breaker: Breaker, marks: str, totals: Mapping[str, int], batch_size: int | None
    ) -> QueueState:
        """Add what a run has done since its last report; returns the state that it must obey from now on."""
        with self._db.transaction() as connection:
            state, now = self._lock(connection, queue)
            circuit = _circuit(state).after(marks, now, breaker)
            sums = ", ".join(f"{name} = {name} + %({name})s" for name in TOTALS)
            values = {name: totals.get(name, 0) for name in TOTALS} | {"batch_size": batch_size}
            return self._write(
                connection, queue, circuit, f"batch_size = coalesce(%(batch_size)s, batch_size), {sums}", values
            )

    def not_probed(self, queue: str, breaker: Breaker) -> None:
        with self._db.transaction() as connection:
            state, now = self._lock(connection, queue)
            self._write(connection, queue, _circuit(state).not_probed(now, breaker))

    def pause(self, queue: str, reason: str, by: str) -> QueueState:
        """Current runs stop within seconds. A queue that is already paused keeps its first reason."""
        with self._db.transaction() as connection:
            self._lock(connection, queue)
            values = {"queue": queue, "reason": storable(reason, MAX_ERROR_CHARACTERS), "by": by}
            return _state(connection.exec_driver_sql(PAUSE, values).one())

    def resume(self, queue: str) -> QueueState:
        """Also closes the circuit: an operator who resumes a queue has fixed the cause."""
        with self._db.transaction() as connection:
            self._lock(connection, queue)
            return _state(connection.exec_driver_sql(RESUME, {"queue": queue}).one())

    def all(self) -> dict[str, QueueState]:
        with self._db.transaction() as connection:
            return {row.queue: _state(row) for row in connection.exec_driver_sql("SELECT * FROM workflow_queues")}

    def _lock(self, connection: Connection, queue: str) -> tuple[QueueState, datetime]:
        connection.exec_driver_sql(
            "INSERT INTO workflow_queues (queue) VALUES (%(queue)s) ON CONFLICT DO NOTHING", {"queue": queue}
        )
        row = connection.exec_driver_sql(LOCK, {"queue": queue}).one()
        return _state(row), row.now

    def _write(
        self,
        connection: Connection,
        queue: str,
        circuit: Circuit,
        more: str = "queue = queue",
        values: Mapping[str, Any] | None = None,
    ) -> QueueState:
        statement = f"""
            UPDATE workflow_queues SET circuit = %(circuit)s, circuit_changed_at = %(changed_at)s, recent = %(recent)s,
                {more}
            WHERE queue = %(queue)s RETURNING *
        """  # noqa: S608 - `more` is one of ours
        given = {"circuit": circuit.status.value, "changed_at": circuit.changed_at, "recent": circuit.recent}
        return _state(connection.exec_driver_sql(statement, {**given, "queue": queue, **(values or {})}).one())


LOCK = "SELECT *, clock_timestamp() AS now FROM workflow_queues WHERE queue = %(queue)s FOR NO KEY UPDATE"

PAUSE = """
UPDATE workflow_queues SET
    paused_at = coalesce(paused_at, clock_timestamp()), paused_by = coalesce(paused_by, %(by)s),
    paused_reason = coalesce(paused_reason, %(reason)s)
WHERE queue = %(queue)s RETURNING *
"""

RESUME = """
UPDATE workflow_queues SET
    paused_at = NULL, paused_by = NULL, paused_reason = NULL, circuit = 'closed', recent = '',
    circuit_changed_at = clock_timestamp()
WHERE queue = %(queue)s RETURNING *
"""


def _circuit(state: QueueState) -> Circuit:
    return Circuit(state.circuit, state.circuit_changed_at, state.recent)


def _state(row: Row[Any]) -> QueueState:
    return QueueState(
        queue=row.queue,
        paused_at=row.paused_at,
        paused_by=row.paused_by,
        paused_reason=row.paused_reason,
        circuit=CircuitStatus(row.circuit),
        circuit_changed_at=row.circuit_changed_at,
        recent=row.recent,
        batch_size=row.batch_size,
        last_run_at=row.last_run_at,
        totals={name: getattr(row, name) for name in TOTALS},
    )
