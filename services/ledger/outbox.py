"""Which waiting rows are announced to the broker of the fleet: when they are due, and again until they are taken.

An announcement starts nothing. A row is marked before its message is sent, in a statement of its own: while a broker
hangs, no row is locked. A process that dies in between costs the row one pause.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from database.arrays import number_array, uuid_array
from database.connection import DatabaseConnection, DedicatedConnection
from services.ledger import outbox_sql as sql
from services.ledger.history_sql import NOTIFY_PENDING
from services.ledger.limits_sql import LIMIT, LIMIT_LANES, MOST_KEYS
from services.ledger.waiting_sql import MOST_LANES

MAX_BATCH = 500
MOST_LOOKS = 50  # at the next keys, after a change of a limit


@dataclass(frozen=True, slots=True)
class Announced:
    """Rows that were marked."""

    ids: list[UUID]
    by_queue: Counter[str]


class Outbox:
    """For one thread."""

    def __init__(self, db: DatabaseConnection, queues: Collection[str], heartbeat_timeout_seconds: float) -> None:
        self._connection, self._queues, self._timeout = db.dedicated(), sorted(queues), heartbeat_timeout_seconds
        self._limits: tuple[int, Decimal | None] | None = None  # their state when they were last looked at

    def take(self, limit: int = MAX_BATCH) -> Announced:
        """Mark rows whose time has come. Two replicas never mark the same row."""
        rows = self._connection.run(sql.TAKE, {"queues": self._queues, "limit": limit, "timeout": self._timeout})
        return Announced([row.execution_id for row in rows], Counter(row.queue for row in rows))

    def waiting(self, queue: str, most: int) -> int:
        """How many rows are due in it; counted up to `most`."""
        (row,) = self._connection.run(sql.COUNT_WAITING, {"queue": queue, "most": most})
        return int(row.waiting)

    def announce_next(self, schedules: Mapping[UUID, int], limit_keys: Mapping[str, int]) -> None:
        """Of each, so many places are free again; the next `take` marks what waits for them."""
        self._connection.run(sql.ANNOUNCE_NEXT, _values(schedules, limit_keys))

    def room_after_change(self) -> dict[str, int]:
        """If a limit was changed since the last time: the keys with room that rows of the queues wait for."""
        (state,) = self._connection.run(sql.STATE_OF_LIMITS, {})
        before, self._limits = self._limits, (state.n, state.stamps)
        if before == self._limits:
            return {}
        rooms: dict[str, int] = {}
        last: str | None = ""
        for _ in range(MOST_LOOKS):
            values: dict[str, Any] = {
                "reasons": [],
                "after": last,
                "are_ignored": False,
                "limit": MAX_BATCH,
                "most_lanes": MOST_LANES,
            }
            rows = self._connection.run(LIMIT_LANES, values)
            rooms.update((row.reason.removeprefix(LIMIT), row.room) for row in rows if row.queue in self._queues)
            last = rows[0].last
            if rows[0].seen < MOST_KEYS or not last:
                break
        return rooms

    def put_back(self, ids: Iterable[UUID]) -> None:
        self._connection.run(sql.PUT_BACK, {"ids": uuid_array(ids)})

    def close(self) -> None:
        self._connection.close()


def announce_next(connection: DedicatedConnection, schedule_id: UUID, limit_keys: Collection[str] = ()) -> None:
    """A waiting row of this schedule, and one of each limit key, are due for an announcement: an end has made room."""
    if connection.run(sql.ANNOUNCE_NEXT, _values({schedule_id: 1}, dict.fromkeys(limit_keys, 1))):
        connection.run(NOTIFY_PENDING)


def announce_another(connection: DedicatedConnection, queues: Collection[str]) -> None:
    """A row of these queues that was announced is due for it again: its wake found one that was not announced yet.

    Any will do: as many messages as rows is what counts. If they all have theirs, the publisher sends none.
    """
    if connection.run(sql.ANNOUNCE_ANOTHER, {"queues": list(queues)}):
        connection.run(NOTIFY_PENDING)


def _values(schedules: Mapping[UUID, int], limit_keys: Mapping[str, int]) -> dict[str, Any]:
    return {
        "schedule_ids": uuid_array(schedules),
        "siblings": number_array(schedules.values()),
        "keys": list(limit_keys),
        "places": number_array(limit_keys.values()),
    }
