"""The notifier: finds the events of the rules and writes them as deliveries. One replica at a time, by a fenced lease.

A tick walks the executions that ended (position.py), looks at life signs every few seconds, and reports what has been
gathered (incidents.py). Each of its transactions first locks the lease's row and compares its token, so that a former
holder writes nothing; position, memory and deliveries are written together or not at all.
"""

import json
import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row
from sqlalchemy.exc import DBAPIError

from config import Settings
from database.connection import LOCK_TIMEOUT_SECONDS, DatabaseConnection
from database.sqlstates import VALUE_ERRORS, sqlstate
from services.engine.loops import Loop
from services.errors import SchedulerError, Unavailable
from services.notifications import notifier_sql as sql
from services.notifications.deliveries import write
from services.notifications.events.life_signs import Look
from services.notifications.events.looking import Looks
from services.notifications.events.rows import subject_of
from services.notifications.events.timing import LEAST_SLOW_SECONDS, still
from services.notifications.incidents import LONGEST_GATHER, Incident, Incidents, Kind, Over, Phase, Telling, apply
from services.notifications.judging import OF_ENDED, OF_SCHEDULES, apply_judged, judge, needs_usual, thresholds
from services.notifications.position import NOTHING, Position
from services.notifications.rule_fields import Event
from services.notifications.rules import RuleRecord, enabled_rules
from services.notifications.telling import DIGEST, Teller, Told, deliveries, delivery_subject, put_into_digest
from services.notifications.usual import UsualDurations
from services.telemetry import metrics

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0
LOOK_SECONDS = 5.0
LEASE_SECONDS = 15.0
TRY_SECONDS = 5.0  # of a replica that has no lease, or no rules
WALK_SECONDS = 0.5  # in one tick, until it looks at the rest
BATCH = 1000
FLUSHED_AT_ONCE = 2000
FORGOTTEN_AT_ONCE = 5000
PATIENCE_SECONDS = 120.0


BEGINNING = datetime.min.replace(tzinfo=UTC), NOTHING
MOST_BAD_ROWS = 20  # of a batch in which none is good: it is our own fault then, and nothing is skipped


class LeaseLost(Exception):
    """Another replica is the notifier now; the transaction is rolled back."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """A transaction of the holder of the lease."""

    connection: Connection
    position: Position
    now: datetime


class Notifier:
    def __init__(self, settings: Settings, db: DatabaseConnection, gather: Any = LONGEST_GATHER) -> None:
        self._db, self._name, self._gather = db, settings.instance_id, gather
        self._timeout = float(settings.heartbeat_timeout_seconds)
        self._teller, self._usual = Teller(settings.public_url), UsualDurations()
        self._looks = Looks(db, self._timeout)
        self._token: int | None = None
        self._is_whole = True  # the last tick
        self._look_at = 0.0
        self._places: dict[str, tuple[datetime, UUID]] = {}  # of what runs or waits, up to where it was looked at
        self._checked: dict[UUID, tuple[RuleRecord, bool]] = {}  # whether it makes sense
        self.loop = Loop("notifier", self.tick, TRY_SECONDS, PATIENCE_SECONDS)

    @property
    def is_holder(self) -> bool:
        return self._token is not None

    def tick(self) -> float | None:
        self._observe()
        if not self._hold():
            return TRY_SECONDS
        try:
            with self._db.transaction() as connection:
                rules = self._sensible(enabled_rules(connection))
            if not rules:
                self.walk(rules)
                return TRY_SECONDS
            self._is_whole, was_whole = False, self._is_whole
            walk = partial(self.walk, rules, is_proof=was_whole)
            is_more = any(_each(walk, lambda: self.look(rules), lambda: self.tell(rules)))
            self._is_whole = True
        except LeaseLost:
            logger.warning("another replica is the notifier now", extra={"event": "notifier_lease_lost"})
            self._token = None
            return TRY_SECONDS
        return 0.0 if is_more else TICK_SECONDS

    def close(self) -> None:
        """Give the lease back, so that another replica need not wait until it expires."""
        token, self._token = self._token, None
        if token is not None:
            with suppress(Unavailable):
                self._db.run_alone(sql.GIVE_BACK, {"token": token})

    def tidy(self, _days: int) -> int:
        deleted = 0
        while batch := self._forget():
            deleted += batch
        return deleted

    def _sensible(self, rules: list[RuleRecord]) -> list[RuleRecord]:
        """Without rules that make no sense, which are logged once."""
        before, self._checked = self._checked, {}
        for rule in rules:
            known = before.get(rule.rule_id)
            if known is None or known[0] != rule:
                known = rule, rule.problem is None
                if not known[1]:
                    facts = {"event": "rule_invalid", "rule": rule.name}
                    logger.error("rule %s sends nothing: %s", rule.name, rule.problem, extra=facts)
            self._checked[rule.rule_id] = known
        return [rule for rule in rules if self._checked[rule.rule_id][1]]

    # --- the lease ---

    def _hold(self) -> bool:
        if self._token is None:
            found = self._db.run_alone(sql.TAKE, {"holder": self._name, "seconds": LEASE_SECONDS})
            if found:
                self._token = found[0].token
                logger.info("this replica is the notifier", extra={"event": "notifier_lease_taken"})
        return self._token is not None

    @contextmanager
    def fenced(self) -> Iterator[Fenced]:
        with self._db.transaction() as connection:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
            values = {"token": self._token, "seconds": LEASE_SECONDS}
            row = connection.exec_driver_sql(sql.FENCE, values).first()
            if row is None:
                raise LeaseLost
            yield Fenced(connection, Position.from_json(row.position), row.now)

    def _observe(self) -> None:
        (row,) = self._db.run_alone(sql.AGE, {})
        metrics.observe_notifier(age_seconds=float(row.seconds))

    # --- ended executions ---

    def walk(self, rules: Collection[RuleRecord], *, is_proof: bool = True) -> bool:
        """Says whether there is more. Rules that need no ended executions let the position jump to the present.

        `is_proof`: that all is well; the age of the walk grows as long as another part of the ticks fails.
        """
        concerned = [rule for rule in rules if any(Event(event) in OF_ENDED for event in rule.events)]
        until = time.monotonic() + WALK_SECONDS
        while True:
            with self.fenced() as fenced:
                position = self._walk_on(fenced, concerned)
                values = {"position": json.dumps(position.to_json()), "token": self._token}
                fenced.connection.exec_driver_sql(sql.MOVE, {**values, "is_round": is_proof and position.round is None})
            if position.round is None:
                return False
            if time.monotonic() >= until:
                return True

    def _walk_on(self, fenced: Fenced, rules: Collection[RuleRecord]) -> Position:
        position, connection = fenced.position, fenced.connection
        if position.round is None or not rules:
            present = connection.exec_driver_sql(sql.NOW).one()
            begin = position.begin if rules else position.jump
            position = begin(present.snapshot, present.now)
        if position.round is None:
            return position
        turn = position.round
        values = {
            "at": turn.at,
            "id": turn.execution_id,
            "until": turn.until,
            "from": turn.first_xid,
            "target": turn.target,
            "most": BATCH,
            **thresholds(rules),
            "all": False,
        }
        rows = connection.exec_driver_sql(sql.WALK, values).all()
        if new := [row for row in rows if row.is_new]:
            self._judge(fenced, rules, new)
        if not rows or rows[-1].looked < BATCH:
            return position.done()
        return replace(position, round=turn.after(rows[-1].completed_at, rows[-1].execution_id))

    def _judge(self, fenced: Fenced, rules: Collection[RuleRecord], rows: list[Row[Any]]) -> None:
        """A row that makes no sense is logged and skipped: it would stop the walk for ever."""
        if self._try_to_judge(fenced, rules, rows) is None:
            return
        bad = {}
        for row in rows:
            if (error := self._try_to_judge(fenced, rules, [row])) is not None:
                bad[row.execution_id] = error
        if len(bad) == len(rows) > MOST_BAD_ROWS:
            raise next(iter(bad.values()))
        for execution_id, error in bad.items():
            facts = {"event": "execution_not_judged", "execution_id": str(execution_id)}
            words = "execution %s cannot be judged by the rules, and is skipped: %s"
            logger.error(words, execution_id, repr(error), extra=facts)

    def _try_to_judge(self, fenced: Fenced, rules: Collection[RuleRecord], rows: list[Row[Any]]) -> Exception | None:
        """What is wrong with the rows; errors of the server are raised."""
        try:
            with fenced.connection.begin_nested():
                self._judge_all(fenced, rules, rows)
        except Exception as error:
            if isinstance(error, SchedulerError) or (
                isinstance(error, DBAPIError) and sqlstate(error)[:2] not in VALUE_ERRORS
            ):
                raise
            return error
        return None

    def _judge_all(self, fenced: Fenced, rules: Collection[RuleRecord], rows: list[Row[Any]]) -> None:
        subjects = {subject_of(row) for row in rows} | {str(row.scan_id) for row in rows if row.scan_changes}
        incidents = self._load(fenced, sql.OF_SUBJECTS, {"subjects": list(subjects)})
        usual = self._usual.of(fenced.connection, needs_usual(rows, rules))
        judge(incidents, rules, rows, usual, fenced.now)
        self._save(fenced, incidents)

    # --- life signs ---

    def look(self, rules: Collection[RuleRecord]) -> None:
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        events = {Event(event) for rule in rules for event in rule.events}
        steps: list[Callable[[], None]] = [partial(self._look_by, one, rules) for one in self._looks.now(events)]
        if events & {Event.LATE, Event.SLOW}:
            timed = [rule for rule in rules if rule.tells(Event.LATE) or rule.tells(Event.SLOW)]
            steps.append(lambda: self._look_at_unended(timed))
        if Event.NO_SUCCESS in events:
            steps.append(lambda: self._look_for_success([rule for rule in rules if rule.tells(Event.NO_SUCCESS)]))
        _each(*steps, self._close_unwatched)

    def _look_by(self, look: Callable[[], Look], rules: Collection[RuleRecord]) -> None:
        self._apply_look(look(), rules)

    def _apply_look(self, found: Look, rules: Collection[RuleRecord]) -> None:
        with self.fenced() as fenced:
            values = {"event": found.event.value, "subjects": list(found.subjects), "most": sql.OPEN_MOST}
            incidents = self._load(fenced, sql.OF_LOOK, values)
            known = list(incidents.known.values())
            apply(incidents, rules, found.found, fenced.now)
            over = (
                Over(event=found.event, subject=subject, at=fenced.now, about=None)
                for subject in dict.fromkeys(incident.subject for incident in known)
                if found.is_over(subject)
            )
            apply(incidents, rules, over, fenced.now)
            for incident in known:
                if incident.phase in (Phase.COUNTING, Phase.TOLD) and found.is_gone(incident.subject):
                    incidents.close(incident)
            self._save(fenced, incidents)

    def _look_at_unended(self, rules: list[RuleRecord]) -> None:
        with self.fenced() as fenced:
            rows: list[Row[Any]] = []
            if lateness := [rule.late_seconds for rule in rules if rule.late_seconds is not None]:
                rows += self._next(fenced, sql.WAITING, min(lateness))
            limits = [rule.slower_than_seconds for rule in rules if rule.slower_than_seconds is not None]
            limits += [int(LEAST_SLOW_SECONDS) for rule in rules if rule.slower_than_usual is not None]
            running: list[Row[Any]] = []
            if limits:
                running = self._next(fenced, sql.RUNNING, min(limits))
            by_usual = any(rule.slower_than_usual is not None for rule in rules)
            asked = {row.schedule_id for row in running} if by_usual else set()
            rows += running
            if rows:
                incidents = self._load(fenced, sql.OF_SUBJECTS, {"subjects": [str(row.schedule_id) for row in rows]})
                apply_judged(incidents, still(rows, rules, self._usual.of(fenced.connection, asked)), fenced.now)
                self._save(fenced, incidents)

    def _next(self, fenced: Fenced, statement: str, seconds: int) -> list[Row[Any]]:
        """What follows the last look; after the end it begins anew."""
        at, execution_id = self._places.get(statement, BEGINNING)
        values = {"seconds": seconds, "at": at, "id": execution_id, "most": sql.STILL_MOST}
        rows = list(fenced.connection.exec_driver_sql(statement, values))
        is_end = len(rows) < sql.STILL_MOST
        self._places[statement] = BEGINNING if is_end else (rows[-1].place, rows[-1].execution_id)
        return rows

    def _look_for_success(self, rules: list[RuleRecord]) -> None:
        with self.fenced() as fenced:
            found, last = self._looks.without_success(fenced.connection, rules, fenced.position.schedules_after)
            subjects = list({each.found.subject for each in found})
            incidents = self._load(fenced, sql.OF_SUBJECTS, {"subjects": subjects})
            apply_judged(incidents, found, fenced.now)
            self._save(fenced, incidents)
            position = replace(fenced.position, schedules_after=last or NOTHING)
            values = {"position": json.dumps(position.to_json()), "token": self._token, "is_round": False}
            fenced.connection.exec_driver_sql(sql.MOVE, values)

    def _close_unwatched(self) -> None:
        with self.fenced() as fenced:
            events = [event.value for event in OF_SCHEDULES]
            incidents = self._load(fenced, sql.UNWATCHED, {"events": events})
            for incident in list(incidents.known.values()):
                incidents.close(incident)
            self._save(fenced, incidents)

    # --- telling ---

    def tell(self, rules: Collection[RuleRecord]) -> None:
        (is_due,) = self._db.run_alone(sql.IS_DUE, {})
        if is_due.gathered:
            self._tell_gathered({rule.rule_id: rule for rule in rules})
        if is_due.gathered or is_due.storms:
            self._end_storms({rule.rule_id: rule for rule in rules})

    def _tell_gathered(self, rules: dict[UUID, RuleRecord]) -> None:
        with self.fenced() as fenced:
            incidents = self._load(fenced, sql.DUE, {"most": FLUSHED_AT_ONCE})
            for incident in list(incidents.known.values()):
                if incident.rule_id not in rules:
                    incidents.close(incident)
            told = [
                self._teller.digest(rules[incident.rule_id], incident)
                for incident in incidents.known.values()
                if incident.event == DIGEST and incident.flush_at is not None and incident.flush_at <= fenced.now
            ]
            self._deliver(fenced, told)
            for each in told:
                incidents.close(incidents.known[each.rule.rule_id, DIGEST, DIGEST])
            self._save(fenced, incidents)  # before what is told now is put into the next digest
            self._tell(fenced, incidents, list(incidents.flush(rules, fenced.now)))

    def _end_storms(self, rules: dict[UUID, RuleRecord]) -> None:
        with self.fenced() as fenced:
            rows = list(fenced.connection.exec_driver_sql(sql.STORMS_OVER))
            recovered = {(row.rule_id, row.subject) for row in rows if row.has_recovered}
            incidents = Incidents((_to_incident(row) for row in rows), self._gather)
            tellings: list[Telling] = []
            for storm in list(incidents.known.values()):
                if storm.rule_id in rules and (storm.rule_id, storm.subject) in recovered:
                    tellings += incidents.end_storm(storm, rules[storm.rule_id], fenced.now)
                else:
                    incidents.close(storm)
            self._tell(fenced, incidents, tellings)

    def _tell(self, fenced: Fenced, incidents: Incidents, tellings: list[Telling]) -> None:
        told = [self._teller.tell(telling, fenced.now) for telling in tellings]
        digests = self._put_into_digests(fenced, told)
        self._save(fenced, incidents)
        self._write(fenced, [*digests.values()])
        self._deliver(fenced, [each for each in told if each.rule.rule_id not in digests])
        for telling in tellings:
            if telling.kind is not Kind.STORM or not telling.is_update:
                metrics.notification_told(telling.incident.event)

    def _put_into_digests(self, fenced: Fenced, told: list[Told]) -> dict[UUID, Incident]:
        wanted = {each.rule.rule_id for each in told if each.rule.digest != "none"}
        if not wanted:
            return {}
        rows = fenced.connection.exec_driver_sql(sql.DIGESTS, {"rules": list(wanted)})
        digests = {row.rule_id: _to_incident(row) for row in rows}
        for each in told:
            if each.rule.rule_id in wanted and not each.is_update:
                found = put_into_digest(digests.get(each.rule.rule_id), each, fenced.now)
                if found is not None:
                    digests[each.rule.rule_id] = found
        return digests

    def _deliver(self, fenced: Fenced, told: list[Told]) -> None:
        new = [delivery for each in told if not each.is_update for delivery in deliveries(each, fenced.now)]
        write(fenced.connection, new)
        for each in told:
            if each.is_update:
                ids = enumerate(each.rule.channel_ids)
                values = {
                    "rule_id": each.rule.rule_id,
                    "event": each.event,
                    "subjects": [delivery_subject(each.subject, one, is_first=place == 0) for place, one in ids],
                    "message": json.dumps(each.message.stored()),
                }
                fenced.connection.exec_driver_sql(sql.UPDATE_WAITING, values)

    # --- what is remembered ---

    def _load(self, fenced: Fenced, statement: str, values: dict[str, Any]) -> Incidents:
        rows = fenced.connection.exec_driver_sql(statement, values)
        return Incidents((_to_incident(row) for row in rows), self._gather)

    def _save(self, fenced: Fenced, incidents: Incidents) -> None:
        self._write(fenced, incidents.take_changed())

    def _write(self, fenced: Fenced, incidents: list[Incident]) -> None:
        if incidents:
            rows = json.dumps([asdict(incident) for incident in incidents], default=_as_text)
            fenced.connection.exec_driver_sql(sql.SAVE, {"rows": rows})

    def _forget(self) -> int:
        with self._db.transaction() as connection:
            return connection.exec_driver_sql(sql.FORGET, {"most": FORGOTTEN_AT_ONCE}).rowcount


def _each(*steps: Callable[[], bool | None]) -> list[bool | None]:
    """Runs all of them even if one fails; then its error is raised."""
    found, failed = [], None
    for step in steps:
        try:
            found.append(step())
        except (LeaseLost, Unavailable):
            raise
        except Exception as error:  # noqa: BLE001 - raised below
            failed = failed or error
    if failed is not None:
        raise failed
    return found


def _to_incident(row: Row[Any]) -> Incident:
    return Incident(**{name: getattr(row, name) for name in Incident.__dataclass_fields__})


def _as_text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
