"""The engine's writes to `job_executions`: claim, start, finish, hand back, always in batches.

The unique key (schedule_id, scheduled_for, attempt) decides which replica runs what, and every later write requires the
fencing token of the row. Transactions lock the schedules in id order first (SKIP LOCKED: none waits), then touch
executions. verdicts.py decides what becomes of a fire; the SQL is in claims_sql.py. Start reading at
`ExecutionStore.claim`.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Row
from sqlalchemy.exc import DBAPIError

from database.arrays import flag_array, instant_array, number_array, text_array, uuid_array
from database.clock import awake_or_not
from database.connection import DatabaseConnection
from database.models import ExecutionStatus
from database.sqlstates import VALUE_ERRORS, sqlstate
from services.ledger import claims_sql as sql
from services.ledger.fires import Claim, Decision, Ending, Fire, Owner, Policy
from services.ledger.former_timings import had_fire
from services.ledger.history_sql import NOTIFY_PENDING
from services.ledger.limits import UNLIMITED, Limited, Turn, full_keys, lock_limited
from services.ledger.locked import Locked
from services.ledger.needs import OF_EVERYTHING, Abilities, Needs
from services.ledger.retrying import CarefulRetries
from services.ledger.verdicts import CLAIMED, EARLY, YOUNGEST, Kind, Rule, Situation, Stage, answers, decide, decisions
from services.ledger.waiting import WaitingJudge, WaitingStore

HEARTBEAT_TIMEOUT_SECONDS = 15.0

BY_ITS_SCHEDULE = answers(
    Stage.DUE,
    Kind.SCHEDULE,
    (
        Situation.TOO_OLD,
        Situation.EARLY,
        Situation.OFF,
        Situation.ENDED,
        Situation.NOT_A_FIRE,
        Situation.BACKING_OFF,
        Situation.OVERDUE,
    ),
)
DECISIONS = decisions()


@dataclass(slots=True)
class ClaimReport:
    """One decision per fire, and the claims among them: those that may run at once, and those that must be started."""

    started: list[Claim] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    decisions: dict[Fire, Decision] = field(default_factory=dict)
    due_at: dict[Fire, datetime] = field(default_factory=dict)  # of those that were early
    for_fleet: int = 0  # of those that wait for others


@dataclass(slots=True)
class FinishReport:
    """Endings refused by their fencing token, and endings whose row another session locks at the moment."""

    refused: list[Claim] = field(default_factory=list)
    later: list[Ending] = field(default_factory=list)


@dataclass(slots=True)
class StartReport:
    """Claims that may run now, and claims whose row another session locks; the rest must be read again."""

    started: list[Claim] = field(default_factory=list)
    later: list[Claim] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What other replicas have room for, and what is none of a replica's business."""

    most: int
    is_able: Callable[[Needs, str], bool]  # one of them, given the needs and the queue
    fleet_queues: frozenset[str] = frozenset()  # their fires take no replica's place, however many there are


_Asked = tuple[Fire, Locked, Rule]  # with the rule under which a row is to be written


class ExecutionStore:
    """For one thread: it keeps its own connection. A method that raises Unavailable has written nothing."""

    def __init__(
        self,
        db: DatabaseConnection,
        owner: Owner,
        policy: Policy,
        horizon_seconds: int,
        *,
        abilities: Abilities = OF_EVERYTHING,
        heartbeat_timeout_seconds: float = HEARTBEAT_TIMEOUT_SECONDS,
    ) -> None:
        self._connection, self._abilities = db.dedicated(), abilities
        self._owner, self._policy, self._horizon = owner, policy, timedelta(seconds=horizon_seconds)
        self._retry = CarefulRetries()
        judge = WaitingJudge(self._connection, owner, policy, horizon_seconds, abilities, heartbeat_timeout_seconds)
        self.waiting = WaitingStore(self._connection, judge)  # one thread claims, by whichever way

    def close(self) -> None:
        self._connection.close()

    # --- claim ---

    def claim(self, fires: Sequence[Fire], start: int = 0) -> ClaimReport:
        """Decide on due fires: claimed by this replica, recorded with a reason, or another replica's.

        The first `start` of them, for which there is a place already, are claimed and started at once.
        """
        return self._decide(fires, start)

    def give_away(self, fires: Sequence[Fire], wanted: Wanted | None = None) -> ClaimReport:
        """The same decisions as of a replica that is able to run nothing: what may run waits for another one.

        What is not wanted is not decided.
        """
        return self._decide(fires, None, wanted)

    def _decide(self, fires: Sequence[Fire], start: int | None, by_others: Wanted | None = None) -> ClaimReport:
        once = list({fire.key: fire for fire in fires}.values())  # twice the same would be coalesced with itself
        return self._retry(lambda careful: self._claim(once, start, by_others)) if once else ClaimReport()

    def _claim(self, fires: Sequence[Fire], start: int | None, by_others: Wanted | None) -> ClaimReport:
        report, asked_at = ClaimReport(), awake_or_not()
        with self._connection.transaction():
            wanted = {fire.schedule_id for fire in fires}
            rows = self._connection.run(sql.LOCK_SCHEDULES, {"ids": uuid_array(wanted)})
            schedules = {row.schedule_id: self._locked(row) for row in rows}
            missing = wanted - schedules.keys()
            held = (
                {row.schedule_id for row in self._connection.run(sql.PRESENT, {"ids": uuid_array(missing)})}
                if missing
                else ()
            )
            asked = []
            for fire in fires:
                locked = schedules.get(fire.schedule_id)
                if locked is None:
                    report.decisions[fire] = Decision.LOCKED if fire.schedule_id in held else Decision.GONE
                    continue
                rule = self._judge(fire, locked)
                report.decisions[fire] = rule.decision
                if rule.decision is Decision.EARLY:
                    report.due_at[fire] = locked.due_at(fire)
                if rule.verdict.status:
                    asked.append((fire, locked, rule))
            if by_others is not None:
                asked = self._only_wanted(asked, by_others, report)
            if asked := self._without_unproven(asked):
                are_limited = rows[0].are_limited and not self._abilities.ignored_limits
                self._insert(asked, start, report, asked_at, are_limited=are_limited)
        return report

    def _only_wanted(self, asked: list[_Asked], wanted: Wanted, report: ClaimReport) -> list[_Asked]:
        """Of what may run: whole schedules in their order that others are able to run, as many as fit."""
        schedules = {locked.schedule_id: locked for _, locked, rule in asked if rule.verdict is CLAIMED}
        needs = self._abilities.needs_of(list(schedules.values()), self._connection)
        fires = Counter(fire.schedule_id for fire, _, rule in asked if rule.verdict is CLAIMED)
        chosen: set[UUID] = set()
        left = wanted.most
        for locked, own in zip(schedules.values(), needs, strict=True):
            if locked.spec.queue_name in wanted.fleet_queues:
                chosen.add(locked.schedule_id)
                report.for_fleet += fires[locked.schedule_id]
            elif fires[locked.schedule_id] <= left and wanted.is_able(own, locked.spec.queue_name):
                chosen.add(locked.schedule_id)
                left -= fires[locked.schedule_id]
        kept = [fire for fire, locked, rule in asked if rule.verdict is CLAIMED and locked.schedule_id not in chosen]
        for fire in kept:
            del report.decisions[fire]
        return [each for each in asked if each[0] in report.decisions]

    def _judge(self, fire: Fire, locked: Locked) -> Rule:
        """As far as the schedule's row decides it."""
        now, due_at = locked.now, locked.due_at(fire)
        return BY_ITS_SCHEDULE[
            fire.scheduled_for < now - self._horizon,
            due_at > now + EARLY,
            not locked.spec.enabled,
            locked.has_ended(fire.scheduled_for),
            not locked.fires_at(fire.scheduled_for),
            locked.backs_off(fire.scheduled_for),
            now - due_at > timedelta(seconds=locked.policy.misfire_grace_seconds),
        ]

    def _without_unproven(self, asked: list[_Asked]) -> list[_Asked]:
        """Without what no former definition had: whoever hands it over has not heard that the schedule was off then."""
        ended = [fire for fire, _, rule in asked if Situation.ENDED in rule.when]
        if not ended:
            return asked
        ids, since = uuid_array({fire.schedule_id for fire in ended}), min(fire.scheduled_for for fire in ended)
        timings: dict[UUID, list[Row[Any]]] = {}
        for row in self._connection.run(sql.FORMER_TIMINGS, {"ids": ids, "since": since}):
            timings.setdefault(row.schedule_id, []).append(row)
        unproven = {fire for fire in ended if not had_fire(timings.get(fire.schedule_id, ()), fire.scheduled_for)}
        return [each for each in asked if each[0] not in unproven]

    def _insert(
        self, asked: list[_Asked], start: int | None, report: ClaimReport, asked_at: float, *, are_limited: bool
    ) -> None:
        needs = self._abilities.needs_of([locked for _, locked, _ in asked], self._connection)
        able = [False] * len(asked)
        if start is not None:
            able = self._abilities.able(needs, [locked.spec.queue_name for _, locked, _ in asked])
        limited = UNLIMITED
        if are_limited:
            limited = self._lock_limited(asked, able)
            free = [
                place
                for place, (_, locked, rule) in enumerate(asked)
                if rule.verdict is not CLAIMED or not able[place] or not limited.is_busy(locked.spec.all_limit_keys)
            ]
            if len(free) < len(asked):
                report.decisions.update((fire, Decision.LOCKED) for fire, _, _ in asked)  # the others: below
                asked, needs, able = [asked[at] for at in free], [needs[at] for at in free], [able[at] for at in free]
        keys = [locked.spec.all_limit_keys for _, locked, _ in asked]
        values = {
            **self._owner.as_values(),
            "grace": self._policy.misfire_grace_seconds,
            "horizon": self._horizon.total_seconds(),
            "schedule_ids": uuid_array(fire.schedule_id for fire, _, _ in asked),
            "scheduled": instant_array(fire.scheduled_for for fire, _, _ in asked),
            "due": instant_array(locked.due_at(fire) for fire, locked, _ in asked),
            "verdicts": text_array(rule.verdict.word for _, _, rule in asked),
            "coalesce": flag_array(locked.policy.coalesce for _, locked, _ in asked),
            "limits": number_array(locked.policy.max_instances for _, locked, _ in asked),
            "job_ids": text_array(locked.spec.name or str(locked.schedule_id) for _, locked, _ in asked),
            "domains": text_array(locked.spec.domain for _, locked, _ in asked),
            "config_ids": uuid_array(locked.spec.domain_config_id for _, locked, _ in asked),
            "next_runs": instant_array(
                locked.next_run(fire) if rule.verdict is CLAIMED else None for fire, locked, rule in asked
            ),
            "starts": flag_array(place < (start or 0) for place in range(len(asked))),
            "able": flag_array(able),
            "keys": text_array(text_array(each) for each in keys),
            "full_keys": None,
            "queues": None,
            "needs": None,
            "priorities": number_array(locked.spec.priority for _, locked, _ in asked),
        }
        is_late = any(locked.now - fire.scheduled_for > YOUNGEST for fire, locked, _ in asked)
        if limited.most:
            preview = sql.PREVIEW_LATE_CLAIMS if is_late else sql.PREVIEW_CLAIMS
            turns = [Turn(None, locked.spec.priority, locked.due_at(fire)) for fire, locked, _ in asked]
            values["full_keys"], _ = full_keys(self._connection, preview, values, limited, keys, turns)
            values["queues"] = text_array(locked.spec.queue_name for _, locked, _ in asked)
            values["needs"] = text_array(text_array(each) for each in needs)
        statement = sql.INSERT_LATE_CLAIMS if is_late else sql.INSERT_CLAIMS
        written = {(row.schedule_id, row.scheduled_for): row for row in self._connection.run(statement, values)}
        for (fire, locked, _), own in zip(asked, keys, strict=True):
            row = written.get(fire.key)
            if row is None:
                report.decisions[fire] = Decision.EXISTS
                continue
            waits = row.status == ExecutionStatus.PENDING
            report.decisions[fire] = decision = Decision.LATER if waits else DECISIONS[row.status, row.reason]
            if decision is Decision.CLAIMED:
                claim = locked.claim(row, locked.due_at(fire), limited.of(own), asked_at)
                (report.started if row.status == ExecutionStatus.RUNNING else report.claims).append(claim)
        if not all(able):
            self._connection.run(NOTIFY_PENDING)  # others may be

    def _lock_limited(self, asked: list[_Asked], able: list[bool]) -> Limited:
        """The limits of what may run here."""
        return lock_limited(
            self._connection,
            {
                key
                for (_, locked, rule), is_able in zip(asked, able, strict=True)
                if is_able and rule.verdict is CLAIMED
                for key in locked.spec.all_limit_keys
            },
        )

    # --- start ---

    def start(self, claims: Sequence[Claim]) -> StartReport:
        """`claimed` -> `running` for what is still ours and whose schedule is as it was when we claimed."""
        return self._retry(lambda careful: self._start(claims, careful)) if claims else StartReport()

    def _start(self, claims: Sequence[Claim], careful: bool) -> StartReport:
        with self._connection.transaction():
            free, held = self._apart(claims) if careful else (claims, [])
            values = {**_fence_values(free), "revisions": number_array(claim.revision for claim in free)}
            values["schedule_ids"] = uuid_array(claim.schedule_id for claim in free)
            rows = self._connection.run(sql.START, values) if free else []
        started = {(row.execution_id, row.fencing_token) for row in rows}
        return StartReport([claim for claim in free if claim.proof in started], held)

    def look_again(self, claim: Claim) -> Claim | None:
        """The claim under the schedule's present definition; None if it is no longer ours, or was skipped."""
        with self._connection.transaction():
            rows = self._connection.run(sql.LOOK_AGAIN, {"schedule_id": claim.schedule_id, **_fence_values([claim])})
            if not rows:
                return None
            row = rows[0]
            locked = self._locked(row) if row.schedule_id is not None else None
            verdict = self._judge_again(claim, locked).verdict
            if verdict.reason:
                self._connection.run(sql.END_UNSTARTED, {"execution_id": claim.execution_id, **verdict.as_values()})
            elif verdict.status == ExecutionStatus.PENDING:
                self._connection.run(sql.HAND_BACK, _fence_values([claim]))
            elif locked is not None:
                return replace(claim, spec=locked.spec, policy=locked.policy, revision=locked.revision)
        return None

    def _judge_again(self, claim: Claim, locked: Locked | None) -> Rule:
        """Now that its schedule changed after the claim."""
        if locked is None:
            situations = {Situation.DELETED: True}
        else:
            situations = {
                Situation.OFF: not locked.spec.enabled,
                Situation.ENDED: locked.has_ended(claim.scheduled_for),
                Situation.NOT_A_FIRE: not locked.fires_at(claim.scheduled_for),
                Situation.UNABLE: not all(self._able([locked])),
                Situation.OTHER_KEYS: locked.spec.all_limit_keys != claim.spec.all_limit_keys,
            }
        holding = [situation for situation, holds in situations.items() if holds]
        return decide(Stage.START, Kind.of(claim.cause, claim.attempt), holding)

    # --- finish ---

    def finish(self, endings: Sequence[Ending]) -> FinishReport:
        """Write how executions ended, and the next attempt where there is one."""
        return self._retry(lambda careful: self._finish(endings, careful)) if endings else FinishReport()

    def _finish(self, endings: Sequence[Ending], careful: bool) -> FinishReport:
        report = FinishReport()
        with self._connection.transaction():
            wanted = {ending.claim.schedule_id for ending in endings}
            busy = {row.schedule_id for row in self._connection.run(sql.LOCK_OR_TELL, {"ids": uuid_array(wanted)})}
            held = self._apart([ending.claim for ending in endings])[1] if careful else []
            waits = {claim.execution_id for claim in held}
            waits |= {ending.claim.execution_id for ending in endings if ending.claim.schedule_id in busy}
            report.later = [ending for ending in endings if ending.claim.execution_id in waits]
            endings = [ending for ending in endings if ending.claim.execution_id not in waits]
            if endings:
                rows = self._connection.run(sql.FINISH, self._as_values(endings))
                written = {row.execution_id for row in rows}
                rest = [ending for ending in endings if ending.claim.execution_id not in written]
                report.refused = self._refused_claims(rest) if rest else []
        return report

    def _refused_claims(self, unwritten: Sequence[Ending]) -> list[Claim]:
        values = self._as_values(unwritten)
        landed = {row.execution_id for row in self._connection.run(sql.LANDED, values)}
        return [ending.claim for ending in unwritten if ending.claim.execution_id not in landed]

    @staticmethod
    def _as_values(endings: Sequence[Ending]) -> dict[str, Any]:
        return {
            **_fence_values([ending.claim for ending in endings]),
            "statuses": text_array(ending.status.value for ending in endings),
            "durations": number_array(ending.duration_seconds for ending in endings),
            "details": text_array(_json(ending.details) for ending in endings),
            "messages": text_array(ending.error_message for ending in endings),
            "errors": text_array(_json(ending.error_details) for ending in endings),
            "scans": uuid_array(ending.scan_id for ending in endings),
            "delays": number_array(ending.retry_in_seconds for ending in endings),
            "reasons": text_array(ending.reason for ending in endings),
        }

    def hand_back(self, claims: Sequence[Claim]) -> list[Claim]:
        """Release claims that will not start here, for any replica. Returns those whose row another session locks."""
        return self._give_up(sql.HAND_BACK, claims)

    def unstart(self, claims: Sequence[Claim]) -> list[Claim]:
        """As `hand_back`, for executions that were started, but whose handler was never called."""
        return self._give_up(sql.UNSTART, claims)

    def _give_up(self, statement: str, claims: Sequence[Claim]) -> list[Claim]:
        def transaction(careful: bool) -> list[Claim]:
            with self._connection.transaction():
                free, held = self._apart(claims) if careful else (claims, [])
                if free:
                    self._connection.run(statement, _fence_values(free))
            return list(held)

        return self._retry(transaction) if claims else []

    def _apart(self, claims: Sequence[Claim]) -> tuple[list[Claim], list[Claim]]:
        """Those whose rows we hold now until the end of the transaction, and those that another session holds."""
        ids = {"ids": uuid_array(claim.execution_id for claim in claims)}
        held = {row.execution_id for row in self._connection.run(sql.LOCK_FREE_EXECUTIONS, ids)}
        return (
            [claim for claim in claims if claim.execution_id not in held],
            [claim for claim in claims if claim.execution_id in held],
        )

    # --- look ---

    def without_row(self, fires: Sequence[Fire]) -> list[Fire]:
        """Those of these fires that have no row yet."""
        asked = {
            "ids": uuid_array(fire.schedule_id for fire in fires),
            "scheduled": instant_array(fire.scheduled_for for fire in fires),
        }
        return [fires[row.place] for row in self._connection.run(sql.WITHOUT_ROW, asked)]

    def free_schedules(self, schedule_ids: Sequence[UUID]) -> set[UUID]:
        """Schedules that no session locks at the moment, and deleted ones: their fires can be decided."""
        rows = self._connection.run(sql.LOCK_OR_TELL, {"ids": uuid_array(schedule_ids)})
        return set(schedule_ids) - {row.schedule_id for row in rows}

    # --- inside ---

    def _able(self, schedules: Sequence[Locked]) -> list[bool]:
        """Of each: can this process run its job?"""
        queues = [locked.spec.queue_name for locked in schedules]
        return self._abilities.able(self._abilities.needs_of(schedules, self._connection), queues)

    def _locked(self, row: Row[Any]) -> Locked:
        return Locked.read(row, self._policy)


def _fence_values(claims: Sequence[Claim]) -> dict[str, Any]:
    if not claims:
        return {}
    return {
        "execution_ids": uuid_array(claim.execution_id for claim in claims),
        "tokens": number_array(claim.fencing_token for claim in claims),
    }


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value, default=str)


def is_about_values(error: DBAPIError) -> bool:
    """Can Postgres not store what it was given? Any other error is about the moment: a lock, a timeout, a schema."""
    return sqlstate(error)[:2] in VALUE_ERRORS
