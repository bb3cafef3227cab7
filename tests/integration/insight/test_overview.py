"""The overview and the forecast, from rows as replicas write them."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from database.connection import DatabaseConnection
from services.insight.forecast import Load, forecast
from services.insight.overview import Overview, Trouble
from tests.support.executions import Make


def _execution(db: DatabaseConnection, schedule_id: UUID | None = None, **columns: Any) -> None:
    now = datetime.now(UTC)
    values = {
        "schedule_id": schedule_id,
        "job_id": "job",
        "domain": "job",
        "domain_config_id": UUID(int=1),
        "status": "success",
        "scheduled_for": now,
        "due_at": now,
        **columns,
    }
    with db.transaction() as connection:
        names = ", ".join(values)
        places = ", ".join(["%s"] * len(values))
        connection.exec_driver_sql(f"INSERT INTO job_executions ({names}) VALUES ({places})", tuple(values.values()))


def _sql(db: DatabaseConnection, statement: str, *values: Any) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(statement, values)


def _troubles(db: DatabaseConnection) -> list[tuple[Trouble, str]]:
    return [(item.trouble, item.words) for item in Overview(db).attention()]


def test_minutes_count_outcomes_and_have_no_holes(db: DatabaseConnection) -> None:
    at = datetime.now(UTC) - timedelta(minutes=5)
    for number, status in enumerate(("success", "success", "failed")):
        due = at + timedelta(milliseconds=number)
        _execution(db, status=status, scheduled_for=due, due_at=due, started_at=due + timedelta(seconds=2))
    minutes = Overview(db).minutes(10)
    assert len(minutes) == 11
    busy = [minute for minute in minutes if minute.outcomes]
    assert [minute.outcomes for minute in busy] == [{"success": 2, "failed": 1}]
    assert busy[0].p50_seconds == busy[0].p99_seconds == 2


def test_a_schedule_whose_last_run_failed_needs_attention_with_its_error(db: DatabaseConnection, make: Make) -> None:
    schedule_id = make()
    _execution(db, schedule_id, status="failed", error_message="the other side is down")
    _sql(db, "UPDATE schedules SET last_status = 'failed', next_run = NULL")
    assert _troubles(db) == [(Trouble.FAILING, "the other side is down")]


def test_a_fire_that_is_tried_again_is_no_trouble_until_its_last_attempt(db: DatabaseConnection, make: Make) -> None:
    schedule_id, at = make(), datetime.now(UTC)
    _execution(db, schedule_id, status="failed", error_message="boom", scheduled_for=at)
    _execution(db, schedule_id, status="pending", attempt=2, scheduled_for=at, due_at=at + timedelta(hours=1))
    _sql(db, "UPDATE schedules SET last_status = 'failed', next_run = NULL")
    assert _troubles(db) == []
    _sql(db, "UPDATE schedules SET failures_in_a_row = 1")
    assert _troubles(db) == [(Trouble.FAILING, "boom")], "an earlier fire has failed for good"
    _sql(db, "UPDATE schedules SET failures_in_a_row = 0")
    _sql(db, "UPDATE job_executions SET status = 'failed', error_message = 'boom again' WHERE attempt = 2")
    assert _troubles(db) == [(Trouble.FAILING, "boom again")]


def test_a_parked_schedule_needs_attention_with_its_reason(db: DatabaseConnection, make: Make) -> None:
    make()
    _sql(db, "UPDATE schedules SET invalid_reason = 'hour: must be below 24', next_run = NULL")
    assert _troubles(db) == [(Trouble.PARKED, "hour: must be below 24")]


def test_a_fire_that_nobody_claimed_needs_attention(db: DatabaseConnection, make: Make) -> None:
    make()
    _sql(db, "UPDATE schedules SET next_run = now() - interval '10 minutes'")
    assert [trouble for trouble, _ in _troubles(db)] == [Trouble.LATE]


def test_a_fire_that_is_still_spread_is_not_late(db: DatabaseConnection, make: Make) -> None:
    make(spread_seconds=3600)
    _sql(db, "UPDATE schedules SET next_run = now() - interval '10 minutes'")
    assert _troubles(db) == []


def test_an_execution_of_a_silent_replica_needs_attention(db: DatabaseConnection) -> None:
    _execution(db, status="running", incarnation=UUID(int=7), instance_id="replica-1", started_at=datetime.now(UTC))
    assert _troubles(db) == [
        (Trouble.STUCK, "running by replica-1, which has stopped sending heartbeats"),
    ]


def test_an_execution_of_a_living_replica_needs_none(db: DatabaseConnection) -> None:
    _sql(db, "INSERT INTO scheduler_instances (instance_id, incarnation) VALUES ('replica-1', %s)", UUID(int=7))
    _execution(db, status="running", incarnation=UUID(int=7), instance_id="replica-1", started_at=datetime.now(UTC))
    assert _troubles(db) == []


def test_a_queue_whose_circuit_is_not_closed_needs_attention(db: DatabaseConnection) -> None:
    _sql(db, "INSERT INTO workflow_queues (queue, circuit) VALUES ('deep_scan', 'half_open'), ('other', 'closed')")
    assert _troubles(db) == [(Trouble.CIRCUIT, "its items kept failing; the circuit breaker is half open")]


def test_a_limit_that_stops_and_a_row_that_waits_for_an_hour_need_attention(db: DatabaseConnection) -> None:
    _sql(db, "INSERT INTO limits (name, max_running, note) VALUES ('customer:42', 0, 'they move'), ('other', 1, NULL)")
    _execution(db, status="pending", reason="limit:other", due_at=datetime.now(UTC) - timedelta(minutes=50))
    assert _troubles(db) == [(Trouble.STOPPED, "lets nothing start (max_running 0): they move")]
    _execution(db, status="pending", reason="limit:other", due_at=datetime.now(UTC) - timedelta(minutes=61))
    held, stopped = Overview(db).attention()
    assert (held.trouble, held.label, stopped.trouble) == (Trouble.HELD, "limit other", Trouble.STOPPED)
    assert held.words == "1 execution has waited too long for limit other (max_running 1): the first for 1 h 1 min"


def test_a_replica_that_died_lately_needs_attention_until_it_is_back(db: DatabaseConnection) -> None:
    died = "INSERT INTO scheduler_instances (instance_id, incarnation, heartbeat_at) VALUES (%s, %s, now() - %s)"
    _sql(db, died, "of yesterday", UUID(int=1), timedelta(hours=20))
    _sql(db, died, "replica-1", UUID(int=2), timedelta(minutes=5))
    assert _troubles(db) == [(Trouble.SILENT, "has died or lost its connection; the other replicas have taken over")]
    _sql(db, died, "replica-1", UUID(int=3), timedelta(0))
    assert _troubles(db) == []


def test_a_replica_that_lives_and_starts_nothing_needs_attention_unless_it_drains(db: DatabaseConnection) -> None:
    beat = "INSERT INTO scheduler_instances (instance_id, incarnation, claiming, facts) VALUES (%s, %s, false, %s)"
    _sql(db, beat, "draining", UUID(int=1), "{}")
    _sql(db, beat, "skewed", UUID(int=2), '{"not_claiming": ["the clock is off"], "not_claiming_since": "2026-01-01"}')
    assert _troubles(db) == [(Trouble.IDLE, "is alive, but claims nothing: the clock is off")]


def test_items_that_failed_for_good_need_attention_for_a_day(db: DatabaseConnection) -> None:
    dead = "INSERT INTO dead_letters (queue, item_key, attempts, error, died_at) VALUES (%s, %s, 3, %s, now() - %s)"
    _sql(db, dead, "deep_scan", "old", "long ago", timedelta(days=2))
    _sql(db, dead, "deep_scan", "first", "quota", timedelta(hours=2))
    _sql(db, dead, "deep_scan", "second", "no such place", timedelta(hours=1))
    _sql(db, dead, "page_curation", "third", "404", timedelta(hours=3))
    assert _troubles(db) == [
        (Trouble.DEAD, "2 dead letters since yesterday: no such place"),
        (Trouble.DEAD, "1 dead letter since yesterday: 404"),
    ]
    _sql(db, "UPDATE dead_letters SET requeued_at = now()")
    assert _troubles(db) == []


def test_a_queue_that_somebody_paused_needs_attention_with_the_reason(db: DatabaseConnection) -> None:
    _sql(
        db,
        """INSERT INTO workflow_queues (queue, paused_at, paused_by, paused_reason)
           VALUES ('deep_scan', now(), 'olga', 'quota'), ('other', NULL, NULL, NULL)""",
    )
    assert _troubles(db) == [(Trouble.PAUSED, "by olga: quota")]


def test_a_manual_run_that_finds_no_worker_needs_attention(db: DatabaseConnection) -> None:
    _execution(db, status="pending", cause="manual", due_at=datetime.now(UTC) - timedelta(minutes=10))
    words = "is waiting for a free worker that serves its queue and has what it needs"
    assert _troubles(db) == [(Trouble.WAITING, words)]


def test_backfills_that_wait_for_each_other_need_none(db: DatabaseConnection) -> None:
    _execution(db, status="pending", cause="backfill", due_at=datetime.now(UTC) - timedelta(minutes=10))
    assert _troubles(db) == []


def test_the_timeline_has_what_started_lately(db: DatabaseConnection) -> None:
    now = datetime.now(UTC)
    _execution(db, instance_id="replica-1", started_at=now, completed_at=now)
    _execution(db, status="skipped", scheduled_for=now + timedelta(seconds=1))
    assert [(bar.label, bar.instance_id, bar.status) for bar in Overview(db).timeline()] == [
        ("job", "replica-1", "success")
    ]


def test_the_calendar_counts_by_the_schedules_own_days(db: DatabaseConnection, make: Make) -> None:
    schedule_id = make()
    before_midnight = datetime.now(UTC).replace(hour=23, minute=30, second=0, microsecond=0) - timedelta(days=2)
    _execution(db, schedule_id, scheduled_for=before_midnight)
    in_utc = Overview(db).calendar(schedule_id, "UTC")
    in_berlin = Overview(db).calendar(schedule_id, "Europe/Berlin")
    assert in_utc == {before_midnight.date(): {"success": 1}}
    assert in_berlin == {before_midnight.date() + timedelta(days=1): {"success": 1}}


# --- forecast ---


def _busy(loads: list[Load]) -> list[tuple[float, float]]:
    return [(load.fires, load.seconds) for load in loads if load.fires]


def _once(minutes: float) -> dict[str, Any]:
    at = datetime.now(UTC) + timedelta(minutes=minutes)
    return {"frequency": "once", "time_config": {"at": at.isoformat()}}


def _plan(db: DatabaseConnection) -> None:
    _sql(db, "UPDATE schedules SET next_run = now() + interval '1 minute'")


def test_the_forecast_counts_schedules_of_one_timing_together(db: DatabaseConnection, make: Make) -> None:
    timing = _once(30)
    known = make(**timing)
    make(**timing)
    _plan(db)
    _execution(db, known, duration_seconds=10)
    loads = forecast(db)
    assert _busy(loads) == [(2, 20)]  # the other one is expected to take what things usually take


def test_the_forecast_shares_a_spread_among_its_minutes(db: DatabaseConnection, make: Make) -> None:
    make(**_once(10), spread_seconds=600)
    _plan(db)
    fires = [load.fires for load in forecast(db) if load.fires]
    assert len(fires) == 10
    assert round(sum(fires), 6) == 1


def test_the_forecast_of_a_dense_schedule_goes_on_at_its_rate(db: DatabaseConnection, make: Make) -> None:
    make(time_config={"seconds": 2})
    _plan(db)
    assert [load.fires for load in forecast(db, 5)][1:] == [30] * 5


def test_a_row_that_makes_no_sense_does_not_spoil_the_forecast(db: DatabaseConnection, make: Make) -> None:
    make()
    _sql(db, """UPDATE schedules SET frequency = 'daily', time_config = '{"hour": 77}'""")
    _plan(db)
    assert _busy(forecast(db)) == []
