"""Moves the clock from one instant at which something is due to the next. Start reading at `Mover.move_to`.

At each instant the clock waits until every fire that is due has its row, and every row has ended or waits for later. So
nothing is late, and nothing of the replica's own clockwork (misfire grace, catch-up, overlap) sees a gap.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text

from database.connection import DatabaseConnection
from services.cli.virtual_time.clock import VirtualClock
from services.errors import SchedulerError
from services.ledger.history_sql import NOTIFY_PENDING
from services.schedule_repository import ScheduleRepository
from services.schedules.batch import ScheduleRecord
from services.schedules.listing import ScheduleFilter
from services.triggers import spread_offset

MOST_INSTANTS = 10_000
POLL_SECONDS = 0.02
ENDED = """
SELECT e.job_id AS schedule, e.scheduled_for, e.attempt, e.status, e.reason, e.error_message
FROM job_executions AS e
WHERE coalesce(e.completed_at, e.created_at) >= :since AND e.status NOT IN ('pending', 'claimed', 'running')
ORDER BY e.scheduled_for, e.job_id, e.attempt
"""
ROWS = "SELECT schedule_id, scheduled_for FROM job_executions WHERE scheduled_for >= :since"
UNENDED = """
SELECT job_id || ' (' || status || coalesce(', ' || reason, '') || ')' FROM job_executions
WHERE status IN ('claimed', 'running') OR (status = 'pending' AND coalesce(due_at, scheduled_for) <= clock_timestamp())
"""
NEXT_WAITING = "SELECT min(due_at) FROM job_executions WHERE status = 'pending' AND due_at > :after"


class ClockStands(SchedulerError):
    """The clock cannot go on; the message says for what it waits."""


@dataclass(frozen=True, slots=True)
class _Due:
    """A fire, and when it is due: later than that by the schedule's spread."""

    schedule: ScheduleRecord
    scheduled_for: datetime
    at: datetime

    @property
    def key(self) -> tuple[UUID, datetime]:
        return self.schedule.schedule_id, self.scheduled_for


class Mover:
    def __init__(self, db: DatabaseConnection, clock: VirtualClock) -> None:
        self._db, self._clock = db, clock
        self._repository = ScheduleRepository(db)

    def move_to(self, target: datetime, patience_seconds: float) -> list[dict[str, Any]]:
        """What ended on the way, in the order of the fires."""
        begun = dealt_with = self._clock.now()
        for _ in range(MOST_INSTANTS):
            dealt_with = self._wait(dealt_with, patience_seconds)
            following = self._next_instant(dealt_with, target)
            if following is None:
                self._clock.jump_to(target)
                return self._rows(ENDED, since=begun)
            self._clock.jump_to(following)
        raise ClockStands(
            f"more than {MOST_INSTANTS} instants at which something is due before {target.isoformat()}: "
            "move by less, or remove schedules that fire often"
        )

    def _wait(self, since: datetime, patience_seconds: float) -> datetime:
        """Returns an instant up to which everything that was due since then has ended, or waits for later."""
        until = time.monotonic() + patience_seconds
        while True:
            now = self._clock.now()
            open_work = self._open(since, now)
            if not open_work:
                return now
            if time.monotonic() > until:
                raise ClockStands(
                    f"at {now.isoformat(timespec='seconds')} the clock has waited {patience_seconds:g} s for "
                    f"{', '.join(open_work)}"
                )
            self._db.run_alone(NOTIFY_PENDING, {})  # a row that has come due is looked for at once
            time.sleep(POLL_SECONDS)

    def _open(self, since: datetime, now: datetime) -> list[str]:
        due = [fire for schedule in self._enabled() for fire in _fires(schedule, since, now)]
        have = {(row["schedule_id"], row["scheduled_for"]) for row in self._rows(ROWS, since=_earliest(due, now))}
        missing = [f"{fire.schedule.label} (not claimed)" for fire in due if fire.key not in have]
        return missing + [next(iter(row.values())) for row in self._rows(UNENDED)]

    def _next_instant(self, after: datetime, target: datetime) -> datetime | None:
        firsts = [fire.at for schedule in self._enabled() for fire in _first(_fires(schedule, after, target))]
        (waiting,) = self._rows(NEXT_WAITING, after=after)
        if waiting["min"] is not None and waiting["min"] <= target:
            firsts.append(waiting["min"])
        return min(firsts, default=None)

    def _enabled(self) -> list[ScheduleRecord]:
        return [
            record
            for record in self._repository.iter_schedules(ScheduleFilter(enabled=True))
            if record.invalid_reason is None
        ]

    def _rows(self, sql: str, **values: Any) -> list[dict[str, Any]]:
        with self._db.transaction() as connection:
            return [dict(row) for row in connection.execute(text(sql), values).mappings()]


def _fires(schedule: ScheduleRecord, after: datetime, until: datetime) -> Iterator[_Due]:
    """Those that are due in (after, until]."""
    wait = spread_offset(schedule.schedule_id, schedule.spread_seconds)
    for at in schedule.trigger.between(max(after - wait, schedule.effective_from), until - wait):
        yield _Due(schedule, at, at + wait)


def _first(fires: Iterator[_Due]) -> list[_Due]:
    found = next(fires, None)
    return [] if found is None else [found]


def _earliest(due: list[_Due], otherwise: datetime) -> datetime:
    return min((fire.scheduled_for for fire in due), default=otherwise)
