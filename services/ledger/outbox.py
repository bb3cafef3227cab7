"""Which waiting rows are announced to the broker of the fleet: when they are due, and again until they are taken.

An announcement starts nothing. A row is marked before its message is sent, in a statement of its own: while a broker
hangs, no row is locked. A process that dies in between costs the row one pause.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from uuid import UUID

from database.arrays import uuid_array
from database.connection import DatabaseConnection
from services.ledger import outbox_sql as sql
from services.ledger.history_sql import NOTIFY_PENDING

MAX_BATCH = 500


@dataclass(frozen=True, slots=True)
class Announced:
    """Rows that were marked."""

    ids: list[UUID]
    by_queue: Counter[str]


class Outbox:
    """For one thread."""

    def __init__(self, db: DatabaseConnection, queues: Collection[str], heartbeat_timeout_seconds: float) -> None:
        self._connection, self._queues, self._timeout = db.dedicated(), sorted(queues), heartbeat_timeout_seconds

    def take(self, limit: int = MAX_BATCH) -> Announced:
        """Mark rows whose time has come. Two replicas never mark the same row."""
        rows = self._connection.run(sql.TAKE, {"queues": self._queues, "limit": limit, "timeout": self._timeout})
        return Announced([row.execution_id for row in rows], Counter(row.queue for row in rows))

    def waiting(self, queue: str, most: int) -> int:
        """How many rows are due in it; counted up to `most`."""
        (row,) = self._connection.run(sql.COUNT_WAITING, {"queue": queue, "most": most})
        return int(row.waiting)

    def put_back(self, ids: Iterable[UUID]) -> None:
        self._connection.run(sql.PUT_BACK, {"ids": uuid_array(ids)})

    def close(self) -> None:
        self._connection.close()


def announce_next(db: DatabaseConnection, schedule_id: UUID, limit_keys: Collection[str] = ()) -> None:
    """A waiting row of this schedule, and one of each limit key, are due for an announcement: an end has made room."""
    if db.run_alone(sql.ANNOUNCE_NEXT, {"schedule_id": schedule_id, "keys": sorted(limit_keys)}):
        db.run_alone(NOTIFY_PENDING, {})
