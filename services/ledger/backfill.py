"""Backfill: inserts a pending row for each fire of a time range that did not succeed.

A backfill is the next attempt at its fire, with the fire's own instant and idempotency key, so the unique key of a fire
applies to it like to any other attempt. Postgres' clock decides what is past. Start reading at `Backfills.request`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row

from config import Settings
from database.connection import DatabaseConnection
from enhanced_scheduler.texts import MAX_WORD, storable
from services.errors import InvalidInput, Problem, ScheduleNotFound
from services.ledger import backfill_sql as sql
from services.ledger.history_sql import NOTIFY_PENDING
from services.ledger.verdicts import Tolerances
from services.triggers import spread_offset, trigger_of

USUAL_LIMIT, HIGHEST_LIMIT = 100, 1000
INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class BackfilledFire:
    scheduled_for: datetime
    attempt: int
    execution_id: UUID | None = None  # None: it would be made


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """The fires that will run again, oldest first, and the number of other fires of each kind."""

    schedule_id: UUID
    dry_run: bool
    fires: list[BackfilledFire]
    succeeded: int
    open: int  # an attempt waits or runs
    not_due: int  # spread: they have their ordinary chance still


class Backfills:
    """Safe to share between threads."""

    def __init__(self, db: DatabaseConnection, history: timedelta) -> None:
        self._db, self._history = db, history

    @classmethod
    def from_settings(cls, db: DatabaseConnection, settings: Settings) -> "Backfills":
        return cls(db, Tolerances.from_settings(settings).history)

    def request(
        self,
        schedule_id: UUID,
        since: datetime,
        until: datetime,
        actor: str,
        *,
        limit: int = USUAL_LIMIT,
        dry_run: bool = False,
    ) -> Backfill:
        """Let replicas run the fires t of the present timing with since <= t < until, also of a disabled schedule.

        Raises InvalidInput, and writes nothing, if there is none or there are more than `limit`.
        """
        if not 1 <= limit <= HIGHEST_LIMIT:
            raise InvalidInput(Problem("limit", f"must be between 1 and {HIGHEST_LIMIT}, got {limit}"))
        with self._db.transaction() as connection:
            connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
            statement = sql.READ if dry_run else sql.LOCK
            row = connection.exec_driver_sql(statement, {"schedule_id": schedule_id}).first()
            if row is None:
                raise ScheduleNotFound(schedule_id)
            self._check_range(since, until, row.now)
            fires = _fires(row, since, until, limit)
            due = [at for at in fires if at + spread_offset(schedule_id, row.spread_seconds) <= row.now]
            attempts = connection.exec_driver_sql(sql.ATTEMPTS, {"schedule_id": schedule_id, "fires": due})
            known = {attempt.scheduled_for: attempt for attempt in attempts}
            succeeded = sum(each.succeeded for each in known.values())
            wanted = [
                BackfilledFire(at, known[at].last + 1 if at in known else 1)
                for at in due
                if at not in known or not (known[at].succeeded or known[at].is_open)
            ]
            made = wanted if dry_run or not wanted else _insert(connection, schedule_id, wanted, row.now, actor)
        return Backfill(
            schedule_id=schedule_id,
            dry_run=dry_run,
            fires=made,
            succeeded=succeeded,
            open=len(due) - succeeded - len(made),
            not_due=len(fires) - len(due),
        )

    def _check_range(self, since: datetime, until: datetime, now: datetime) -> None:
        for name, instant in (("from", since), ("to", until)):
            if instant.tzinfo is None:
                raise InvalidInput(Problem(name, f"needs a UTC offset, as in {instant.isoformat()}+00:00"))
        if since >= until:
            raise InvalidInput(Problem("from", f"must be before {_iso(until)}, got {_iso(since)}"))
        if until > now:
            raise InvalidInput(
                Problem("to", f"must lie in the past: only past fires can be backfilled, and it is now {_iso(now)}")
            )
        if since < now - self._history:
            why = "earlier history has been deleted (HISTORY_RETENTION_DAYS)"
            raise InvalidInput(Problem("from", f"must not be before {_iso(now - self._history)}: {why}"))


def _fires(row: Row[Any], since: datetime, until: datetime, limit: int) -> list[datetime]:
    trigger = trigger_of(row, suggest=True)
    fires = list(islice(trigger.between(since - INSTANT, until - INSTANT), limit + 1))
    if not fires:
        raise InvalidInput(
            Problem("from", f"no fire between {_iso(since)} and {_iso(until)}: the schedule runs {trigger.describe()}")
        )
    if len(fires) > limit:
        more = f", or a limit of up to {HIGHEST_LIMIT}" if limit < HIGHEST_LIMIT else ""
        way_out = f"take {_iso(fires[limit])} as the end and go on from there{more}"
        raise InvalidInput(Problem("limit", f"there are more than {limit} fires; {way_out}"))
    return fires


def _insert(
    connection: Connection, schedule_id: UUID, wanted: list[BackfilledFire], now: datetime, actor: str
) -> list[BackfilledFire]:
    values = {
        "schedule_id": schedule_id,
        "fires": [fire.scheduled_for for fire in wanted],
        "attempts": [fire.attempt for fire in wanted],
        "now": now,
        "actor": storable(actor, MAX_WORD),
    }
    rows = connection.exec_driver_sql(sql.INSERT, values).all()
    connection.exec_driver_sql(NOTIFY_PENDING)
    return sorted((BackfilledFire(*row) for row in rows), key=lambda fire: fire.scheduled_for)


def _iso(instant: datetime) -> str:
    return instant.isoformat(timespec="seconds")
