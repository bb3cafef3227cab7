"""The engine's writes to `job_executions`: claim, start, finish, hand back, always in batches.

The unique key (schedule_id, scheduled_for, attempt) is the truth about who runs what, and the fencing token of a row is
asked for by every later write. Transactions lock the schedules in id order first (SKIP LOCKED: nobody waits), then
touch executions. What becomes of a fire is decided by verdicts.py; the SQL is in claims_sql.py. Start reading at
`ExecutionStore.claim`.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Row
from sqlalchemy.exc import DBAPIError

from database.clock import awake_or_not
from database.connection import DatabaseConnection
from database.models import Cause, ExecutionStatus
from database.sqlstates import DEADLOCKS, LOCK_TIMEOUT, VALUE_ERRORS, sqlstate
from services.errors import InvalidSchedule
from services.ledger import claims_sql as sql
from services.ledger.fires import Claim, Ending, Fire, Outcome, Owner, Policy
from services.ledger.former_timings import had_fire
from services.ledger.verdicts import CLAIMED, EARLY, YOUNGEST, Kind, Rule, Situation, Stage, answers, decide, outcomes
from services.schedules.spec import ScheduleSpec
from services.triggers import Trigger, spread_offset

SECOND = timedelta(seconds=1)
DEADLOCK_RETRIES = 5
CAREFUL_SECONDS = 10.0  # after a lock timeout: rows that another session holds are looked for before they are written

T = TypeVar("T")
SPEC_FIELDS = tuple(item.name for item in fields(ScheduleSpec))

BY_ITS_SCHEDULE = answers(
    Stage.DUE,
    Kind.SCHEDULE,
    (
        Situation.TOO_OLD,
        Situation.EARLY,
        Situation.OFF,
        Situation.ENDED,
        Situation.NOT_A_FIRE,
        Situation.OVERDUE,
    ),
)
OUTCOMES = outcomes()


@dataclass(slots=True)
class ClaimReport:
    """One outcome per fire, and the claims among them: those that may run at once, and those that must be started."""

    started: list[Claim] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    outcomes: dict[Fire, Outcome] = field(default_factory=dict)
    due_at: dict[Fire, datetime] = field(default_factory=dict)  # of those that were early


@dataclass(slots=True)
class FinishReport:
    """What was refused by its fence, and what somebody else's lock kept from being written right now."""

    refused: list[Claim] = field(default_factory=list)
    later: list[Ending] = field(default_factory=list)


@dataclass(slots=True)
class StartReport:
    """What may run now, and what another session's lock kept from being started; the rest has to be looked at again."""

    started: list[Claim] = field(default_factory=list)
    later: list[Claim] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Locked:
    """A schedule whose row we hold until the end of the transaction."""

    schedule_id: UUID
    spec: ScheduleSpec
    trigger: Trigger | None  # None: its timing makes no sense
    policy: Policy
    revision: int
    effective_from: datetime
    now: datetime  # by Postgres' clock

    def due_at(self, fire: Fire) -> datetime:
        return fire.scheduled_for + spread_offset(self.schedule_id, self.spec.spread_seconds)

    def has_ended(self, instant: datetime) -> bool:
        """Did this come due under a definition before the present one?"""
        return instant <= self.effective_from

    def fires_at(self, instant: datetime) -> bool:
        return self.trigger is not None and self.trigger.fires_at(instant)

    def next_run(self, fire: Fire) -> datetime | None:
        return self.trigger and self.trigger.next_after(max(fire.scheduled_for, self.now - SECOND))


_Asked = tuple[Fire, _Locked, Rule]  # with the rule under which a row is to be written


class ExecutionStore:
    """For one thread: it keeps a connection of its own. Every method may raise Unavailable and then wrote nothing."""

    def __init__(
        self,
        db: DatabaseConnection,
        owner: Owner,
        policy: Policy,
        horizon_seconds: int,
        *,
        handled: Callable[[], Collection[str]] | None = None,
    ) -> None:
        """`handled`: the job types that this process can run; without it, all."""
        self._connection, self._handled = db.dedicated(), handled
        self._owner, self._policy, self._horizon = owner, policy, timedelta(seconds=horizon_seconds)
        self._careful_until = 0.0

    def close(self) -> None:
        self._connection.close()

    # --- claim ---

    def claim(self, fires: Sequence[Fire], start: int = 0) -> ClaimReport:
        """Decide over fires that are due: claimed by us, settled with a reason, or somebody else's.

        The first `start` of them, for which there is a place already, are claimed and started at once.
        """
        once = list({fire.key: fire for fire in fires}.values())  # twice the same would be coalesced with itself
        return self._retry(lambda careful: self._claim(once, start)) if once else ClaimReport()

    def _claim(self, fires: Sequence[Fire], start: int) -> ClaimReport:
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
                    report.outcomes[fire] = Outcome.LOCKED if fire.schedule_id in held else Outcome.GONE
                    continue
                rule = self._judge(fire, locked)
                report.outcomes[fire] = rule.outcome
                if rule.outcome is Outcome.EARLY:
                    report.due_at[fire] = locked.due_at(fire)
                if rule.verdict.status:
                    asked.append((fire, locked, rule))
            if asked := self._proven(asked):
                self._insert(asked, start, report, asked_at)
        return report

    def _judge(self, fire: Fire, locked: _Locked) -> Rule:
        """As far as the schedule's row decides it."""
        now, due_at = locked.now, locked.due_at(fire)
        return BY_ITS_SCHEDULE[
            fire.scheduled_for < now - self._horizon,
            due_at > now + EARLY,
            not locked.spec.enabled,
            locked.has_ended(fire.scheduled_for),
            not locked.fires_at(fire.scheduled_for),
            now - due_at > timedelta(seconds=locked.policy.misfire_grace_seconds),
        ]

    def _proven(self, asked: list[_Asked]) -> list[_Asked]:
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

    def _insert(self, asked: list[_Asked], start: int, report: ClaimReport, asked_at: float) -> None:
        values = {
            **self._owned(),
            "schedule_ids": uuid_array(fire.schedule_id for fire, _, _ in asked),
            "scheduled": [fire.scheduled_for for fire, _, _ in asked],
            "due": [locked.due_at(fire) for fire, locked, _ in asked],
            "verdicts": [rule.verdict.word for _, _, rule in asked],
            "coalesce": [locked.policy.coalesce for _, locked, _ in asked],
            "limits": [locked.policy.max_instances for _, locked, _ in asked],
            "job_ids": [locked.spec.name or str(locked.schedule_id) for _, locked, _ in asked],
            "domains": [locked.spec.domain for _, locked, _ in asked],
            "config_ids": uuid_array(locked.spec.domain_config_id for _, locked, _ in asked),
            "next_runs": [locked.next_run(fire) if rule.verdict is CLAIMED else None for fire, locked, rule in asked],
            "starts": [place < start for place in range(len(asked))],
            "handled": [self._handles(locked) for _, locked, _ in asked],
        }
        is_late = any(locked.now - fire.scheduled_for > YOUNGEST for fire, locked, _ in asked)
        statement = sql.INSERT_LATE_CLAIMS if is_late else sql.INSERT_CLAIMS
        written = {(row.schedule_id, row.scheduled_for): row for row in self._connection.run(statement, values)}
        for fire, locked, _ in asked:
            row = written.get(fire.key)
            if row is None:
                report.outcomes[fire] = Outcome.EXISTS
                continue
            report.outcomes[fire] = outcome = OUTCOMES[row.status, row.reason]
            if outcome is Outcome.CLAIMED:
                claim = self._as_claim(row, locked, locked.due_at(fire), asked_at)
                (report.started if row.status == ExecutionStatus.RUNNING else report.claims).append(claim)

    def claim_pending(self, limit: int) -> tuple[list[Claim], bool]:
        """Take rows that wait without an owner and are due: retries, people's wishes, catch-up, what was handed back.

        Also says whether it is worth asking again soon: where there was one, another may have waited behind it.
        """
        return self._retry(lambda careful: self._claim_pending(limit))

    def _claim_pending(self, limit: int) -> tuple[list[Claim], bool]:
        asked_at = awake_or_not()
        with self._connection.transaction():
            horizon = {"horizon": self._horizon.total_seconds()}
            defaults = {"max_instances": self._policy.max_instances, "grace": self._policy.misfire_grace_seconds}
            job_types = None if self._handled is None else list(self._handled())
            rows = self._connection.run(
                sql.LOCK_PENDING, {"limit": limit, "job_types": job_types, **defaults, **horizon}
            )
            if not rows:
                return [], False
            schedules = {row.wanted: self._locked(row) if row.schedule_id else None for row in rows}
            theirs = [schedules[row.wanted] for row in rows]
            values = {
                **self._owned(),
                **horizon,
                "execution_ids": [row.execution_id for row in rows],
                "schedule_ids": [row.wanted for row in rows],
                "limits": [locked and locked.policy.max_instances for locked in theirs],
                "graces": [locked and locked.policy.misfire_grace_seconds for locked in theirs],
                "enabled": [locked and locked.spec.enabled for locked in theirs],
                "effective_from": [locked and locked.effective_from for locked in theirs],
                "handled": [locked and self._handles(locked) for locked in theirs],
                "names": [locked and locked.spec.job_type for locked in theirs],
            }
            settled = self._connection.run(sql.CLAIM_PENDING, values)
        claims = [
            self._as_claim(row, locked, row.due_at, asked_at)
            for row in settled
            if row.status == ExecutionStatus.CLAIMED and (locked := schedules[row.schedule_id])
        ]
        return claims, bool(settled)

    # --- start ---

    def start(self, claims: Sequence[Claim]) -> StartReport:
        """`claimed` -> `running` for what is still ours and whose schedule is as it was when we claimed."""
        return self._retry(lambda careful: self._start(claims, careful)) if claims else StartReport()

    def _start(self, claims: Sequence[Claim], careful: bool) -> StartReport:
        with self._connection.transaction():
            free, held = self._apart(claims) if careful else (claims, [])
            values = {**_fenced(free), "revisions": [claim.revision for claim in free]}
            values["schedule_ids"] = uuid_array(claim.schedule_id for claim in free)
            rows = self._connection.run(sql.START, values) if free else []
        started = {(row.execution_id, row.fencing_token) for row in rows}
        return StartReport([claim for claim in free if claim.proof in started], held)

    def look_again(self, claim: Claim) -> Claim | None:
        """The claim under the schedule's present definition; None when it is not ours any more, or skipped by now."""
        with self._connection.transaction():
            rows = self._connection.run(sql.LOOK_AGAIN, {"schedule_id": claim.schedule_id, **_fenced([claim])})
            if not rows:
                return None
            row = rows[0]
            locked = self._locked(row) if row.schedule_id is not None else None
            verdict = self._judge_again(claim, locked).verdict
            if verdict.reason:
                self._connection.run(sql.END_UNSTARTED, {"execution_id": claim.execution_id, **verdict.as_values()})
            elif verdict.status == ExecutionStatus.PENDING:
                self._connection.run(sql.HAND_BACK, _fenced([claim]))
            elif locked is not None:
                return _with_definition(claim, locked)
        return None

    def _judge_again(self, claim: Claim, locked: _Locked | None) -> Rule:
        """Now that its schedule changed after the claim."""
        if locked is None:
            situations = {Situation.DELETED: True}
        else:
            situations = {
                Situation.OFF: not locked.spec.enabled,
                Situation.ENDED: locked.has_ended(claim.scheduled_for),
                Situation.NOT_A_FIRE: not locked.fires_at(claim.scheduled_for),
                Situation.UNKNOWN_JOB: not self._handles(locked),
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
                report.refused = self._refused(rest) if rest else []
        return report

    def _refused(self, unwritten: Sequence[Ending]) -> list[Claim]:
        values = self._as_values(unwritten)
        landed = {row.execution_id for row in self._connection.run(sql.LANDED, values)}
        return [ending.claim for ending in unwritten if ending.claim.execution_id not in landed]

    @staticmethod
    def _as_values(endings: Sequence[Ending]) -> dict[str, Any]:
        return {
            **_fenced([ending.claim for ending in endings]),
            "statuses": [ending.status.value for ending in endings],
            "durations": [ending.duration_seconds for ending in endings],
            "details": [_json(ending.details) for ending in endings],
            "messages": [ending.error_message for ending in endings],
            "errors": [_json(ending.error_details) for ending in endings],
            "scans": uuid_array(ending.scan_id for ending in endings),
            "delays": [ending.retry_in_seconds for ending in endings],
            "reasons": [ending.reason for ending in endings],
        }

    def hand_back(self, claims: Sequence[Claim]) -> list[Claim]:
        """Give up claims that we shall not start: anybody may take them. Returns those that another session holds."""
        return self._give_up(sql.HAND_BACK, claims)

    def unstart(self, claims: Sequence[Claim]) -> list[Claim]:
        """As `hand_back`, for executions that were started, but whose handler was never called."""
        return self._give_up(sql.UNSTART, claims)

    def _give_up(self, statement: str, claims: Sequence[Claim]) -> list[Claim]:
        def transaction(careful: bool) -> list[Claim]:
            with self._connection.transaction():
                free, held = self._apart(claims) if careful else (claims, [])
                if free:
                    self._connection.run(statement, _fenced(free))
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
        """Those of these fires that nobody has decided about."""
        ids, scheduled = uuid_array(fire.schedule_id for fire in fires), [fire.scheduled_for for fire in fires]
        return [fires[row.place] for row in self._connection.run(sql.WITHOUT_ROW, {"ids": ids, "scheduled": scheduled})]

    def free_schedules(self, schedule_ids: Sequence[UUID]) -> set[UUID]:
        """Those that nobody holds at this moment, and those that were deleted: their fires can be decided."""
        rows = self._connection.run(sql.LOCK_OR_TELL, {"ids": uuid_array(schedule_ids)})
        return set(schedule_ids) - {row.schedule_id for row in rows}

    # --- inside ---

    def _retry(self, transaction: Callable[[bool], T]) -> T:
        """A deadlock's victim wrote nothing: the same again is safe.

        After a lock timeout the transaction is `careful`: it leaves out the rows that another session holds.
        """
        for _ in range(DEADLOCK_RETRIES):
            careful = time.monotonic() < self._careful_until
            try:
                return transaction(careful)
            except DBAPIError as error:
                code = sqlstate(error)
                if code == LOCK_TIMEOUT and not careful:
                    self._careful_until = time.monotonic() + CAREFUL_SECONDS
                elif code not in DEADLOCKS:
                    raise
        return transaction(True)

    def _handles(self, locked: _Locked) -> bool:
        return self._handled is None or locked.spec.job_type in self._handled()

    def _owned(self) -> dict[str, Any]:
        return {"instance_id": self._owner.instance_id, "incarnation": self._owner.incarnation}

    def _locked(self, row: Row[Any]) -> _Locked:
        # Every statement that locks schedules ends with the columns of the definition and the clock.
        spec = ScheduleSpec(**dict(zip(SPEC_FIELDS, row[-1 - len(SPEC_FIELDS) : -1], strict=True)))
        policy = self._policy.of(spec)
        return _Locked(row.schedule_id, spec, _trigger(spec), policy, row.revision, row.effective_from, row.now)

    @staticmethod
    def _as_claim(row: Row[Any], locked: _Locked, due_at: datetime, asked_at: float) -> Claim:
        return Claim(
            execution_id=row.execution_id,
            schedule_id=row.schedule_id,
            scheduled_for=row.scheduled_for,
            due_at=due_at,
            attempt=row.attempt,
            cause=Cause(row.cause),
            fencing_token=row.fencing_token,
            job_id=row.job_id,
            spec=locked.spec,
            policy=locked.policy,
            revision=locked.revision,
            asked_at=asked_at,
        )


def _with_definition(claim: Claim, locked: _Locked) -> Claim:
    return replace(claim, spec=locked.spec, policy=locked.policy, revision=locked.revision)


def _fenced(claims: Sequence[Claim]) -> dict[str, Any]:
    if not claims:
        return {}
    return {
        "execution_ids": uuid_array(claim.execution_id for claim in claims),
        "tokens": [claim.fencing_token for claim in claims],
    }


def _trigger(spec: ScheduleSpec) -> Trigger | None:
    try:
        return spec.trigger
    except InvalidSchedule:
        return None


def uuid_array(ids: Iterable[UUID | None]) -> str:
    """As the text of an array: the driver would make an object of each one."""
    return "{" + ",".join("NULL" if each is None else each.hex for each in ids) + "}"


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value, default=str)


def is_about_values(error: DBAPIError) -> bool:
    """Can Postgres not store what it was given? Any other error is about the moment: a lock, a timeout, a schema."""
    return sqlstate(error)[:2] in VALUE_ERRORS
