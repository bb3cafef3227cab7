"""The looks at the present: one bounded statement each."""

from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row

from database.connection import DatabaseConnection
from services.insight.hourly_audit import words_of
from services.insight.hourly_audit_sql import HOURS
from services.insight.unhandled_jobs import unhandled_jobs, unmet_needs
from services.notifications import notifier_sql as sql
from services.notifications.events.life_signs import (
    Look,
    audit_failed,
    look,
    no_success,
    nobody_able,
    parked,
    queue_open,
    replica_lost,
    schedule_of,
)
from services.notifications.events.timing import Judged
from services.notifications.incidents import Over, matches
from services.notifications.rule_fields import Event
from services.notifications.rules import RuleRecord

SCHEDULES_AT_ONCE = 1000
LOOKBACK = 1000  # executions of a schedule, among which its last success is looked for


class Looks:
    def __init__(self, db: DatabaseConnection, heartbeat_timeout_seconds: float) -> None:
        self._db, self._timeout = db, heartbeat_timeout_seconds

    def now(self, events: set[Event]) -> Iterator[Callable[[], Look]]:
        """To be called one by one: a look that fails must not stop the others."""
        if Event.PARKED in events:
            yield lambda: look(Event.PARKED, self._run(sql.PARKED), parked, sql.MOST)
        if Event.QUEUE_OPEN in events:
            yield self._queues
        if Event.AUDIT_FAILED in events:
            yield self._audits
        if events & {Event.REPLICA_LOST, Event.NOBODY_ABLE} and self._somebody_lives():
            if Event.REPLICA_LOST in events:
                yield self._replicas
            if Event.NOBODY_ABLE in events:
                yield self._needs

    def without_success(
        self, connection: Connection, rules: Collection[RuleRecord], after: UUID, *, again: bool = False
    ) -> tuple[list[Judged], UUID | None]:
        """Of the next schedules; with the last of them, None at the end. `again`: also those already reported."""
        seconds = min(rule.no_success_seconds or 0 for rule in rules)
        values = {"after": after, "most": SCHEDULES_AT_ONCE, "seconds": seconds}
        rows = connection.exec_driver_sql(sql.NO_SUCCESS, values).all()
        found = [_success(row, rule) for row in rows if row.is_fresh for rule in rules]
        concerned = {
            row.schedule_id: (row, [rule for rule in rules if _concerns(rule, row, again)])
            for row in rows
            if row.is_due
        }
        ids = [schedule_id for schedule_id, (_, theirs) in concerned.items() if theirs]
        if ids:
            for last in connection.exec_driver_sql(sql.LAST_SUCCESS, {"ids": ids, "lookback": LOOKBACK}):
                row, theirs = concerned[last.schedule_id]
                found += [
                    Judged(rule, no_success(row, last, rule, LOOKBACK)) for rule in theirs if _lacks(row, last, rule)
                ]
        return found, rows[-1].schedule_id if len(rows) == SCHEDULES_AT_ONCE else None

    def _queues(self) -> Look:
        rows = self._run(sql.OPEN_QUEUES)
        found = [queue_open(row) for row in rows if row.circuit == "open"]
        return Look(Event.QUEUE_OPEN, found, len(rows) < sql.MOST, frozenset(row.queue for row in rows))

    def _audits(self) -> Look:
        """An hour is in order once another audit of it finds nothing. A day later it is forgotten."""
        hours = {row.since.astimezone(UTC).isoformat(): row for row in self._run(HOURS)}
        wrong = {subject: words for subject, row in hours.items() if (words := words_of(row))}
        return Look(
            Event.AUDIT_FAILED,
            [audit_failed(hours[subject], words) for subject, words in wrong.items()],
            back=frozenset(hours.keys() - wrong.keys()),
            here=frozenset(hours),
        )

    def _replicas(self) -> Look:
        """A lost replica is back when it lives again. One whose row is gone is neither lost nor back."""
        values = {"timeout": self._timeout}
        found = [replica_lost(row) for row in self._run(sql.LOST, values)]
        known = self._run(sql.REPLICAS, values)
        return Look(
            Event.REPLICA_LOST,
            found,
            back=frozenset(row.instance_id for row in known if row.lives),
            here=frozenset(row.instance_id for row in known),
        )

    def _needs(self) -> Look:
        at: datetime = self._run(sql.NOW)[0].now
        unmet = unmet_needs(self._db, self._timeout, also_handlers=True)
        found = {each.needs: nobody_able(each.needs, each.words, each.executions, at) for each in unmet}
        for job in unhandled_jobs(self._db, self._timeout):
            if not job.known_to:
                found.setdefault((f"job:{job.job_type}",), nobody_able((f"job:{job.job_type}",), job.words, 0, at))
        return Look(Event.NOBODY_ABLE, list(found.values()))

    def _somebody_lives(self) -> bool:
        return bool(self._run(sql.SOMEBODY_LIVES, {"timeout": self._timeout})[0].lives)

    def _run(self, statement: str, values: dict[str, Any] | None = None) -> list[Row[Any]]:
        return self._db.run_alone(statement, values or {})


def _success(row: Row[Any], rule: RuleRecord) -> Judged:
    return Judged(rule, Over(event=Event.NO_SUCCESS, subject=str(row.schedule_id), at=row.now, about=None))


def _concerns(rule: RuleRecord, row: Row[Any], again: bool) -> bool:
    return (again or rule.rule_id not in row.told) and matches(rule, schedule_of(row))


def _lacks(row: Row[Any], last: Row[Any], rule: RuleRecord) -> bool:
    if last.first_due is None:
        return False  # nothing was due since
    asked = timedelta(seconds=rule.no_success_seconds or 0)
    is_rare = last.first_due > last.since + asked  # no fire could have kept it
    since: datetime = last.first_due if is_rare else last.since
    return bool(since < row.now - asked)
