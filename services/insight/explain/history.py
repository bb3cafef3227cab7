"""The facts about a schedule at some moment: its definition, the change behind it, its rows, the replicas."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from database.connection import DatabaseConnection
from database.models import JobExecution
from services.errors import InvalidSchedule
from services.insight.explain import history_sql as sql
from services.insight.limits import LimitUses
from services.insight.unhandled_jobs import UnmetNeeds, unmet_needs_of
from services.ledger.fires import Policy
from services.ledger.listing import ExecutionRecord, select_records, to_execution
from services.schedules.changes import Change
from services.triggers import Trigger, spread_offset, trigger_of


@dataclass(frozen=True, slots=True)
class Definition:
    """A past or present definition of a schedule."""

    schedule_id: UUID
    row: Row[Any]

    @property
    def label(self) -> str:
        return str(self.row.name or self.row.domain)

    @property
    def spread(self) -> timedelta:
        return spread_offset(self.schedule_id, self.row.spread_seconds)

    @property
    def trigger(self) -> Trigger:
        """Raises InvalidSchedule for a definition that makes no sense."""
        return trigger_of(self.row, suggest=True)

    def policy(self, default: Policy) -> Policy:
        own = {name: getattr(self.row, name) for name in Policy.__dataclass_fields__}
        return replace(default, **{name: value for name, value in own.items() if value is not None})

    def fires_at(self, instant: datetime) -> bool:
        try:
            return self.trigger.fires_at(instant)
        except InvalidSchedule:
            return False


@dataclass(frozen=True, slots=True)
class Held:
    """The definition in effect at a moment, None if there was no schedule; `change` is the change behind it."""

    definition: Definition | None
    change: Change | None = None
    ended_by: Change | None = None  # the next change after the moment


@dataclass(frozen=True, slots=True)
class Circumstances:
    now: datetime
    live_replicas: int
    earliest_started_at: datetime | None
    last_heartbeat_at: datetime | None
    watched: list[list[datetime]]  # stretches, each with its beginning and its end

    def is_watched(self, due_at: datetime) -> bool:
        """Whether a gap scan has verified that the schedule's fires due at this moment have rows."""
        return any(since < due_at <= until for since, until in self.watched)


class ScheduleHistory:
    """Read-only. Safe to share between threads."""

    def __init__(self, db: DatabaseConnection, heartbeat_timeout_seconds: float) -> None:
        self._db, self._timeout = db, heartbeat_timeout_seconds
        self.limits = LimitUses(db)

    def held_at(self, schedule_id: UUID, at: datetime) -> Held:
        before = self._first(sql.CHANGE_BEFORE, id=schedule_id, at=at)
        after = self._first(sql.CHANGE_AFTER, id=schedule_id, at=at)
        ended_by = _change(after)
        if before is not None:
            gone = before.operation in ("delete", "truncate")
            return Held(None if gone else Definition(schedule_id, before), _change(before), ended_by)
        if after is not None:  # the log no longer contains what was before, unless there was nothing
            return Held(None if after.operation == "insert" else Definition(schedule_id, after), None, ended_by)
        present = self.present(schedule_id)
        existed = present is not None and present.row.created_at < at
        return Held(present if existed else None)

    def present(self, schedule_id: UUID) -> Definition | None:
        row = self._first(sql.PRESENT, id=schedule_id)
        return None if row is None else Definition(schedule_id, row)

    def change_of(self, schedule_id: UUID, field: str, before: datetime) -> Change | None:
        """The change that gave this field its value at that time."""
        return _change(self._first(sql.CHANGE_OF_FIELD, id=schedule_id, field=field, at=before))

    def last_change(self, schedule_id: UUID, before: datetime) -> Change | None:
        return _change(self._first(sql.CHANGE_BEFORE, id=schedule_id, at=before))

    def circumstances(self, schedule_id: UUID) -> Circumstances:
        row = self._rows(sql.CIRCUMSTANCES, id=schedule_id, timeout=self._timeout)[0]
        return Circumstances(row.now, row.live, row.earliest, row.last_heartbeat_at, row.watched)

    def executions(self, schedule_id: UUID, scheduled_for: datetime) -> list[ExecutionRecord]:
        found = (JobExecution.schedule_id == schedule_id, JobExecution.scheduled_for == scheduled_for)
        with self._db.transaction() as connection:
            rows = connection.execute(select_records().where(*found).order_by(JobExecution.attempt))
            return [to_execution(row) for row in rows]

    def summary_covering(self, schedule_id: UUID, at: datetime) -> ExecutionRecord | None:
        return self._record(self._first(sql.SUMMARY, id=schedule_id, at=at))

    def _record(self, row: Row[Any] | None) -> ExecutionRecord | None:
        if row is None:
            return None
        with self._db.transaction() as connection:
            query = select_records().where(JobExecution.execution_id == row.execution_id)
            return to_execution(connection.execute(query).one())

    def unmet_needs_of(self, record: ExecutionRecord) -> UnmetNeeds | None:
        return unmet_needs_of(self._db, record.execution_id, self._timeout)

    def blockers(self, record: ExecutionRecord, at: datetime, reach_seconds: int) -> list[Row[Any]]:
        values = {"id": record.schedule_id, "execution_id": record.execution_id, "at": at, "reach": reach_seconds}
        return self._rows(sql.BLOCKERS, **values)

    def coalesced_into(self, record: ExecutionRecord) -> Row[Any] | None:
        values = {"id": record.schedule_id, "at": record.scheduled_for, "created_at": record.created_at}
        return self._first(sql.COALESCED_INTO, **values)

    def coalesced_behind(self, record: ExecutionRecord) -> ExecutionRecord | None:
        values = {"id": record.schedule_id, "at": record.scheduled_for, "created_at": record.created_at}
        return self._record(self._first(sql.COALESCED_BEHIND, **values))

    def failed_before(self, record: ExecutionRecord) -> Row[Any] | None:
        return self._first(sql.FAILED_BEFORE, id=record.schedule_id, at=record.scheduled_for)

    def running_at(self, at: datetime) -> tuple[int, int]:
        """How many executions were running at that moment, and on how many replicas."""
        row = self._rows(sql.BUSY, at=at)[0]
        return row.running, row.replicas

    def _first(self, statement: str, **values: Any) -> Row[Any] | None:
        return next(iter(self._rows(statement, **values)), None)

    def _rows(self, statement: str, **values: Any) -> list[Row[Any]]:
        with self._db.transaction() as connection:
            return list(connection.exec_driver_sql(statement, values))


def _change(row: Row[Any] | None) -> Change | None:
    if row is None:
        return None
    return Change(**{name: getattr(row, name) for name in Change.__dataclass_fields__})
