"""The overview: recent executions, their lateness, running executions, and items that need attention.

Every query reads a bounded part of the tables, so it stays fast with a long history and many schedules.
"""

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from database.connection import DatabaseConnection
from services.insight import overview_sql as sql
from services.insight.hourly_audit import last_day
from services.insight.limits import STOPPED_WORDS, LimitUses
from services.insight.unhandled_jobs import unhandled_jobs, unmet_needs
from services.ledger.needs import JOB
from services.wording.commands import as_called_here

LATE_SECONDS = 120
SILENT_SECONDS = 60
GONE_SECONDS = 3600  # after this time a dead replica has been replaced, or is not needed
LETTER_HOURS = 24
MOST_OF_A_KIND = 20
MINUTE = timedelta(minutes=1)


class Trouble(StrEnum):
    """Reasons for attention, worst first."""

    UNACCOUNTED = "unaccounted"  # the hourly audit found fires without a row, or with two
    STUCK = "stuck"  # claimed or running on a replica without heartbeats
    LATE = "late"  # due, but not claimed
    IDLE = "idle"  # a live replica that claims nothing
    SILENT = "silent"  # a replica that died without a shutdown
    UNHANDLED = "unhandled"  # a job type without a handler on a live replica
    UNABLE = "unable"  # executions that wait for what no live replica has
    HELD = "held"  # executions that have waited very long for a limit
    STOPPED = "stopped"  # a limit with max_running 0
    CIRCUIT = "circuit"  # a queue whose circuit breaker is open
    PARKED = "parked"  # an invalid schedule that does not fire
    FAILING = "failing"  # its last run failed
    DEAD = "dead"  # a queue with new dead letters
    PAUSED = "paused"  # a queue paused by an operator
    WAITING = "waiting"  # a manual run or a retry without a free worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    trouble: Trouble
    label: str
    words: str
    since: datetime | None
    schedule_id: UUID | None
    execution_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Minute:
    """One bar of a chart: the executions due in one minute, or in a longer part of a window, and their lateness."""

    at: datetime
    outcomes: dict[str, int] = field(default_factory=dict)
    p50_seconds: float | None = None
    p99_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """One execution in the timeline."""

    execution_id: UUID
    schedule_id: UUID | None
    label: str
    instance_id: str
    status: str
    attempt: int
    started_at: datetime
    completed_at: datetime | None


class Overview:
    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def minutes(self, minutes: int = 60) -> list[Minute]:
        """The last minutes, oldest first, including minutes in which nothing was due."""
        found: dict[datetime, Minute] = {}
        for row in self._rows(sql.MINUTES, minutes=minutes):
            minute = found.setdefault(row.at, Minute(row.at))
            if row.status is not None:
                minute.outcomes[row.status] = row.executions
            elif row.lateness is not None:
                found[row.at] = Minute(row.at, minute.outcomes, *row.lateness)
        last: datetime = self._rows("SELECT date_trunc('minute', now()) AS now")[0].now
        instants = [last - back * MINUTE for back in range(minutes, -1, -1)]
        return [found.get(at, Minute(at)) for at in instants]

    def attention(self, limit: int = MOST_OF_A_KIND, failing: int = MOST_OF_A_KIND) -> list[Attention]:
        return [
            *self._unaccounted(),
            *self._stuck(limit),
            *self._late(limit),
            *self._idle(limit),
            *self._silent(limit),
            *self._unhandled(limit),
            *self._unable(limit),
            *self._held(limit),
            *self._stopped(limit),
            *self._circuits(limit),
            *self._parked(limit),
            *self._failing(failing),
            *self._dead(limit),
            *self._paused(limit),
            *self._waiting(limit),
        ]

    def timeline(self, minutes: int = 60, limit: int = 2000) -> list[Bar]:
        """Recent executions, newest first."""
        return [Bar(**row._mapping) for row in self._rows(sql.TIMELINE, minutes=minutes, limit=limit)]

    def calendar(self, schedule_id: UUID, timezone: str, days: int = 365) -> dict[date, dict[str, int]]:
        """The number of fires by local day and outcome."""
        found: dict[date, dict[str, int]] = {}
        for row in self._rows(sql.CALENDAR, schedule_id=schedule_id, timezone=timezone, days=days):
            found.setdefault(row.day, {})[row.status] = row.executions
        return found

    # --- what needs attention ---

    def _unaccounted(self) -> list[Attention]:
        fact = last_day(self._db)
        if fact is None or fact.is_clean:
            return []
        words = as_called_here(f"{fact.words}: manage.py audit lists them")
        return [
            Attention(
                trouble=Trouble.UNACCOUNTED, label="hourly audit", words=words, since=fact.wrong_since, schedule_id=None
            )
        ]

    def _stuck(self, limit: int) -> list[Attention]:
        words = "{0.status} by {0.instance_id}, which has stopped sending heartbeats"
        rows = self._rows(sql.STUCK, seconds=SILENT_SECONDS, limit=limit)
        return [_attention(Trouble.STUCK, row, words.format(row), row.execution_id) for row in rows]

    def _late(self, limit: int) -> list[Attention]:
        rows = self._rows(sql.LATE, seconds=LATE_SECONDS, limit=limit)
        return [_attention(Trouble.LATE, row, "is due, but no replica has claimed it") for row in rows]

    def _idle(self, limit: int) -> list[Attention]:
        rows = self._rows(sql.IDLE, seconds=SILENT_SECONDS, limit=limit)
        return [
            _attention(Trouble.IDLE, row, f"is alive, but claims nothing: {'; '.join(row.reasons)}") for row in rows
        ]

    def _silent(self, limit: int) -> list[Attention]:
        rows = self._rows(sql.SILENT, seconds=SILENT_SECONDS, gone=GONE_SECONDS, limit=limit)
        return [
            _attention(Trouble.SILENT, row, "has died or lost its connection; the other replicas have taken over")
            for row in rows
        ]

    def _unhandled(self, limit: int) -> list[Attention]:
        return [
            Attention(
                trouble=Trouble.UNHANDLED,
                label=f"job type {jobs.job_type}",
                words=jobs.words,
                since=None,
                schedule_id=jobs.schedule_id,
            )
            for jobs in unhandled_jobs(self._db, SILENT_SECONDS)[:limit]
        ]

    def _unable(self, limit: int) -> list[Attention]:
        return [
            Attention(
                trouble=Trouble.UNABLE,
                label=", ".join(word for word in unmet.needs if not word.startswith(JOB)),
                words=unmet.words,
                since=None,
                schedule_id=unmet.schedule_id,
            )
            for unmet in unmet_needs(self._db, SILENT_SECONDS)[:limit]
        ]

    def _held(self, limit: int) -> list[Attention]:
        return [
            Attention(
                trouble=Trouble.HELD, label=f"limit {held.key}", words=held.words, since=held.since, schedule_id=None
            )
            for held in LimitUses(self._db).held(limit=limit)
        ]

    def _stopped(self, limit: int) -> list[Attention]:
        return [
            Attention(
                trouble=Trouble.STOPPED,
                label=f"limit {stopped.name}",
                words=STOPPED_WORDS + (f": {stopped.note}" if stopped.note else ""),
                since=stopped.since,
                schedule_id=None,
            )
            for stopped in LimitUses(self._db).stopped(limit)
        ]

    def _circuits(self, limit: int) -> list[Attention]:
        words = "its items kept failing; the circuit breaker is {0.circuit}"
        rows = self._rows(sql.CIRCUITS, limit=limit)
        return [_attention(Trouble.CIRCUIT, row, words.format(row).replace("_", " ")) for row in rows]

    def _parked(self, limit: int) -> list[Attention]:
        return [_attention(Trouble.PARKED, row, row.words) for row in self._rows(sql.PARKED, limit=limit)]

    def _failing(self, limit: int) -> list[Attention]:
        return [_attention(Trouble.FAILING, row, row.words) for row in self._rows(sql.FAILING, limit=limit)]

    def _dead(self, limit: int) -> list[Attention]:
        """Counted up to a limit; old dead letters are left out, because an operator decided to keep them."""
        rows = self._rows(sql.DEAD, hours=LETTER_HOURS, limit=limit)
        return [_attention(Trouble.DEAD, row, f"{_letters(row.letters)} since yesterday: {row.error}") for row in rows]

    def _paused(self, limit: int) -> list[Attention]:
        rows = self._rows(sql.PAUSED, limit=limit)
        return [_attention(Trouble.PAUSED, row, f"by {row.paused_by}: {row.paused_reason}") for row in rows]

    def _waiting(self, limit: int) -> list[Attention]:
        rows = self._rows(sql.WAITING, seconds=LATE_SECONDS, limit=limit)
        words = "is waiting for a free worker that serves its queue and has what it needs"
        return [_attention(Trouble.WAITING, row, words, row.execution_id) for row in rows]

    # --- reading ---

    def _rows(self, statement: str, **values: Any) -> list[Row[Any]]:
        with self._db.transaction() as connection:
            return list(connection.exec_driver_sql(statement, values or None))


def _attention(trouble: Trouble, row: Row[Any], words: str, execution_id: UUID | None = None) -> Attention:
    return Attention(
        trouble=trouble,
        label=row.label,
        words=words,
        since=row.since,
        schedule_id=row.schedule_id,
        execution_id=execution_id,
    )


def _letters(number: int) -> str:
    if number > sql.MOST_LETTERS:
        return f"more than {sql.MOST_LETTERS} dead letters"
    return "1 dead letter" if number == 1 else f"{number} dead letters"
