"""The audit as a fact: every hour one replica audits the last closed hour, and a table keeps what it found.

An hour is audited once it is certain: later than every tolerance of the settings, and after a gap scan has checked it.
One that is not clean is audited again, each time after twice the pause: what a replica records late may explain it. The
claim of an hour expires, and the result is written only by the holder of the claim.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event
from typing import Any

from sqlalchemy import Row

from config import Settings
from database.connection import LOCK_TIMEOUT_SECONDS, DatabaseConnection
from services.engine.loops import Loop
from services.insight import hourly_audit_sql as sql
from services.insight.audit import AuditReport, Progress, audit_by
from services.insight.hourly_audit_sql import LONGEST_AUDIT_SECONDS, WRONG
from services.ledger.verdicts import Tolerances
from services.telemetry import metrics
from services.wording.commands import as_called_here
from services.wording.counts import counted

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 60.0
SOON_SECONDS = 1.0  # to the next hour, while several are due
FIRST_AFTER_SECONDS = 300.0  # the first gap scans record what was due while no replica ran
WORKS_SECONDS = 0.02  # without a rest; it rests as long as it worked, so that the fires have a core
HOUR = timedelta(hours=1)

Judge = Callable[[Settings, DatabaseConnection, datetime, datetime, Progress], AuditReport]


@dataclass(frozen=True, slots=True)
class AuditFact:
    """The audited hours of the last day, added up."""

    hours: int
    until: datetime
    age_seconds: float  # since the end of the newest audited hour
    expected: int
    accounted: int
    duplicates: int
    unexplained: int
    extra: int
    contradicted: int
    wrong_since: datetime | None

    @property
    def is_clean(self) -> bool:
        return self.wrong_since is None

    @property
    def words(self) -> str:
        return words_of(self)


def words_of(figures: "AuditFact | Row[Any]") -> str:
    """What is wrong; empty if nothing is."""
    found = (
        (figures.unexplained, "fire", "without a row"),
        (figures.duplicates, "duplicate row", ""),
        (figures.extra, "row", "that no definition in force called for"),
        (figures.contradicted, "fire", "recorded as missed, but run"),
    )
    return ", ".join(f"{counted(count, noun)} {which}".strip() for count, noun, which in found if count)


def last_day(db: DatabaseConnection) -> AuditFact | None:
    """None until the first hour has been audited."""
    with db.transaction() as connection:
        row = connection.exec_driver_sql(sql.FACT).one()
    return _fact(row) if row.hours else None


def _fact(row: Row[Any]) -> AuditFact:
    return AuditFact(**{**row._mapping, "age_seconds": float(row.age_seconds)})


class HourlyAudit:
    def __init__(self, settings: Settings, db: DatabaseConnection, stopping: Event, judge: Judge = audit_by) -> None:
        self._settings, self._db, self._stopping, self._judge = settings, db, stopping, judge
        self._certain = max(Tolerances.from_settings(settings).vouch.total_seconds(), 60.0)
        self._not_before = time.monotonic() + FIRST_AFTER_SECONDS
        self.loop = Loop("audit", self.tick, INTERVAL_SECONDS, patience_seconds=LONGEST_AUDIT_SECONDS)

    def tick(self) -> float | None:
        if time.monotonic() < self._not_before:
            return None
        is_more = self.audit_one()
        if fact := last_day(self._db):
            metrics.observe_audit(
                age_seconds=fact.age_seconds,
                expected=fact.expected,
                accounted=fact.accounted,
                findings={kind: getattr(fact, kind) for kind in WRONG},
            )
        return SOON_SECONDS if is_more else None

    def audit_one(self) -> bool:
        """Audit the oldest hour that is due and that no other replica audits; says whether there was one."""
        claim = self._run(sql.CLAIM, {"instance_id": self._settings.instance_id, "certain": self._certain})
        if not claim:
            return False
        since, fence = claim[0].since, {"since": claim[0].since, "claimed_until": claim[0].claimed_until}
        began = time.monotonic()
        try:
            report = self._judge(self._settings, self._db, since, since + HOUR, _Paced(self._stopping))
        except _Stopping:
            self._run(sql.PUT_OFF, fence)
            return False
        if report.unwatched:  # no gap scan has checked all of it yet: it cannot be judged
            self._run(sql.PUT_OFF, fence)
            return True
        figures = _figures(report)
        self._run(sql.RECORD, {**fence, **figures, "seconds": time.monotonic() - began})
        self._run(sql.FORGET, {"days": self._settings.history_retention_days})
        if wrong := sum(figures[kind] for kind in WRONG):
            logger.error(
                "the audit of the hour from %s found %s; run: %s",
                since.isoformat(),
                counted(wrong, "wrong fire"),
                as_called_here("manage.py audit"),
                extra={"event": "audit_failed", "since": since.isoformat(), **figures},
            )
        return True

    def _run(self, statement: str, values: dict[str, Any]) -> list[Row[Any]]:
        with self._db.transaction() as connection:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
            result = connection.exec_driver_sql(statement, values)
            return list(result) if result.returns_rows else []


class _Stopping(Exception):
    """The replica drains in the middle of an audit."""


class _Paced:
    """Called after each schedule: rests as long as it worked."""

    def __init__(self, stopping: Event) -> None:
        self._stopping, self._since = stopping, time.monotonic()

    def __call__(self, _schedules: int) -> None:
        worked = time.monotonic() - self._since
        if worked < WORKS_SECONDS:
            return
        if self._stopping.wait(worked):
            raise _Stopping
        self._since = time.monotonic()


def _figures(report: AuditReport) -> dict[str, int]:
    return {
        "schedules": report.schedules,
        "expected": report.expected,
        "accounted": report.accounted,
        "duplicates": report.duplicates,
        "unexplained": len(report.unexplained),
        "extra": len(report.extra),
        "contradicted": len(report.contradicted),
    }
