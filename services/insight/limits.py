"""Limits across schedules at the moment: which executions run and wait for which key, and for how long.

A waiting row carries the key that it waits for (`limit:<key>`), an execution that lives carries all its keys.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from database.connection import DatabaseConnection
from services.insight import limits_sql as sql
from services.ledger.limits_sql import LIMIT, MARK
from services.schedules.field_rules import ANY
from services.schedules.limits import LimitRecord
from services.wording.counts import counted
from services.wording.durations import duration
from services.wording.short_ids import ID_PREFIX

STOPPED_WORDS = "lets nothing start (max_running 0)"
HELD_SECONDS = 3600
MOST_EXECUTIONS = 50
MOST_IN_METRICS = 100  # limits


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUse:
    """One key: running and waiting executions, and the limit that applies to it."""

    key: str
    limit: str | None  # None: it was deleted or disabled a moment ago
    max_running: int | None
    running: int  # also what is claimed and about to start
    waiting: int  # MOST_WAITING + 1: more than that
    oldest_due_at: datetime | None
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    """Running and waiting executions of one limit; a pattern has several keys."""

    running: int = 0
    waiting: int = 0
    waiting_is_cut: bool = False  # there are more than were counted
    oldest_due_at: datetime | None = None
    oldest_seconds: float | None = None
    keys: list[KeyUse] = field(default_factory=list)

    @property
    def waiting_words(self) -> str:
        return f"more than {self.waiting:,}" if self.waiting_is_cut else f"{self.waiting:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedExecution:
    """An execution that runs by, or waits for, a key."""

    execution_id: UUID
    schedule_id: UUID | None
    label: str
    key: str
    status: str
    instance_id: str | None
    started_at: datetime | None
    due_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Executions that have waited too long for one key."""

    key: str
    limit: str | None
    max_running: int | None
    waiting: int
    since: datetime
    seconds: float

    @property
    def words(self) -> str:
        wait = counted(self.waiting, "execution has waited", "executions have waited")
        more = "more than " if self.waiting >= sql.MOST_OLD else ""
        limit = "" if self.max_running is None else f" (max_running {self.max_running})"
        return f"{more}{wait} too long for limit {self.key}{limit}: the first for {duration(self.seconds)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfKey:
    """The limit that applies to one key, and how much of it is used."""

    limit: str
    max_running: int
    running: int
    kept_for: str | None = None  # an execution that has waited for several limits at once

    def words(self, key: str) -> str:
        by = "" if self.limit == key else f" by {self.limit}"
        kept = "" if self.kept_for is None else f", one place kept for execution {self.kept_for[:ID_PREFIX]}"
        return f"{self.running} of {self.max_running} running{by}{kept}"


@dataclass(frozen=True, slots=True)
class Freed:
    """What the deletion of a limit means."""

    schedules: int  # whose executions it holds back now
    then: str | None  # the limit that counts for them afterwards; None: no limit

    @property
    def words(self) -> str:
        afterwards = "no longer limited by this key" if self.then is None else f"limited by {self.then} instead"
        return f"{counted(self.schedules, 'schedule')} would be {afterwards}"


class LimitUses:
    """Read-only. Safe to share between threads."""

    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def look(self) -> dict[str, LimitUse]:
        """By limit; one that neither runs nor waits anywhere is left out."""
        by_limit: dict[str, list[KeyUse]] = defaultdict(list)
        rows = self._rows(sql.USES)
        for row in rows:
            if row.name is not None:
                by_limit[row.name].append(_key_use(row))
        all_keys = sum(row.waiting > 0 for row in rows) < sql.MOST_KEYS
        return {name: _together(keys, all_keys=all_keys) for name, keys in by_limit.items()}

    def executions(self, keys: Iterable[str], limit: int = MOST_EXECUTIONS) -> list[LimitedExecution]:
        """What runs first, then what waits, longest first."""
        rows = self._rows(sql.EXECUTIONS, keys=list(keys), limit=limit)
        return [LimitedExecution(**row._mapping) for row in rows]

    def schedules(self) -> dict[str, int]:
        """How many schedules each limit applies to. Reads all schedules."""
        return {row.name: row.schedules for row in self._rows(sql.SCHEDULES)}

    def held(self, seconds: float = HELD_SECONDS, limit: int = MOST_EXECUTIONS) -> list[Held]:
        """Executions that have waited for longer than that, by key, longest first."""
        rows = self._rows(sql.HELD, seconds=seconds, limit=limit)
        return [
            Held(
                key=row.key,
                limit=row.name,
                max_running=row.max_running,
                waiting=row.waiting,
                since=row.since,
                seconds=row.seconds,
            )
            for row in rows
        ]

    def stopped(self, limit: int = MOST_EXECUTIONS) -> list[Row[Any]]:
        """Limits that let nothing run, since when, and their notes."""
        return self._rows(sql.STOPPED, limit=limit)

    def waits_in_words(self, key: str, seconds: float) -> str:
        """`40 s for limit customer:42 (2 of 2 running)`."""
        found = self.of_key(key)
        now = "which no longer exists" if found is None else found.words(key)
        return f"{duration(round(seconds))} for limit {key} ({now})"

    def of_key(self, key: str) -> OfKey | None:
        row = next(iter(self._rows(sql.OF_KEY, key=key)), None)
        if row is None:
            return None
        return OfKey(limit=row.name, max_running=row.max_running, running=row.running, kept_for=row.kept_for)

    def freed_without(self, limit: LimitRecord) -> Freed:
        """What happens to its schedules when it is deleted."""
        if not limit.enabled:
            return Freed(0, None)
        values = {"beginning": limit.name.removesuffix(ANY), "name": limit.name}
        then = next(iter(self._rows(sql.NEXT, **values)), None)
        return Freed(self.schedules().get(limit.name, 0), None if then is None else then.name)

    def figures(self, limit: int = MOST_IN_METRICS) -> dict[str, tuple[int, int, float]]:
        """Limit -> running, waiting, and the seconds for which the oldest has waited. Those with most waiting only."""
        found = self.look()
        oldest: dict[str, float] = defaultdict(float)
        for held in self.held(0, sql.MOST_OLD):
            if held.limit is not None:
                oldest[held.limit] = max(oldest[held.limit], held.seconds)
        busiest = sorted(found, key=lambda name: (-found[name].waiting, -found[name].running, name))[:limit]
        return {
            name: (found[name].running, found[name].waiting, max(oldest[name], found[name].oldest_seconds or 0.0))
            for name in busiest
        }

    def _rows(self, statement: str, **values: Any) -> list[Row[Any]]:
        with self._db.transaction() as connection:
            return list(connection.exec_driver_sql(statement, values or None))


def key_waited_for(reason: str | None, details: Mapping[str, Any] | None) -> str | None:
    """The key that an execution waits for, or waited for before it ran."""
    if reason is not None and reason.startswith(LIMIT):
        return reason.removeprefix(LIMIT)
    key = (details or {}).get(MARK)
    return None if key is None else str(key)


def _key_use(row: Row[Any]) -> KeyUse:
    return KeyUse(
        key=row.key,
        limit=row.name,
        max_running=row.max_running,
        running=row.running,
        waiting=row.waiting,
        oldest_due_at=row.oldest_due_at,
        oldest_seconds=None if row.oldest_seconds is None else max(row.oldest_seconds, 0.0),
    )


def _together(keys: list[KeyUse], *, all_keys: bool) -> LimitUse:
    waiting = [min(key.waiting, sql.MOST_WAITING) for key in keys]
    oldest = min((key for key in keys if key.oldest_due_at), key=lambda key: str(key.oldest_due_at), default=None)
    return LimitUse(
        running=sum(key.running for key in keys),
        waiting=sum(waiting),
        waiting_is_cut=not all_keys or any(key.waiting > sql.MOST_WAITING for key in keys),
        oldest_due_at=oldest.oldest_due_at if oldest else None,
        oldest_seconds=oldest.oldest_seconds if oldest else None,
        keys=keys,
    )
