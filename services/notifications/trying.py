"""A dry run of a rule: what it would have sent in the last hours. Reads only, and a bounded number of executions.

Ended executions are judged as the notifier judges them, at the time of their end; what is so at the moment counts as
found now. Problems that had begun before, and what happened to replicas and queues since, are not known.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row

from database.connection import DatabaseConnection
from services.notifications import notifier_sql as sql
from services.notifications.events.life_signs import Look
from services.notifications.events.looking import Looks
from services.notifications.hours import digest_due, quiet_until
from services.notifications.incidents import STORM, Incidents, Telling, apply
from services.notifications.judging import apply_judged, judge, needs_usual, thresholds
from services.notifications.messages import Message, Severity
from services.notifications.position import AHEAD, NOTHING
from services.notifications.rule_fields import Event
from services.notifications.rules import RuleRecord
from services.notifications.telling import Teller, Told
from services.notifications.usual import UsualDurations

PAGE = 1000
MOST_WALKED, LONGEST_SECONDS = 500_000, 20.0
MOST_PAGES_OF_SCHEDULES = 20
MOST_TOLD = 1000


@dataclass(frozen=True, slots=True)
class Tried:
    """A message at the time at which it would have been created. `due_at`: after quiet hours, or of its digest."""

    at: datetime
    due_at: datetime
    message: Message


@dataclass(frozen=True, slots=True)
class Trial:
    """`is_complete`: False if the walk ended early; `walked_until` says where."""

    since: datetime
    walked_until: datetime
    walked: int
    told: list[Tried]
    is_complete: bool


def try_rule(db: DatabaseConnection, rule: RuleRecord, heartbeat_timeout_seconds: float, hours: float = 24.0) -> Trial:
    with db.transaction() as connection:
        present = connection.exec_driver_sql(sql.NOW).one()
    return _Trial(db, rule, present.now, present.snapshot).run(timedelta(hours=hours), heartbeat_timeout_seconds)


class _Trial:
    def __init__(self, db: DatabaseConnection, rule: RuleRecord, now: datetime, snapshot: str) -> None:
        self._db, self._rule, self._now, self._snapshot = db, rule, now, snapshot
        self._incidents, self._usual, self._teller = Incidents(), UsualDurations(), Teller(None)
        self._flush_at: datetime | None = None
        self._told: dict[tuple[str, str], Tried] = {}
        self._until = time.monotonic() + LONGEST_SECONDS

    def run(self, back: timedelta, heartbeat_timeout_seconds: float) -> Trial:
        since = self._now - back
        walked, at, is_complete = 0, since, True
        for rows in self._pages(since):
            for row in rows:
                self._flush(row.completed_at)
                judge(self._incidents, [self._rule], [row], self._usual_of, row.completed_at)
                self._note()
            walked, at = walked + len(rows), rows[-1].completed_at
            if walked >= MOST_WALKED or time.monotonic() > self._until or len(self._told) >= MOST_TOLD:
                is_complete = False
                break
        if is_complete:
            self._look(heartbeat_timeout_seconds)
            at = self._now
        self._flush(at + timedelta(days=1))
        told = sorted(self._told.values(), key=lambda each: each.at)
        return Trial(since, at, walked, told[:MOST_TOLD], is_complete)

    def _pages(self, since: datetime) -> Iterator[list[Row[Any]]]:
        at, execution_id, wanted = since, NOTHING, {**thresholds([self._rule]), "all": True}
        while True:
            values = {"at": at, "id": execution_id, "until": self._now + AHEAD, "from": 0, "most": PAGE}
            with self._db.transaction() as connection:
                found = connection.exec_driver_sql(sql.WALK, {**values, "target": self._snapshot, **wanted}).all()
                rows = [row for row in found if row.is_new]
                self._usual_of = self._usual.of(connection, needs_usual(rows, [self._rule]))
            if rows:
                yield rows
            if not found or found[-1].looked < PAGE:
                return
            at, execution_id = found[-1].completed_at, found[-1].execution_id

    def _look(self, heartbeat_timeout_seconds: float) -> None:
        looks = Looks(self._db, heartbeat_timeout_seconds)
        found: list[Look] = [look() for look in looks.now({Event(event) for event in self._rule.events})]
        for each in found:
            apply(self._incidents, [self._rule], each.found, self._now)
        if self._rule.tells(Event.NO_SUCCESS):
            with self._db.transaction() as connection:
                self._look_for_success(looks, connection)
        self._note()

    def _look_for_success(self, looks: Looks, connection: Connection) -> None:
        after = NOTHING
        for _ in range(MOST_PAGES_OF_SCHEDULES):
            found, last = looks.without_success(connection, [self._rule], after, again=True)
            apply_judged(self._incidents, found, self._now)
            if last is None:
                return
            after = last

    def _note(self) -> None:
        if self._incidents.take_changed():
            waiting = [each.flush_at for each in self._incidents.known.values() if each.flush_at is not None]
            self._flush_at = min(waiting, default=None)

    def _flush(self, now: datetime) -> None:
        while self._flush_at is not None and self._flush_at <= now:
            at = self._flush_at
            for telling in list(self._incidents.flush({self._rule.rule_id: self._rule}, at)):
                self._tell(telling, at)
            self._end_storms(at)
            self._note()

    def _end_storms(self, at: datetime) -> None:
        everything = list(self._incidents.known.values())
        open_storms = {each.storm for each in everything if each.storm is not None and each.is_open}
        for storm in everything:
            if storm.event == STORM and storm.is_open and storm.key not in open_storms:
                for telling in self._incidents.end_storm(storm, self._rule, at):
                    self._tell(telling, at)

    def _tell(self, telling: Telling, at: datetime) -> None:
        told = self._teller.tell(telling, at)
        before = self._told.get((told.event, told.subject))
        at = before.at if before else at
        self._told[told.event, told.subject] = Tried(at, _due(told, at), told.message)


def _due(told: Told, at: datetime) -> datetime:
    if (digest := digest_due(told.rule, at)) is not None:
        return digest
    if told.rule.quiet_errors_pass and told.message.severity is Severity.ERROR:
        return at
    return quiet_until(told.rule, at) or at
