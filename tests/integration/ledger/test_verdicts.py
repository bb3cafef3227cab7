"""Every cell of the table of verdicts against the real statements: made as rows, judged, and compared.

The statements are made from the table, so the table itself is compared with what is written down here.
"""

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection

from config import Settings
from database.connection import DatabaseConnection
from database.models import ExecutionStatus
from services.insight.audit import audit_by
from services.insight.explain.explainer import Explainer, Verdict
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Decision, Fire, Owner
from services.ledger.needs import Abilities
from services.ledger.verdicts import Kind, Situation, Stage, Tolerances, cells, decide
from services.ledger.waiting import SETTLED_AT_ONCE
from tests.integration.engine.test_gap_scan import LIMITS, MINUTE, Replica, Table
from tests.support.executions import POLICY, Make, ago, happened, settling_of

S = Situation
Case = tuple[Kind, tuple[Situation, ...]]
Ended = tuple[str | None, str | None]  # status and reason; without a row neither

# Situation, status and reason, kinds of rows; "-" means that no row is written.
TABLE = {
    Stage.DUE: """
        otherwise       claimed              schedule
        too_old         -                    schedule
        early           -                    schedule
        off             -                    schedule
        ended           skipped:changed      schedule
        off+ended       skipped:disabled     schedule
        not_a_fire      -                    schedule
        backing_off     skipped:backoff      schedule
        overdue         missed:misfire       schedule
    """,
    Stage.CLAIM: """
        otherwise       claimed              schedule
        coalesces       skipped:coalesced    schedule
        stood_for       skipped:coalesced    schedule
        no_room         skipped:overlap      schedule
        others_first    pending              schedule
        behind          pending              schedule
        no_room+behind  skipped:overlap      schedule
        unable          pending              schedule
        limited         pending:limit:<key>  schedule
    """,
    Stage.WAITING: """
        otherwise           claimed              schedule catchup retry manual manual_retry backfill
        cancel_requested    cancelled:cancelled  schedule catchup retry manual manual_retry backfill
        deleted             skipped:deleted      schedule catchup retry manual manual_retry backfill
        off                 skipped:disabled     schedule catchup retry
        off                 claimed              manual manual_retry backfill
        ended               skipped:changed      schedule catchup
        ended               claimed              retry manual manual_retry backfill
        overdue             missed:misfire       schedule
        overdue             claimed              catchup retry manual manual_retry backfill
        unable              pending              schedule catchup retry manual manual_retry backfill
        overdue+unable      missed:misfire       schedule
        overdue+unable      pending              catchup retry manual manual_retry backfill
        nobody_able         claimed              schedule catchup retry manual manual_retry backfill
        nobody_able+overdue missed:nobody_able   schedule catchup retry manual manual_retry
        for_limit           claimed              schedule catchup retry manual manual_retry backfill
        for_limit+overdue   missed:limit         schedule catchup retry manual manual_retry
        for_limit+overdue   claimed              backfill
        limited             pending:limit:<key>  schedule catchup retry manual manual_retry backfill
        limited+overdue     missed:misfire       schedule
        limited+overdue     pending:limit:<key>  catchup retry manual manual_retry backfill
        no_room             pending              schedule catchup retry manual manual_retry backfill
        no_room+overdue     missed:misfire       schedule
        no_room+overdue     skipped:overlap      catchup retry manual manual_retry
        no_room+overdue     pending              backfill
    """,
    Stage.START: """
        otherwise       claimed              schedule catchup retry manual manual_retry backfill
        deleted         skipped:deleted      schedule catchup retry manual manual_retry backfill
        off             skipped:disabled     schedule catchup retry
        off             claimed              manual manual_retry backfill
        ended           skipped:changed      schedule catchup retry
        ended           claimed              manual manual_retry backfill
        not_a_fire      skipped:changed      schedule catchup retry
        not_a_fire      claimed              manual manual_retry backfill
        unable          pending              schedule catchup retry manual manual_retry backfill
        other_keys      pending              schedule catchup retry manual manual_retry backfill
    """,
    Stage.GAP_SCAN: """
        otherwise       missed:downtime      schedule
        caught_up       pending              schedule
        tried_again     -                    schedule
        beyond_cap      missed:catchup_cap   schedule
        ended           missed:changed       schedule
    """,
}

IMPOSSIBLE = [
    {S.EARLY, S.TOO_OLD},
    {S.EARLY, S.OVERDUE},
    {S.COALESCES, S.OTHERS_FIRST},
    {S.COALESCES, S.BEHIND},
    {S.STOOD_FOR, S.OTHERS_FIRST},
    {S.STOOD_FOR, S.BEHIND},
    {S.CAUGHT_UP, S.TRIED_AGAIN},
    {S.CAUGHT_UP, S.ENDED},
    {S.TRIED_AGAIN, S.ENDED},
]
AS_ROW = {
    Kind.SCHEDULE: ("schedule", 1),
    Kind.CATCHUP: ("catchup", 1),
    Kind.RETRY: ("schedule", 2),
    Kind.MANUAL: ("manual", 1),
    Kind.MANUAL_RETRY: ("manual", 2),
    Kind.BACKFILL: ("backfill", 1),
}
HORIZON, GRACE = 86_400, 60
WAITS = {  # seconds
    Kind.SCHEDULE: GRACE,
    Kind.CATCHUP: HORIZON,
    Kind.RETRY: HORIZON,
    Kind.MANUAL: GRACE,
    Kind.MANUAL_RETRY: HORIZON,
    Kind.BACKFILL: None,  # as long as it takes
}


def cases(stage: Stage) -> list[Case]:
    return [(kind, each) for at, kind, each in cells() if at is stage and set(each) not in IMPOSSIBLE]


def expected(stage: Stage, case: Case) -> Ended:
    kind, situations = case
    holding = [each for each in situations if not (each is S.OVERDUE and WAITS[kind] is None)]
    verdict = decide(stage, kind, holding).verdict
    return verdict.status, verdict.reason


def written_down(stage: Stage) -> Iterator[tuple[Case, Ended]]:
    for line in TABLE[stage].strip().splitlines():
        name, word, *kinds = line.split()
        situations = () if name == "otherwise" else tuple(S(each) for each in name.split("+"))
        status, _, reason = word.partition(":")
        for kind in kinds:
            yield (Kind(kind), situations), (None if status == "-" else status, reason or None)


@pytest.mark.parametrize("stage", Stage)
def test_the_table_says_what_is_written_down_here(stage: Stage) -> None:
    lines = dict(written_down(stage))
    assert {case: expected(stage, case) for case in lines} == lines
    singles = {(kind, each) for kind, each in cases(stage) if len(each) < 2}
    assert singles <= lines.keys(), "a new situation or kind has its place here"


# --- rows in every situation ---


@dataclass(slots=True)
class Rows:
    """Schedules that fire every second, each for one case; changed without a trigger, so that nothing else changes."""

    db: DatabaseConnection
    make: Make

    @contextmanager
    def quietly(self) -> Iterator[Connection]:
        with self.db.transaction() as connection:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            yield connection

    def schedules(self, stage: Stage) -> dict[UUID, Case]:
        example, found = self.make(misfire_grace_seconds=GRACE), cases(stage)
        with self.quietly() as connection:
            rows = connection.exec_driver_sql(COPY, (len(found), example)).scalars().all()
        return dict(zip(rows, found, strict=True))

    def set(self, schedule_id: UUID, situations: Collection[Situation], at: datetime) -> None:
        """What the row of a schedule shows. A change of its timing is in the log."""
        changes = {
            S.OFF: "enabled = false",
            S.NOT_A_FIRE: "time_config = '{\"seconds\": 86399}'",
            S.BACKING_OFF: "backoff_after_failures = 1, backoff_until = now() + interval '1 hour'",
            S.UNABLE: "job_type = 'letter'",
            S.NOBODY_ABLE: "job_type = 'unheard-of'",
            S.OTHER_KEYS: "limit_keys = '{others}'",
            S.LIMITED: "limit_keys = limit_keys || '{full}'",
            S.FOR_LIMIT: "limit_keys = limit_keys || '{roomy}'",
        }
        if S.ENDED in situations:
            happened(self.db, schedule_id, "priority = priority + 1", at)
        with self.quietly() as connection:
            for situation in [each for each in changes if each in situations]:
                connection.exec_driver_sql(
                    f"UPDATE schedules SET {changes[situation]} WHERE schedule_id = %s", (schedule_id,)
                )
            if S.DELETED in situations:
                connection.exec_driver_sql("DELETE FROM schedules WHERE schedule_id = %s", (schedule_id,))

    def execution(self, schedule_id: UUID, kind: Kind, at: datetime, status: str, due_at: datetime) -> None:
        cause, attempt = AS_ROW[kind]
        values = {"id": schedule_id, "status": status, "at": at, "due": due_at, "cause": cause, "attempt": attempt}
        with self.quietly() as connection:
            connection.exec_driver_sql(EXECUTION, values)

    def became(self, schedule_id: UUID, at: datetime) -> Ended:
        with self.db.transaction() as connection:
            found = connection.exec_driver_sql(BECAME, (schedule_id, at)).one_or_none()
        return (None, None) if found is None else (found.status, WAITED_FOR.get(found.reason, found.reason))


# With which reason a row waits now: for a key without room, or for none, although it once waited for one that has room.
WAITED_FOR = {"limit:full": "limit:<key>", "limit:roomy": None}
COPY = """
INSERT INTO schedules (
    domain_config_id, domain, job_type, frequency, time_config, effective_from, misfire_grace_seconds, coalesce
)
SELECT gen_random_uuid(), domain || n, job_type, frequency, time_config, effective_from - interval '2 days',
       misfire_grace_seconds, coalesce
FROM schedules, generate_series(1, %s) AS n WHERE schedule_id = %s
RETURNING schedule_id
"""
EXECUTION = """
INSERT INTO job_executions (
    schedule_id, job_id, domain, domain_config_id, status, scheduled_for, cause, attempt, due_at
)
VALUES (%(id)s, 'job', 'job', %(id)s, %(status)s, %(at)s, %(cause)s, %(attempt)s, %(due)s)
"""
FOR_LIMIT = """
UPDATE job_executions SET reason = 'limit:roomy', metadata = '{"waited_for_limit": "roomy"}'
WHERE schedule_id = %s AND scheduled_for = %s
"""
PUT_LIMITS = "INSERT INTO limits (name, max_running) VALUES ('full', 0), ('roomy', 10000)"
CANCEL = "UPDATE job_executions SET cancel_requested_at = now() WHERE schedule_id = %s AND scheduled_for = %s"
BECAME = "SELECT status, reason FROM job_executions WHERE schedule_id = %s AND scheduled_for = %s"


@pytest.fixture
def table(db: DatabaseConnection, make: Make) -> Rows:
    return Rows(db, make)


@contextmanager
def claiming(db: DatabaseConnection, horizon_seconds: int = HORIZON) -> Iterator[ExecutionStore]:
    """A replica that knows the job type noop and no other; another one knows letters."""
    owner, abilities = Owner("replica", uuid4()), Abilities(lambda: {"noop"})
    with db.transaction() as connection:
        connection.exec_driver_sql(ALIVE, (*owner.as_values().values(), abilities.words()))
        connection.exec_driver_sql(ALIVE, ("other", uuid4(), ["job:letter"]))
        connection.exec_driver_sql(PUT_LIMITS)
    with closing(ExecutionStore(db, owner, POLICY, horizon_seconds, abilities=abilities)) as store:
        yield store


ALIVE = """
INSERT INTO scheduler_instances (instance_id, incarnation, alive_since, abilities, queues, free_slots)
VALUES (%s, %s, now() - interval '1 hour', %s, '{default}', 0)
"""


# --- stage by stage ---


def test_a_due_fire_ends_as_the_row_of_its_schedule_says(db: DatabaseConnection, table: Rows) -> None:
    horizon, fires = 600, {}
    for schedule_id, case in table.schedules(Stage.DUE).items():
        _, situations = case
        at = ago(-3600 if S.EARLY in situations else 700 if S.TOO_OLD in situations else 100)
        table.set(schedule_id, situations, at)
        with table.quietly() as connection:
            grace = 5 if S.OVERDUE in situations else 3600
            connection.exec_driver_sql(
                "UPDATE schedules SET misfire_grace_seconds = %s WHERE schedule_id = %s", (grace, schedule_id)
            )
        fires[case] = Fire(schedule_id, at, at)
    with claiming(db, horizon) as store:
        told = store.claim(list(fires.values())).decisions
    became = {case: table.became(fire.schedule_id, fire.scheduled_for) for case, fire in fires.items()}
    assert became == {case: expected(Stage.DUE, case) for case in fires}
    for (kind, situations), fire in fires.items():
        rule = decide(Stage.DUE, kind, situations)
        assert told[fire] == (rule.decision if rule.when else Decision.CLAIMED), situations


def test_a_fire_that_may_run_ends_as_the_executions_beside_it_say(db: DatabaseConnection, table: Rows) -> None:
    tested, others = {}, []
    for schedule_id, case in table.schedules(Stage.CLAIM).items():
        _, situations = case
        table.set(schedule_id, situations, ago(30))
        with table.quietly() as connection:
            connection.exec_driver_sql(
                "UPDATE schedules SET coalesce = %s WHERE schedule_id = %s",
                (bool({S.COALESCES, S.STOOD_FOR} & set(situations)), schedule_id),
            )
        if {S.STOOD_FOR, S.BEHIND} & set(situations):
            table.execution(schedule_id, Kind.SCHEDULE, ago(60), "pending", ago(5))
        if S.NO_ROOM in situations:
            table.execution(schedule_id, Kind.SCHEDULE, ago(50), "running", ago(50))
        if S.OTHERS_FIRST in situations:
            others.append(Fire(schedule_id, ago(40), ago(40)))
        if S.COALESCES in situations:
            others.append(Fire(schedule_id, ago(20), ago(20)))
        tested[case] = Fire(schedule_id, ago(30), ago(30))
    with claiming(db) as store:
        told = store.claim([*tested.values(), *others]).decisions
    became = {case: table.became(fire.schedule_id, ago(30)) for case, fire in tested.items()}
    assert became == {case: expected(Stage.CLAIM, case) for case in tested}
    for (kind, situations), fire in tested.items():
        assert told[fire] == decide(Stage.CLAIM, kind, situations).decision, situations


def waiting_rows(table: Rows, at: datetime, *, is_running: bool = True) -> dict[UUID, Case]:
    schedules = table.schedules(Stage.WAITING)
    for schedule_id, (kind, situations) in schedules.items():
        table.set(schedule_id, situations, at)
        table.execution(schedule_id, kind, at, "pending", due_at(kind, situations))
        if S.NO_ROOM in situations:
            status = "running" if is_running else "pending"
            table.execution(schedule_id, Kind.BACKFILL, ago(50), status, ago(2 * HORIZON))
        for situation, statement in ((S.CANCEL_REQUESTED, CANCEL), (S.FOR_LIMIT, FOR_LIMIT)):
            if situation in situations:
                with table.quietly() as connection:
                    connection.exec_driver_sql(statement, (schedule_id, at))
    return schedules


def as_judged(case: Case, *more: Situation) -> Case:
    """What nobody is able to run, we are not."""
    kind, situations = case
    return kind, (*situations, *more, *([S.UNABLE] if S.NOBODY_ABLE in situations else []))


@pytest.mark.parametrize("room", ["taken by a running execution", "taken by a row before it"])
def test_a_waiting_row_ends_as_its_kind_and_situation_say(db: DatabaseConnection, table: Rows, room: str) -> None:
    at, is_running = ago(30), "running" in room
    schedules = waiting_rows(table, at, is_running=is_running)
    with claiming(db) as store:
        store.waiting.take(1000)
    assert {case: table.became(schedule_id, at) for schedule_id, case in schedules.items()} == {
        case: ("pending", None) if is_passed_over(case, is_running) else expected(Stage.WAITING, as_judged(case))
        for case in schedules.values()
    }


def test_to_settle_ends_the_same_rows_and_gives_nobody_a_token(db: DatabaseConnection, table: Rows) -> None:
    at = ago(30)
    schedules = waiting_rows(table, at)
    with claiming(db) as store, closing(settling_of(db, store)) as settling:
        while settling.settle() >= SETTLED_AT_ONCE:
            pass
    assert {case: table.became(schedule_id, at) for schedule_id, case in schedules.items()} == {
        case: expected(Stage.WAITING, as_judged(case, S.UNABLE)) for case in schedules.values()
    }
    with db.transaction() as connection:
        assert connection.exec_driver_sql("SELECT count(fencing_token) FROM job_executions").scalar() == 0


def due_at(kind: Kind, situations: Collection[Situation]) -> datetime:
    """Overdue, or as late as its kind may be without being so."""
    seconds = HORIZON if S.FOR_LIMIT in situations else WAITS[kind] or HORIZON
    return ago(seconds + 20 if S.OVERDUE in situations else seconds - 30)


def is_passed_over(case: Case, is_running: bool) -> bool:
    """What would only wait for room, or has no schedule to be locked with, is left to the settler."""
    return S.DELETED in case[1] or (S.NO_ROOM in case[1] and is_running)


def test_a_claimed_row_whose_schedule_changed_ends_as_its_kind_and_situation_say(
    db: DatabaseConnection, table: Rows
) -> None:
    schedules, at, goes_on = table.schedules(Stage.START), ago(30), {}
    for schedule_id, (kind, _) in schedules.items():
        table.execution(schedule_id, kind, at, "pending", ago(10))
    with claiming(db) as store:
        claims = {claim.schedule_id: claim for claim in store.waiting.take(1000).claims}
        assert claims.keys() == schedules.keys()
        for schedule_id, (_, situations) in schedules.items():
            table.set(schedule_id, situations, at)
            goes_on[schedule_id] = store.look_again(claims[schedule_id]) is not None
    became = {case: table.became(schedule_id, at) for schedule_id, case in schedules.items()}
    assert became == {case: expected(Stage.START, case) for case in schedules.values()}
    assert {case: goes_on[schedule_id] for schedule_id, case in schedules.items()} == {
        case: status == ExecutionStatus.CLAIMED for case, (status, _) in became.items()
    }


@pytest.mark.parametrize("case", cases(Stage.GAP_SCAN), ids=lambda case: "+".join(case[1]) or "otherwise")
def test_a_fire_without_a_row_ends_as_its_situation_says(db: DatabaseConnection, table: Rows, case: Case) -> None:
    _, situations = case
    gaps = Table(db, datetime.now(UTC).replace(second=30, microsecond=0))
    more: dict[str, Any] = {"catchup": "one" if S.CAUGHT_UP in situations else "none", "misfire_grace_seconds": 1}
    length = 20 * MINUTE if S.BEYOND_CAP in situations else 5 * MINUTE
    replica = Replica(db, gaps.now)
    if S.TRIED_AGAIN in situations:
        replica.now -= length
        replica.scan()  # from now on it is there itself
        replica.now += length
        more |= {"time_config": {"seconds": 1}}
    schedule_id = gaps.schedule(length, **more)
    if S.ENDED in situations:
        happened(db, schedule_id, "enabled = false", gaps.now - MINUTE)
    replica.scan()
    replica.watcher.close()
    oldest, latest = gaps.now.replace(second=0) - length + MINUTE, gaps.now.replace(second=0)
    if S.TRIED_AGAIN in situations:
        latest = gaps.now - LIMITS.settle
        assert latest in {fire.scheduled_for for fire in replica.handed_over}
    tested = latest if {S.CAUGHT_UP, S.TRIED_AGAIN} & set(situations) else oldest
    assert table.became(schedule_id, tested) == expected(Stage.GAP_SCAN, case)


# --- tolerances ---


@pytest.mark.parametrize(
    ("verify_after_seconds", "expected"),
    [
        (20, {"recorded": False, "lost": 0, "explained": Verdict.SETTLING}),
        (3, {"recorded": True, "lost": 1, "explained": Verdict.UNACCOUNTED}),
    ],
)
def test_gap_scan_audit_and_explanation_agree_whether_a_fire_still_has_its_chance(
    db: DatabaseConnection, make: Make, verify_after_seconds: float, expected: dict[str, Any]
) -> None:
    """Redis said 8 seconds ago that another replica has it. VERIFY_AFTER_SECONDS says when somebody looks at that."""
    settings = Settings(_env_file=None, verify_after_seconds=verify_after_seconds)
    schedule_id, at = make(frequency="once", time_config={"at": ago(8).isoformat()}), ago(8)
    rows = Rows(db, make)
    replica = Replica(db, ago(0), limits=Tolerances.from_settings(settings))
    replica.scan()
    replica.watcher.close()
    recorded = rows.became(schedule_id, at) != (None, None)
    with rows.quietly() as connection:
        connection.exec_driver_sql("DELETE FROM job_executions")
        connection.exec_driver_sql("UPDATE schedule_changes SET changed_at = %s", (ago(3600),))
        connection.exec_driver_sql("UPDATE fires_watched SET since = %s, until = now()", (ago(3600),))
    report = audit_by(settings, db, ago(600))
    explained = Explainer.from_settings(db, POLICY, settings).explain(schedule_id, at).verdict
    assert {"recorded": recorded, "lost": len(report.unexplained), "explained": explained} == expected
    assert report.on_the_edge == 1 - len(report.unexplained)
    due = Fire(schedule_id, at, at)
    with claiming(db) as store:
        assert store.claim([due]).decisions == {due: Decision.CLAIMED}
