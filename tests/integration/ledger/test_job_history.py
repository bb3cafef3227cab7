"""Job history: executions are found, counted, asked for, recorded and cleaned up without disturbing the engine."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from database.connection import DatabaseConnection
from services.errors import InvalidInput, InvalidSchedule, ScheduleNotFound
from services.job_history import ExecutionFilter, JobHistory, RetryOutcome, get_job_history
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Owner
from services.ledger.timeline import timeline
from services.schedule_repository import ScheduleRepository
from tests.support.executions import POLICY
from tests.support.schedules import VALID
from tests.support.waiting import eventually

NOW = datetime.now(UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SEED_KEYS = ["total_executions", "successful", "failed", "success_rate", "avg_duration", "min_duration", "max_duration"]


@pytest.fixture
def history(db: DatabaseConnection) -> JobHistory:
    return JobHistory(db)


@pytest.fixture
def schedule_id(repository: ScheduleRepository) -> UUID:
    return repository.create_schedule(**VALID)


def add(db: DatabaseConnection, schedule_id: UUID | None, at: datetime, status: str = "success", **more: Any) -> UUID:
    row = {
        "schedule_id": schedule_id, "job_id": "job", "domain": "example.com", "domain_config_id": uuid4(),
        "status": status, "scheduled_for": at, "due_at": at, "created_at": at, **more,
    }  # fmt: skip
    with db.transaction() as connection:
        sql = f"INSERT INTO job_executions ({', '.join(row)}) VALUES ({', '.join(f'%({name})s' for name in row)})"
        execution_id: UUID = connection.exec_driver_sql(sql + " RETURNING execution_id", row).scalar_one()
    return execution_id


def rows(db: DatabaseConnection, sql: str) -> list[tuple[Any, ...]]:
    with db.transaction() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(sql)]


def replica(db: DatabaseConnection) -> ExecutionStore:
    return ExecutionStore(db, Owner("replica-1", uuid4()), POLICY, 86_400)


# --- look ---


def test_the_documented_example_runs_as_it_stands(own_process: dict[str, str], schedule_id: UUID) -> None:
    get_job_history.cache_clear()
    history = get_job_history()
    recent = history.get_recent_executions(hours=24)
    executions = history.get_executions_by_schedule(schedule_id)
    stats = history.get_execution_statistics(days=7)
    deleted = history.cleanup_old_executions(days=90)
    assert (recent, executions, deleted) == ([], [], 0)
    assert list(stats)[:7] == SEED_KEYS
    get_job_history.cache_clear()


def test_executions_are_found_by_time_schedule_and_domain(
    db: DatabaseConnection, history: JobHistory, schedule_id: UUID
) -> None:
    old = add(db, schedule_id, NOW - 30 * HOUR)
    other = add(db, uuid4(), NOW - 2 * HOUR, domain="Nightly Report")
    new = add(db, schedule_id, NOW - HOUR, "failed", error_message="boom", metadata='{"a": 1}')
    assert [record.execution_id for record in history.get_recent_executions(hours=24)] == [new, other]
    assert [record.execution_id for record in history.get_recent_executions(hours=24, limit=1)] == [new]
    assert [record.execution_id for record in history.get_executions_by_schedule(schedule_id)] == [new, old]
    assert [record.execution_id for record in history.get_executions_by_domain("Example.com ")] == [new, old]
    assert [record.execution_id for record in history.get_executions_by_domain("Nightly Report")] == [other]
    record = history.get_execution(str(new))
    assert record is not None
    assert (record.status, record.error_message, record.details, record.attempt) == ("failed", "boom", {"a": 1}, 1)
    assert history.get_execution(uuid4()) is None


def test_an_execution_is_found_by_the_beginning_of_its_id(db: DatabaseConnection, history: JobHistory) -> None:
    found = add(db, None, NOW, execution_id=UUID("abcdef01-0000-0000-0000-000000000001"))
    add(db, None, NOW, execution_id=UUID("abcdef02-0000-0000-0000-000000000001"))
    add(db, None, NOW, execution_id=UUID("abcdef02-0000-0000-0000-000000000002"))
    assert history.find_execution("ABCDEF01").execution_id == found
    assert history.find_execution("abcdef01-0000").execution_id == found
    for reference, reason in [
        ("abcdef02", "more than one execution begins like abcdef02"),
        ("abcdef03", "there is no execution abcdef03"),
        ("abc", "must be an id, or at least 8 characters of it, got 'abc'"),
        ("not-an-id!", "must be an id, or at least 8 characters of it, got 'not-an-id!'"),
    ]:
        with pytest.raises(InvalidInput) as refused:
            history.find_execution(reference)
        assert str(refused.value) == f"execution: {reason}"


def test_an_overlap_with_an_execution_of_a_replica_that_is_gone_says_so(
    db: DatabaseConnection, history: JobHistory, schedule_id: UUID
) -> None:
    """Known when the row is read: it was written before anybody knew that the replica is gone."""
    begun, given_up = NOW - timedelta(seconds=30), NOW - timedelta(seconds=20)
    add(db, schedule_id, begun, "abandoned", claimed_at=begun, completed_at=given_up)
    at = {"before": begun - HOUR, "meanwhile": begun + timedelta(seconds=5), "after": given_up + timedelta(seconds=5)}
    skipped = {
        name: add(db, schedule_id, when, "skipped", completed_at=when, reason="overlap") for name, when in at.items()
    }
    add(db, uuid4(), at["meanwhile"], "skipped", completed_at=at["meanwhile"], reason="overlap")
    add(db, schedule_id, at["meanwhile"] + timedelta(seconds=1), "skipped", completed_at=NOW, reason="disabled")
    told = {each.execution_id: each.why for each in history.list_executions().items if each.note is not None}
    assert told == {skipped["meanwhile"]: "overlap with an execution of a dead replica"}
    shown = history.find_execution(skipped["meanwhile"])
    assert (shown.reason, shown.why) == ("overlap", "overlap with an execution of a dead replica")
    assert timeline(shown)[-1].text == "skipped: overlap with an execution of a dead replica"
    assert history.find_execution(skipped["after"]).why == "overlap"


def test_running_means_claimed_or_running(db: DatabaseConnection, history: JobHistory) -> None:
    for status in ("pending", "success", "skipped"):
        add(db, uuid4(), NOW, status)
    live = {add(db, uuid4(), NOW, status) for status in ("claimed", "running")}
    assert {record.execution_id for record in history.get_running()} == live


@pytest.mark.parametrize("by", [None, "schedule", "domain", "DOMAIN"])
def test_pages_cover_everything_once_newest_first(
    db: DatabaseConnection, history: JobHistory, schedule_id: UUID, by: str | None
) -> None:
    """Rows of one batch share the moment of their creation."""
    for n in range(23):
        add(db, schedule_id, NOW - n * HOUR, created_at=NOW - (n // 5) * HOUR)
    domain = history.get_executions_by_schedule(schedule_id)[0].domain
    domains = {"domain": domain, "DOMAIN": domain.upper()}
    where = ExecutionFilter(schedule_id=schedule_id if by == "schedule" else None, domain=domains.get(by or ""))
    found, cursor = [], None
    while True:
        page = history.list_executions(where, 4, cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len({record.execution_id for record in found}) == len(found) == 23
    moments = [record.scheduled_for if by == "schedule" else record.created_at for record in found]
    assert moments == sorted(moments, reverse=True)


def test_a_list_can_be_narrowed(db: DatabaseConnection, history: JobHistory, schedule_id: UUID) -> None:
    kept = add(db, schedule_id, NOW - HOUR, "failed", cause="manual")
    add(db, schedule_id, NOW - HOUR + timedelta(seconds=1), "success", cause="manual")
    add(db, schedule_id, NOW - HOUR + timedelta(seconds=2), "failed")
    add(db, schedule_id, NOW - 3 * HOUR, "failed", cause="manual")
    add(db, uuid4(), NOW - HOUR, "failed", cause="manual", domain="other.example")
    where = ExecutionFilter(
        schedule_id=str(schedule_id), domain="example.com", status="failed", cause="manual", since=NOW - 2 * HOUR,
        until=NOW,
    )  # fmt: skip
    assert [record.execution_id for record in history.list_executions(where).items] == [kept]


@pytest.mark.parametrize(
    ("where", "limit", "cursor", "reason"),
    [
        (ExecutionFilter(status="fine"), 50, None, "status: must be one of pending, claimed, running"),
        (ExecutionFilter(cause="magic"), 50, None, "cause: must be one of schedule, manual, catchup, backfill"),
        (ExecutionFilter(schedule_id="x"), 50, None, "schedule_id: must be a UUID, got 'x'"),
        (ExecutionFilter(since=datetime(2026, 1, 1)), 50, None, "since: needs a UTC offset"),  # noqa: DTZ001
        (ExecutionFilter(), 0, None, "limit: must be between 1 and 1000, got 0"),
        (ExecutionFilter(), 50, "x", "cursor: must come from an earlier page of this list"),
        (ExecutionFilter(), 50, "W10=", "cursor: must come from an earlier page of this list"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(
    history: JobHistory, where: ExecutionFilter, limit: int, cursor: str | None, reason: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        history.list_executions(where, limit, cursor)
    assert str(refused.value).startswith(reason)


def test_a_cursor_of_one_order_does_not_fit_another(
    db: DatabaseConnection, history: JobHistory, schedule_id: UUID
) -> None:
    for n in range(3):
        add(db, schedule_id, NOW - n * HOUR)
    cursor = history.list_executions(limit=1).next_cursor
    with pytest.raises(InvalidInput, match="cursor"):
        history.list_executions(ExecutionFilter(schedule_id=schedule_id), cursor=cursor)


# --- statistics ---


def test_without_executions_all_numbers_are_zero(history: JobHistory) -> None:
    numbers = history.get_execution_statistics()
    assert set(numbers.values()) == {0}
    assert all(isinstance(numbers[key], float) for key in numbers if key.endswith(("rate", "duration", "lateness")))


def test_abandoned_and_timed_out_count_as_failed_and_the_rest_has_its_own_keys(
    db: DatabaseConnection, history: JobHistory
) -> None:
    ended = ["success"] * 6 + ["failed", "abandoned", "timed_out", "timed_out"]
    others = ["cancelled", "skipped", "skipped", "missed", "running", "claimed", "pending"]
    for n, status in enumerate(ended + others):
        add(db, uuid4(), NOW - HOUR, status, duration_seconds=float(n + 1), started_at=NOW - HOUR + n * DAY / 86_400)
    add(db, uuid4(), NOW - 8 * DAY, duration_seconds=1000.0)
    numbers = history.get_execution_statistics(days=7)
    assert list(numbers)[:7] == SEED_KEYS
    assert [numbers[key] for key in SEED_KEYS] == [10, 6, 4, 60.0, 5.5, 1.0, 10.0]
    counts = {"cancelled": 1, "skipped": 2, "missed": 1, "abandoned": 1, "timed_out": 2, "running": 2}
    assert {key: numbers[key] for key in counts} == counts
    assert (numbers["p50_duration"], numbers["p50_lateness"]) == (5.5, 8.0)
    assert 9.5 < numbers["p95_duration"] < numbers["p99_duration"] < 10


# --- a run on request ---


def test_a_requested_run_waits_for_any_replica_and_wakes_them(
    db: DatabaseConnection, history: JobHistory, schedule_id: UUID
) -> None:
    listener = db.listener("executions_pending")
    execution_id = history.request_run(schedule_id, "cli:somebody")
    assert listener.wait(5) == {"executions_pending"}
    listener.close()
    record = history.get_execution(execution_id)
    assert record is not None
    assert (record.status, record.cause, record.job_id) == ("pending", "manual", str(schedule_id))
    assert (record.details, record.instance_id) == ({"requested_by": "cli:somebody"}, None)
    store = replica(db)
    assert [claim.execution_id for claim in store.waiting.take(10).claims] == [execution_id]
    store.close()


def test_a_disabled_schedule_runs_on_request_and_an_unknown_one_does_not(
    db: DatabaseConnection, history: JobHistory, repository: ScheduleRepository, schedule_id: UUID
) -> None:
    repository.update_schedule(schedule_id, enabled=False)
    history.request_run(schedule_id, "me")
    store = replica(db)
    assert len(store.waiting.take(10).claims) == 1
    store.close()
    with pytest.raises(ScheduleNotFound):
        history.request_run(uuid4(), "me")
    with pytest.raises(InvalidSchedule):
        history.request_run("nightly", "me")


def test_many_requests_at_once_all_get_their_run(
    db: DatabaseConnection, history: JobHistory, schedule_id: UUID
) -> None:
    def ask() -> None:
        for _ in range(25):
            history.request_run(schedule_id, "me")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows(db, "SELECT count(*), count(DISTINCT scheduled_for) FROM job_executions") == [(100, 100)]
    assert rows(
        db, "SELECT count(*) FROM job_executions WHERE scheduled_for = date_trunc('second', scheduled_for)"
    ) == [(0,)], "a fire's place is never taken"


# --- cancel ---


def test_what_waits_is_cancelled_at_once(db: DatabaseConnection, history: JobHistory, schedule_id: UUID) -> None:
    execution_id = history.request_run(schedule_id, "me")
    assert history.request_cancel(execution_id)
    record = history.get_execution(execution_id)
    assert record is not None
    assert (record.status, record.reason, record.completed_at is not None) == ("cancelled", "cancel_requested", True)
    assert not history.request_cancel(execution_id), "it has ended"
    store = replica(db)
    assert store.waiting.take(10).claims == []
    store.close()


def test_who_asked_first_for_the_cancellation_is_named_by_the_timeline(
    db: DatabaseConnection, history: JobHistory
) -> None:
    execution_id = add(db, uuid4(), NOW, "running", incarnation=uuid4())
    assert history.request_cancel(execution_id, "token:olga")
    assert history.request_cancel(execution_id, "token:late")
    record = history.get_execution(execution_id)
    assert record is not None
    assert "cancellation requested by token:olga" in [moment.text for moment in timeline(record)]


@pytest.mark.parametrize("status", ["claimed", "running"])
def test_the_owner_of_what_runs_is_asked(db: DatabaseConnection, history: JobHistory, status: str) -> None:
    execution_id = add(db, uuid4(), NOW, status, incarnation=uuid4())
    assert history.request_cancel(execution_id)
    record = history.get_execution(execution_id)
    assert record is not None
    first = record.cancel_requested_at
    assert (record.status, record.completed_at, first is not None) == (status, None, True)
    assert history.request_cancel(execution_id)
    again = history.get_execution(execution_id)
    assert again is not None
    assert again.cancel_requested_at == first


def test_what_ended_or_never_was_cannot_be_cancelled(db: DatabaseConnection, history: JobHistory) -> None:
    assert not history.request_cancel(add(db, uuid4(), NOW))
    assert not history.request_cancel(uuid4())


# --- wait ---


def test_waiting_ends_with_the_last_attempt(db: DatabaseConnection, history: JobHistory, schedule_id: UUID) -> None:
    first = add(db, schedule_id, NOW, "failed")
    second = add(db, schedule_id, NOW, "running", attempt=2)
    done: list[Any] = []
    waiter = threading.Thread(target=lambda: done.append(history.wait_for(first, 20)))
    waiter.start()
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE job_executions SET status = 'success' WHERE attempt = 2")
    eventually(lambda: done)
    waiter.join()
    assert (done[0].execution_id, done[0].status) == (second, "success")


def test_waiting_is_limited(db: DatabaseConnection, history: JobHistory) -> None:
    record = history.wait_for(add(db, uuid4(), NOW, "pending"), 0.05)
    assert record is not None
    assert record.status == "pending"
    assert history.wait_for(uuid4(), 5) is None


# --- programs that record work of their own ---


def test_a_program_records_its_own_work(db: DatabaseConnection, history: JobHistory, schedule_id: UUID) -> None:
    execution_id = history.start_execution(schedule_id, metadata={"pages": 3})
    running = history.get_execution(execution_id)
    assert running is not None
    assert (running.status, running.domain, running.job_id) == ("running", "example.com", str(schedule_id))
    assert (running.instance_id, running.incarnation, running.cause) == (None, None, "manual")
    scan_id = uuid4()
    assert history.complete_execution(
        execution_id, "failed", "no\x00 answer", {"code": 504}, scan_id=scan_id, metadata={"cookies": 7}
    )
    ended = history.get_execution(execution_id)
    assert ended is not None
    assert (ended.status, ended.error_message, ended.error_details) == ("failed", "no\ufffd answer", {"code": 504})
    assert (ended.scan_id, ended.details) == (scan_id, {"pages": 3, "cookies": 7})
    assert ended.duration_seconds is not None
    assert ended.duration_seconds >= 0
    assert not history.complete_execution(execution_id), "a terminal status never changes"


def test_work_without_a_schedule_needs_a_domain(history: JobHistory) -> None:
    execution_id = history.start_execution(None, domain="example.org")
    record = history.get_execution(execution_id)
    assert record is not None
    assert (record.schedule_id, record.job_id, record.domain) == (None, "example.org", "example.org")
    assert history.complete_execution(execution_id)
    with pytest.raises(InvalidInput, match="domain: is required without a schedule"):
        history.start_execution(None)
    with pytest.raises(ScheduleNotFound):
        history.start_execution(uuid4())


def test_nobody_completes_what_a_replica_runs(db: DatabaseConnection, history: JobHistory) -> None:
    execution_id = add(db, uuid4(), NOW, "running", incarnation=uuid4(), fencing_token=7)
    assert not history.complete_execution(execution_id)


def test_a_bad_end_is_refused(history: JobHistory) -> None:
    with pytest.raises(InvalidInput, match="status: must be one of success, failed"):
        history.complete_execution(uuid4(), "running")
    with pytest.raises(InvalidInput, match="metadata: cannot be stored as JSON"):
        history.complete_execution(uuid4(), metadata={"x": float("nan")})


# --- retention ---


def test_only_old_ended_executions_are_deleted_in_batches(db: DatabaseConnection, history: JobHistory) -> None:
    for n in range(12):
        add(db, uuid4(), NOW - 100 * DAY - n * HOUR, "success")
    kept = {add(db, uuid4(), NOW - 100 * DAY, status) for status in ("pending", "claimed", "running")}
    kept |= {add(db, uuid4(), NOW - 89 * DAY), add(db, uuid4(), NOW - 89 * DAY, created_at=NOW - 100 * DAY)}
    heard: list[int] = []
    assert history.count_old_executions(90) == 12
    assert history.cleanup_old_executions(90, batch_size=5, on_progress=heard.append) == 12
    assert heard == [5, 10, 12]
    assert {row[0] for row in rows(db, "SELECT execution_id FROM job_executions")} == kept
    assert history.cleanup_old_executions(90) == 0


def test_a_clean_up_neither_waits_for_writers_nor_touches_what_they_hold(
    db: DatabaseConnection, history: JobHistory
) -> None:
    held, _ = add(db, uuid4(), NOW - 100 * DAY), add(db, uuid4(), NOW - 100 * DAY)
    with db.transaction() as writer:
        writer.exec_driver_sql("SELECT FROM job_executions WHERE execution_id = %s FOR UPDATE", (held,))
        assert history.cleanup_old_executions(90) == 1
    assert history.cleanup_old_executions(90) == 1


@pytest.mark.parametrize("days", [1, 2])
def test_history_that_still_fences_fires_is_not_deleted(db: DatabaseConnection, days: int) -> None:
    add(db, uuid4(), NOW - 100 * DAY)
    history = JobHistory(db, fence_horizon_seconds=2 * 86_400)
    with pytest.raises(InvalidInput) as refused:
        history.cleanup_old_executions(days)
    assert str(refused.value).startswith("days: must be longer than FENCE_HORIZON_SECONDS=172800")
    with pytest.raises(InvalidInput):
        history.cleanup_old_changes(days)
    assert history.cleanup_old_executions(3) == 1


@pytest.mark.parametrize(("days", "batch_size"), [(0, 10), (-5, 10), (40_000, 10), (90, 0)])
def test_a_clean_up_that_makes_no_sense_is_refused(history: JobHistory, days: int, batch_size: int) -> None:
    with pytest.raises(InvalidInput, match="must be between"):
        history.cleanup_old_executions(days, batch_size)


def test_of_old_changes_the_newest_of_each_living_schedule_stays(
    db: DatabaseConnection, history: JobHistory, repository: ScheduleRepository
) -> None:
    living, gone, young = (repository.create_schedule(**VALID) for _ in range(3))
    for priority in (1, 2, 3):
        repository.update_schedule(living, priority=priority)
        repository.update_schedule(gone, priority=priority)
    repository.delete_schedule(gone)
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE schedule_changes SET changed_at = now() - interval '100 days'")
    repository.update_schedule(young, priority=1)
    assert history.count_old_changes(90) == 3 + 5
    assert history.cleanup_old_changes(90, batch_size=3) == 8
    left = rows(db, "SELECT schedule_id, operation, new->>'priority' FROM schedule_changes ORDER BY change_id")
    assert left == [(young, "insert", "0"), (living, "update", "3"), (young, "update", "1")]


def test_nothing_from_before_an_old_truncate_stays(
    db: DatabaseConnection, history: JobHistory, repository: ScheduleRepository
) -> None:
    repository.create_schedule(**VALID)
    with db.transaction() as connection:
        connection.exec_driver_sql("TRUNCATE schedules")
    alive = repository.create_schedule(**VALID)
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE schedule_changes SET changed_at = now() - interval '100 days'")
    assert history.cleanup_old_changes(90, batch_size=1) == 2
    assert rows(db, "SELECT schedule_id, operation FROM schedule_changes") == [(alive, "insert")]


def test_cancelling_an_attempt_that_failed_cancels_its_retry(db: DatabaseConnection, history: JobHistory) -> None:
    with db.transaction() as connection:
        (failed,) = (
            connection.exec_driver_sql(
                """WITH fire AS (SELECT gen_random_uuid() AS id)
               INSERT INTO job_executions
                   (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, attempt)
               SELECT id, 'job', 'x', id, status, '2027-01-01', attempt
               FROM fire, (VALUES ('failed', 1), ('pending', 2)) AS attempts (status, attempt)
               RETURNING execution_id, attempt"""
            )
            .scalars()
            .all()[:1]
        )
    assert history.request_cancel(failed)
    assert not history.request_cancel(failed)
    with db.transaction() as connection:
        found = connection.exec_driver_sql("SELECT attempt, status FROM job_executions ORDER BY attempt").all()
    assert [tuple(row) for row in found] == [(1, "failed"), (2, "cancelled")]


def test_a_person_s_retry_follows_the_last_attempt(
    db: DatabaseConnection, history: JobHistory, schedule_id: UUID
) -> None:
    with db.transaction() as connection:
        first, _ = connection.exec_driver_sql(
            """INSERT INTO job_executions
                   (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, attempt)
               SELECT %(id)s, 'job', 'x', %(id)s, 'failed', '2027-01-01', attempt FROM generate_series(1, 2) AS attempt
               RETURNING execution_id""",
            {"id": schedule_id},
        ).scalars()
    assert history.request_retry(first, "token:anna").outcome is RetryOutcome.REQUESTED
    with db.transaction() as connection:
        found = connection.exec_driver_sql("SELECT attempt, status FROM job_executions ORDER BY attempt").all()
    assert [tuple(row) for row in found] == [(1, "failed"), (2, "failed"), (3, "pending")]
