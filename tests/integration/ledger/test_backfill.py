"""Past fires once more: which of them, as which attempt, in what order, and what is refused."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner

import manage
from database.connection import DatabaseConnection
from database.models import ExecutionStatus
from services.errors import InvalidInput, InvalidSchedule, ScheduleNotFound
from services.insight.audit import audit
from services.insight.explain.explainer import Explainer, Verdict
from services.job_history import JobHistory
from services.ledger.backfill import HIGHEST_LIMIT, Backfill, Backfills
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Claim, Decision, Ending
from tests.support.executions import POLICY, TOLERANCES, Make, ago, fire, rows

MINUTE: dict[str, Any] = {"time_config": {"seconds": 60}}


@pytest.fixture
def backfills(db: DatabaseConnection) -> Backfills:
    return Backfills(db, timedelta(days=89))


def run_sql(db: DatabaseConnection, sql: str, *values: Any) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(sql, values)


def add(db: DatabaseConnection, schedule_id: UUID, at: datetime, status: str, **more: Any) -> None:
    row = {"schedule_id": schedule_id, "job_id": "job", "domain": "job", "domain_config_id": schedule_id, **more}
    row |= {"status": status, "scheduled_for": at, "due_at": at}
    names = ", ".join(row)
    run_sql(db, f"INSERT INTO job_executions ({names}) VALUES ({', '.join(['%s'] * len(row))})", *row.values())


def last_seconds(backfills: Backfills, schedule_id: UUID, seconds: int, **how: Any) -> Backfill:
    """Of a schedule that fires every second."""
    return backfills.request(schedule_id, ago(seconds), ago(0), "cli:anna", **how)


def asked(made: Backfill) -> list[tuple[datetime, int]]:
    return [(item.scheduled_for, item.attempt) for item in made.fires]


def finish(store: ExecutionStore, claim: Claim, status: ExecutionStatus = ExecutionStatus.SUCCESS, **more: Any) -> None:
    assert store.start([claim]).started == [claim]
    assert not store.finish([Ending(claim=claim, status=status, duration_seconds=0.1, **more)]).refused


# --- which fires ---


def test_what_did_not_succeed_is_tried_again_and_what_did_or_goes_on_is_left_out(
    db: DatabaseConnection, backfills: Backfills, make: Make
) -> None:
    schedule_id = make()
    add(db, schedule_id, ago(6), "success")
    add(db, schedule_id, ago(5), "failed")
    add(db, schedule_id, ago(5), "failed", attempt=2)
    add(db, schedule_id, ago(4), "missed", reason="downtime", cause="catchup")
    add(db, schedule_id, ago(3), "running")
    add(db, schedule_id, ago(2), "failed")
    add(db, schedule_id, ago(2), "success", attempt=2)
    made = last_seconds(backfills, schedule_id, 6)
    assert asked(made) == [(ago(5), 3), (ago(4), 2), (ago(1), 1)]
    assert (made.succeeded, made.open, made.not_due) == (2, 1, 0)
    written = "scheduled_for, attempt, cause, execution_id, metadata->>'requested_by'"
    assert [row for row in rows(db, written) if row[2] == "backfill"] == [
        (item.scheduled_for, item.attempt, "backfill", item.execution_id, "cli:anna") for item in made.fires
    ]


def test_what_other_schedules_did_at_the_same_time_is_theirs(
    db: DatabaseConnection, backfills: Backfills, make: Make
) -> None:
    wanted, other = make(), make()
    for seconds in (3, 2, 1):
        add(db, other, ago(seconds), "success")
    assert asked(last_seconds(backfills, wanted, 3)) == [(ago(3), 1), (ago(2), 1), (ago(1), 1)]


def test_the_same_again_finds_everything_open(backfills: Backfills, make: Make) -> None:
    schedule_id = make()
    last_seconds(backfills, schedule_id, 3)
    again = last_seconds(backfills, schedule_id, 3)
    assert (again.fires, again.open) == ([], 3)


def test_the_beginning_belongs_to_the_range_and_the_end_does_not(backfills: Backfills, make: Make) -> None:
    schedule_id = make()
    half = timedelta(milliseconds=500)
    for since, until, expected in (
        (ago(9), ago(7), [ago(9), ago(8)]),
        (ago(9) + half, ago(7), [ago(8)]),
        (ago(9), ago(7) + half, [ago(9), ago(8), ago(7)]),
    ):
        made = backfills.request(schedule_id, since, until, "test", dry_run=True)
        assert [item.scheduled_for for item in made.fires] == expected


def test_a_dry_run_says_the_same_and_writes_nothing(db: DatabaseConnection, backfills: Backfills, make: Make) -> None:
    schedule_id = make()
    add(db, schedule_id, ago(2), "failed")
    planned = last_seconds(backfills, schedule_id, 3, dry_run=True)
    assert {item.execution_id for item in planned.fires} == {None}
    assert rows(db) == [("failed", None)]
    assert asked(planned) == asked(last_seconds(backfills, schedule_id, 3))


def test_a_spread_fire_that_is_not_due_yet_keeps_its_ordinary_chance(
    db: DatabaseConnection, backfills: Backfills, make: Make
) -> None:
    schedule_id = make(schedule_id=UUID(int=2**128 - 1), spread_seconds=86_400)
    made = last_seconds(backfills, schedule_id, 3)
    assert (made.fires, made.not_due) == ([], 3)
    assert rows(db) == []


def test_fires_of_a_time_before_the_timing_or_of_a_disabled_schedule_may_be_wanted(
    backfills: Backfills, make: Make, store: ExecutionStore
) -> None:
    schedule_id = make(**MINUTE, enabled=False)
    made = backfills.request(schedule_id, ago(30 * 86_400), ago(30 * 86_400 - 60), "test")
    (claim,) = store.waiting.take(10).claims
    assert [(claim.scheduled_for, claim.attempt)] == asked(made)
    assert store.start([claim]).started == [claim]


@pytest.mark.parametrize(
    ("since", "until", "limit", "problem"),
    [
        (60, 60, 100, "from: must be before "),
        (60, 120, 100, "from: must be before "),
        (60, -3600, 100, "to: must lie in the past: only past fires can be backfilled, and it is now "),
        (90 * 86_400, 0, 100, "from: must not be before "),
        (3540, 3530, 100, "from: no fire between "),
        (50, 0, 49, "limit: there are more than 49 fires; take "),
        (50, 0, 0, "limit: must be between 1 and 1000, got 0"),
        (50, 0, 1001, "limit: must be between 1 and 1000, got 1001"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(
    db: DatabaseConnection, backfills: Backfills, make: Make, since: int, until: int, limit: int, problem: str
) -> None:
    schedule_id = make(end_at=ago(-5)) if since != 3540 else make(start_at=ago(10))
    with pytest.raises(InvalidInput) as refused:
        backfills.request(schedule_id, ago(since), ago(until), "test", limit=limit)
    assert str(refused.value).startswith(problem)
    assert rows(db) == []


@pytest.mark.parametrize("limit", [1, HIGHEST_LIMIT])
def test_the_lowest_and_the_highest_limit_are_allowed_themselves(backfills: Backfills, make: Make, limit: int) -> None:
    assert len(last_seconds(backfills, make(), 1, limit=limit).fires) == 1


def test_too_many_fires_are_refused_with_the_end_that_would_do(backfills: Backfills, make: Make) -> None:
    schedule_id = make()
    with pytest.raises(InvalidInput, match="or a limit of up to 1000") as refused:
        last_seconds(backfills, schedule_id, 300)
    assert f"take {ago(200).isoformat()} as the end" in str(refused.value)
    assert len(backfills.request(schedule_id, ago(300), ago(200), "test").fires) == 100


def test_what_has_no_schedule_or_no_sense_is_refused(db: DatabaseConnection, backfills: Backfills, make: Make) -> None:
    with pytest.raises(ScheduleNotFound):
        last_seconds(backfills, uuid4(), 3)
    schedule_id = make()
    run_sql(db, "UPDATE schedules SET frequency = 'sometimes'")
    with pytest.raises(InvalidSchedule):
        last_seconds(backfills, schedule_id, 3)


# --- how they run ---


def test_they_run_one_by_one_oldest_first_however_long_they_wait(
    db: DatabaseConnection, backfills: Backfills, make: Make, store: ExecutionStore
) -> None:
    schedule_id = make(misfire_grace_seconds=5)
    made = last_seconds(backfills, schedule_id, 4)
    run_sql(db, "UPDATE job_executions SET due_at = due_at - interval '3 days'")
    ran = []
    for _ in made.fires:
        (claim,) = store.waiting.take(10).claims
        assert store.waiting.take(10).claims == [], "one at a time"
        ran.append((claim.scheduled_for, claim.attempt))
        finish(store, claim)
    assert ran == asked(made)
    assert rows(db) == [("success", None)] * 4


def test_a_backfilled_fire_is_nobody_else_s_any_more_and_the_next_one_is_as_planned(
    db: DatabaseConnection, backfills: Backfills, make: Make, store: ExecutionStore
) -> None:
    schedule_id = make()
    next_run = "SELECT next_run FROM schedules"
    with db.transaction() as connection:
        before = connection.exec_driver_sql(next_run).scalar_one()
    last_seconds(backfills, schedule_id, 1)
    assert store.claim([fire(schedule_id, 1)]).decisions[fire(schedule_id, 1)] is Decision.EXISTS
    with db.transaction() as connection:
        assert connection.exec_driver_sql(next_run).scalar_one() == before


def test_a_backfill_that_fails_is_retried_as_the_schedule_says(
    db: DatabaseConnection, backfills: Backfills, make: Make, store: ExecutionStore
) -> None:
    last_seconds(backfills, make(), 1)
    (claim,) = store.waiting.take(10).claims
    finish(store, claim, ExecutionStatus.FAILED, retry_in_seconds=0.0)
    (again,) = store.waiting.take(10).claims
    assert (again.scheduled_for, again.attempt, again.cause) == (claim.scheduled_for, 2, "backfill")


# --- what is said about it ---


def test_the_audit_counts_a_backfilled_fire_once_and_calls_none_of_them_invented_or_late(
    db: DatabaseConnection, backfills: Backfills, make: Make
) -> None:
    schedule_id = make(**MINUTE)
    run_sql(db, "UPDATE schedules SET enabled = false")
    run_sql(db, "INSERT INTO fires_watched (since, until) VALUES (now() - interval '1 day', now())")
    before = audit(db, ago(7200), ago(60))
    assert before.expected == before.unexplained.count >= 58
    backfills.request(schedule_id, ago(4 * 3600), ago(0), "test", limit=1000)
    run_sql(db, "UPDATE job_executions SET due_at = due_at - interval '1 hour'")
    report = audit(db, ago(7200), ago(60))
    assert report.is_clean, report
    assert (report.expected, report.accounted, report.in_progress) == (before.expected, before.expected, 240)


def test_explain_says_that_it_was_a_backfill_and_who_wanted_it(
    db: DatabaseConnection, backfills: Backfills, make: Make, store: ExecutionStore
) -> None:
    explainer = Explainer(db, POLICY, TOLERANCES, heartbeat_timeout_seconds=15, retention_days=90)
    schedule_id = make(misfire_grace_seconds=60)
    assert store.claim([fire(schedule_id, 1000)]).decisions == {fire(schedule_id, 1000): Decision.MISFIRE}
    backfills.request(schedule_id, ago(1000), ago(998), "cli:anna")
    (claim,) = store.waiting.take(10).claims
    first = explainer.explain(schedule_id, ago(999))
    assert "It is a backfill, requested by cli:anna at " in " ".join(first.sentences)
    finish(store, claim)
    answer = explainer.explain(schedule_id, ago(1000))
    said = " ".join(answer.sentences)
    assert (answer.verdict, answer.late_seconds) == (Verdict.SUCCEEDED, None)
    assert "the misfire grace is 1 min" in said
    assert "Attempt 2 is a backfill, requested by cli:anna at " in said


def test_explain_names_the_backfill_that_was_in_the_way(
    db: DatabaseConnection, backfills: Backfills, make: Make, store: ExecutionStore
) -> None:
    explainer = Explainer(db, POLICY, TOLERANCES, heartbeat_timeout_seconds=15, retention_days=90)
    schedule_id = make()
    backfills.request(schedule_id, ago(10 * 86_400), ago(10 * 86_400 - 1), "test")
    (claim,) = store.waiting.take(10).claims
    assert store.claim([fire(schedule_id)]).decisions == {fire(schedule_id): Decision.OVERLAP}
    said = " ".join(explainer.explain(schedule_id, ago(1)).sentences)
    assert f"Blocked by the execution of {claim.scheduled_for:%Y-%m-%d %H:%M:%S} UTC on replica" in said


# --- the command ---


def test_the_command_lists_what_runs_and_what_is_left_out(
    own_process: dict[str, str], db: DatabaseConnection, make: Make
) -> None:
    schedule_id = make(**MINUTE, timezone="Europe/Berlin")
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    add(db, schedule_id, hour, "success")
    span = ["--from", hour.isoformat(), "--to", (hour + timedelta(minutes=3)).isoformat()]

    def say(*more: str) -> str:
        result = CliRunner().invoke(manage.app, ["schedule", "backfill", str(schedule_id), *span, *more])
        assert result.exit_code == 0, result.output
        return result.stdout

    planned = say("--dry-run")
    assert "2 fires would run" in planned
    assert "left out: 1 succeeded" in planned
    assert len(rows(db)) == 1
    assert '"attempt": 1' in say("--json")
    assert len(JobHistory(db).get_executions_by_schedule(schedule_id)) == 3
    assert "left out: 1 succeeded, 2 waiting or running" in say()
