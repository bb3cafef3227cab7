"""Why did this fire run, not run, or run late? One test for each answer, from rows that the engine itself wrote."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg2.extras import Json
from typer.testing import CliRunner

import manage
from database.connection import DatabaseConnection
from database.models import ExecutionStatus
from services.errors import InvalidInput, ScheduleNotFound
from services.insight.explain.explainer import Explainer, Explanation, Verdict, parse_moment
from services.job_history import JobHistory
from services.jobs import JobRegistry
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Claim, Decision, Ending
from services.ledger.timeline import timeline
from services.schedule_repository import ScheduleRepository
from tests.support.executions import POLICY, TOLERANCES, Make, age, ago, fire
from tests.support.schedules import VALID


@pytest.fixture
def explainer(db: DatabaseConnection) -> Explainer:
    return Explainer(db, POLICY, TOLERANCES, heartbeat_timeout_seconds=15, retention_days=90)


@pytest.fixture
def edit(db: DatabaseConnection) -> ScheduleRepository:
    return ScheduleRepository(db, JobRegistry({"noop", "cookie_scan"}))


def run_sql(db: DatabaseConnection, sql: str, *values: Any) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(sql, values)


def a_replica(db: DatabaseConnection, started: timedelta = timedelta(days=1), beat: timedelta = timedelta()) -> None:
    run_sql(
        db,
        """INSERT INTO scheduler_instances (instance_id, incarnation, started_at, heartbeat_at)
           VALUES ('replica', gen_random_uuid(), now() - %s, now() - %s)""",
        started,
        beat,
    )


def watched(db: DatabaseConnection) -> None:
    """As if gap scans had looked at everything until now."""
    run_sql(db, "INSERT INTO fires_watched (since, until) VALUES (now() - interval '1 year', now())")


def claim(store: ExecutionStore, schedule_id: UUID, seconds_ago: int = 1) -> Claim:
    (claimed,) = store.claim([fire(schedule_id, seconds_ago)]).claims
    return claimed


def start(store: ExecutionStore, schedule_id: UUID, seconds_ago: int = 1) -> Claim:
    claimed = claim(store, schedule_id, seconds_ago)
    assert store.start([claimed]).started
    return claimed


def end(store: ExecutionStore, claimed: Claim, status: ExecutionStatus, **more: Any) -> None:
    assert not store.finish([Ending(claim=claimed, status=status, duration_seconds=1.5, **more)]).refused


def said(explanation: Explanation) -> str:
    return " ".join(explanation.sentences)


# --- it ran ---


def test_a_fire_that_ran_in_time_succeeded(explainer: Explainer, store: ExecutionStore, make: Make) -> None:
    schedule_id = make()
    end(store, start(store, schedule_id), ExecutionStatus.SUCCESS)
    answer = explainer.explain(schedule_id, ago(1))
    assert answer.verdict is Verdict.SUCCEEDED
    assert "It ran on replica and succeeded after 1.5 s." in said(answer)
    assert answer.late_seconds is not None
    assert answer.late_seconds < 5
    assert "late" not in said(answer)


def test_a_late_start_is_taken_apart(explainer: Explainer, store: ExecutionStore, make: Make, db: Any) -> None:
    schedule_id = make()
    end(store, start(store, schedule_id, 100), ExecutionStatus.SUCCESS)
    run_sql(db, "UPDATE job_executions SET claimed_at = scheduled_for + '60 s', started_at = scheduled_for + '70 s'")
    answer = explainer.explain(schedule_id, ago(100))
    assert (answer.verdict, answer.late_seconds) == (Verdict.SUCCEEDED, 70)
    assert "It started 1 min 10 s late" in said(answer)
    assert "Replica replica claimed it 1 min after it was due." in said(answer)
    assert "it waited 10 s for a free worker" in said(answer)
    assert "When it was due, 0 executions were running on 0 replicas." in said(answer)


def test_a_spread_is_no_lateness(explainer: Explainer, store: ExecutionStore, make: Make, db: Any) -> None:
    schedule_id = make(spread_seconds=60)
    end(store, start(store, schedule_id, 100), ExecutionStatus.SUCCESS)
    run_sql(db, "UPDATE job_executions SET started_at = due_at")
    assert explainer.explain(schedule_id, ago(100)).late_seconds == 0


def test_what_was_caught_up_says_so(explainer: Explainer, make: Make, db: DatabaseConnection) -> None:
    schedule_id = make()
    insert(db, schedule_id, ago(900), status="success", cause="catchup", started_at=ago(10), claimed_at=ago(11))
    answer = explainer.explain(schedule_id, ago(900))
    assert "It started 14 min 50 s late" in said(answer)
    assert "it was caught up later by the catch-up policy" in said(answer)


def insert(db: DatabaseConnection, schedule_id: UUID, at: datetime, **columns: Any) -> UUID:
    given = {
        "schedule_id": schedule_id,
        "job_id": "job",
        "domain": "job",
        "domain_config_id": schedule_id,
        "scheduled_for": at,
        "instance_id": "replica",
        **columns,
    }
    names = ", ".join(given)
    with db.transaction() as connection:
        execution_id: UUID = connection.exec_driver_sql(
            f"INSERT INTO job_executions ({names}) VALUES ({', '.join(['%s'] * len(given))}) RETURNING execution_id",
            tuple(given.values()),
        ).scalar_one()
    return execution_id


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (ExecutionStatus.FAILED, "It ran on replica and failed after 1.5 s: no such host."),
        (ExecutionStatus.TIMED_OUT, "It ran on replica and timed out after 1.5 s: no such host."),
    ],
)
def test_a_failure_tells_what_was_said(
    explainer: Explainer, store: ExecutionStore, make: Make, status: ExecutionStatus, sentence: str
) -> None:
    schedule_id = make()
    end(store, start(store, schedule_id), status, error_message="no such host.\nTraceback …")
    answer = explainer.explain(schedule_id, ago(1))
    assert answer.verdict is Verdict.FAILED
    assert sentence in said(answer)


def test_every_attempt_is_told(explainer: Explainer, store: ExecutionStore, make: Make, db: DatabaseConnection) -> None:
    schedule_id = make(max_retries=1)
    first = start(store, schedule_id)
    end(store, first, ExecutionStatus.FAILED, error_message="boom", retry_in_seconds=600.0)
    a_replica(db)
    answer = explainer.explain(schedule_id, ago(1))
    assert answer.verdict is Verdict.WAITING
    assert "Attempt 1: It ran on replica and failed" in said(answer)
    assert "Attempt 2: It is waiting until" in said(answer)
    assert len(answer.executions) == 2


def test_a_retry_by_hand_names_who_asked(explainer: Explainer, store: ExecutionStore, make: Make, db: Any) -> None:
    schedule_id = make()
    failed = start(store, schedule_id)
    end(store, failed, ExecutionStatus.FAILED, error_message="boom")
    JobHistory(db).request_retry(failed.execution_id, "token:anna")
    assert "Attempt 2, requested by token:anna: It is waiting: no replica is running" in said(
        explainer.explain(schedule_id, ago(1))
    )


def test_an_abandoned_execution_names_its_replica(explainer: Explainer, make: Make, db: DatabaseConnection) -> None:
    schedule_id = make()
    insert(db, schedule_id, ago(50), status="abandoned", started_at=ago(50), completed_at=ago(20))
    answer = explainer.explain(schedule_id, ago(50))
    assert answer.verdict is Verdict.FAILED
    assert "Its replica replica stopped sending heartbeats" in said(answer)


def test_a_cancelled_one_says_when_somebody_asked(explainer: Explainer, make: Make, db: DatabaseConnection) -> None:
    schedule_id = make()
    insert(db, schedule_id, ago(50), status="cancelled", cancel_requested_at=ago(30), completed_at=ago(29))
    answer = explainer.explain(schedule_id, ago(50))
    assert answer.verdict is Verdict.CANCELLED
    assert "It was cancelled before it started, requested at" in said(answer)


def test_a_manual_run_is_found_by_its_own_time(explainer: Explainer, make: Make, db: DatabaseConnection) -> None:
    schedule_id = make()
    execution_id = JobHistory(db).request_run(schedule_id, "token:anna")
    record = JobHistory(db).get_execution(execution_id)
    assert record is not None
    answer = explainer.explain(schedule_id, record.scheduled_for)
    assert answer.verdict is Verdict.WAITING
    assert "It is a manual run, requested by token:anna" in said(answer)
    assert "It is waiting: no replica is running." in said(answer)


def test_a_claimed_one_is_about_to_start(explainer: Explainer, store: ExecutionStore, make: Make) -> None:
    schedule_id = make()
    claim(store, schedule_id)
    answer = explainer.explain(schedule_id, ago(1))
    assert answer.verdict is Verdict.WAITING
    assert "Replica replica claimed it at" in said(answer)


def test_a_running_one_says_for_how_long(explainer: Explainer, store: ExecutionStore, make: Make) -> None:
    schedule_id = make()
    start(store, schedule_id)
    answer = explainer.explain(schedule_id, ago(1))
    assert answer.verdict is Verdict.RUNNING
    assert "It has been running for" in said(answer)


# --- it was skipped or missed ---


def test_an_overlap_names_what_was_in_the_way(explainer: Explainer, store: ExecutionStore, make: Make) -> None:
    schedule_id = make(coalesce=False)
    start(store, schedule_id, 3)
    store.claim([fire(schedule_id, 1)])
    answer = explainer.explain(schedule_id, ago(1))
    assert answer.verdict is Verdict.SKIPPED
    assert "It was skipped: at most 1 of this schedule may run at once (max_instances)." in said(answer)
    assert f"Blocked by the execution of {ago(3):%Y-%m-%d %H:%M:%S} UTC on replica, which is still running." in said(
        answer
    )


def test_an_overlap_with_an_execution_of_a_dead_replica_says_so(
    explainer: Explainer, store: ExecutionStore, make: Make, db: DatabaseConnection
) -> None:
    schedule_id = make(coalesce=False)
    claim = start(store, schedule_id, 3)
    store.claim([fire(schedule_id, 1)])
    with db.transaction() as connection:
        connection.exec_driver_sql(
            "UPDATE job_executions SET status = 'abandoned', completed_at = clock_timestamp() WHERE execution_id = %s",
            (claim.execution_id,),
        )
    answer = explainer.explain(schedule_id, ago(1))
    gone = f"Overlap with an execution of a dead replica: the execution of {ago(3):%Y-%m-%d %H:%M:%S} UTC on replica"
    assert f"{gone}, which was abandoned at " in said(answer)


def test_a_coalesced_fire_names_the_one_that_ran_for_it(
    explainer: Explainer, store: ExecutionStore, make: Make
) -> None:
    schedule_id = make()
    store.claim([fire(schedule_id, 3), fire(schedule_id, 2), fire(schedule_id, 1)])
    answer = explainer.explain(schedule_id, ago(3))
    assert answer.verdict is Verdict.SKIPPED
    assert f"The fire that ran instead is {ago(1):%Y-%m-%d %H:%M:%S} UTC (claimed)." in said(answer)


def test_a_misfire_compares_lateness_and_grace(explainer: Explainer, store: ExecutionStore, make: Make) -> None:
    schedule_id = make(misfire_grace_seconds=60)
    store.claim([fire(schedule_id, 600)])
    answer = explainer.explain(schedule_id, ago(600))
    assert answer.verdict is Verdict.MISSED
    assert "It was found 10 min" in said(answer)
    assert "the misfire grace is 1 min (misfire_grace_seconds)." in said(answer)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"enabled": False}, "The schedule was disabled before it could start."),
        ({"frequency": "daily", "time_config": {"hour": 3}}, "The timing was changed before it could start"),
    ],
)
def test_a_change_before_the_start_names_who_made_it(
    explainer: Explainer,
    store: ExecutionStore,
    make: Make,
    edit: ScheduleRepository,
    changes: dict[str, Any],
    sentence: str,
) -> None:
    schedule_id = make()
    edit.update_schedule(schedule_id, actor="token:anna", **changes)
    store.claim([fire(schedule_id, 1)])
    answer = explainer.explain(schedule_id, ago(1))
    assert answer.verdict is Verdict.SKIPPED
    assert sentence in said(answer)
    assert "made by token:anna" in said(answer)


def test_a_fire_of_a_deleted_schedule_is_explained_after_its_end(
    explainer: Explainer, store: ExecutionStore, make: Make, edit: ScheduleRepository
) -> None:
    schedule_id = make()
    claimed = claim(store, schedule_id)
    edit.delete_schedule(schedule_id, actor="token:anna")
    assert store.look_again(claimed) is None
    answer = explainer.explain(schedule_id, ago(1))
    assert answer.verdict is Verdict.SKIPPED
    assert "The schedule was deleted before it could start." in said(answer)
    assert "made by token:anna" in said(answer)


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("downtime", "The catch-up policy is 'one': this fire is recorded, not run."),
        ("changed", "the timing was changed since then"),
        ("no_handler", "No replica could run it: none has a handler for its job type."),
        ("planned_outage", "It was missed: planned_outage."),
    ],
)
def test_a_missed_fire_has_its_reason(
    explainer: Explainer, make: Make, db: DatabaseConnection, reason: str, sentence: str
) -> None:
    schedule_id = make()
    insert(db, schedule_id, ago(500), status="missed", cause="catchup", reason=reason, completed_at=ago(10))
    answer = explainer.explain(schedule_id, ago(500))
    assert answer.verdict is Verdict.MISSED
    assert sentence in said(answer)


def test_a_fire_inside_a_summary_row_is_explained_by_it(
    explainer: Explainer, make: Make, db: DatabaseConnection
) -> None:
    schedule_id = make()
    facts = json.dumps({"first": ago(500).isoformat(), "last": ago(400).isoformat(), "count": 101})
    insert(db, schedule_id, ago(500), status="missed", cause="catchup", reason="catchup_cap", metadata=facts)
    answer = explainer.explain(schedule_id, ago(450))
    assert answer.verdict is Verdict.MISSED
    assert "101 fires between" in said(answer)


def test_an_unknown_reason_is_repeated_and_a_known_one_is_a_sentence(
    explainer: Explainer, make: Make, db: DatabaseConnection
) -> None:
    schedule_id = make()
    insert(db, schedule_id, ago(500), status="skipped", reason="sunspots", completed_at=ago(499))
    insert(db, schedule_id, ago(400), status="skipped", reason="circuit_open", completed_at=ago(399))
    insert(db, schedule_id, ago(300), status="skipped", reason="paused", completed_at=ago(299))
    assert "It was skipped: sunspots." in said(explainer.explain(schedule_id, ago(500)))
    assert "because its items kept failing" in said(explainer.explain(schedule_id, ago(400)))
    assert "its queue was paused" in said(explainer.explain(schedule_id, ago(300)))


# --- there is no row ---


def test_a_time_that_is_no_fire_names_its_neighbours(
    explainer: Explainer, edit: ScheduleRepository, db: DatabaseConnection
) -> None:
    schedule_id = edit.create_schedule(**VALID, timezone="Europe/Berlin")
    age(db, schedule_id, 86_400 * 400)
    backdate(db, schedule_id, 400)
    answer = explainer.explain(schedule_id, datetime(2026, 8, 1, 12, 0, tzinfo=UTC))
    assert answer.verdict is Verdict.NOT_A_FIRE
    assert "It is not a fire of this schedule, which runs daily at 02:00" in said(answer)
    assert "The previous fire is 2026-08-01 02:00:00 CEST." in said(answer)
    assert answer.next_fire_at == datetime(2026, 8, 2, 0, 0, tzinfo=UTC)


def backdate(db: DatabaseConnection, schedule_id: UUID, days: int) -> None:
    """As if it had been created, and changed, so long ago."""
    run_sql(db, "UPDATE schedules SET created_at = now() - make_interval(days => %s)", days)
    run_sql(db, "UPDATE schedule_changes SET changed_at = changed_at - make_interval(days => %s)", days)


def test_the_bounds_of_a_schedule_are_named(
    explainer: Explainer, edit: ScheduleRepository, db: DatabaseConnection
) -> None:
    bounds = {"start_at": "2026-05-01T00:00+00:00", "end_at": "2026-06-01T00:00+00:00"}
    schedule_id = edit.create_schedule(**{**VALID, **bounds})
    backdate(db, schedule_id, 900)
    early = explainer.explain(schedule_id, datetime(2026, 4, 1, 2, tzinfo=UTC))
    late = explainer.explain(schedule_id, datetime(2026, 7, 1, 2, tzinfo=UTC))
    assert "The schedule starts at 2026-05-01 00:00:00 UTC." in said(early)
    assert "The schedule ended at 2026-06-01 00:00:00 UTC." in said(late)


def test_a_fire_before_the_timing_was_changed_is_not_made_up_for(
    explainer: Explainer, edit: ScheduleRepository, db: DatabaseConnection
) -> None:
    schedule_id = edit.create_schedule(**VALID)
    backdate(db, schedule_id, 10)
    edit.update_schedule(schedule_id, time_config={"hour": 1, "minute": 0}, actor="token:anna")
    yesterday = (datetime.now(UTC) - timedelta(days=1)).replace(hour=1, minute=0, second=0, microsecond=0)
    answer = explainer.explain(schedule_id, yesterday)
    assert answer.verdict is Verdict.NOT_YET_VALID
    assert "(changed by token:anna at" in said(answer)
    assert "The timing at that moment was: daily at 02:00 UTC." in said(answer)


def test_a_schedule_that_was_off_names_who_switched_it_off(
    explainer: Explainer, make: Make, edit: ScheduleRepository, db: DatabaseConnection
) -> None:
    schedule_id = make()
    edit.update_schedule(schedule_id, enabled=False, actor="token:anna")
    backdate(db, schedule_id, 1)
    answer = explainer.explain(schedule_id, ago(30))
    assert answer.verdict is Verdict.DISABLED
    assert "disabled (disabled by token:anna at" in said(answer)


def test_a_schedule_that_was_off_says_the_note_of_that_time(
    explainer: Explainer, make: Make, edit: ScheduleRepository, db: DatabaseConnection
) -> None:
    schedule_id = make()
    edit.update_schedule(schedule_id, enabled=False, disabled_note="supplier migrates", actor="token:anna")
    backdate(db, schedule_id, 1)
    edit.update_schedule(schedule_id, disabled_note="supplier still migrates", actor="token:bert")
    then = explainer.explain(schedule_id, ago(30))
    assert re.search(r"disabled by token:anna at [^)]+\): supplier migrates$", said(then))
    coming = explainer.explain(schedule_id, datetime.now(UTC) + timedelta(days=1))
    assert re.search(r"disabled by token:anna at [^)]+\): supplier still migrates$", said(coming))


def test_a_schedule_that_is_off_now_was_on_then(
    explainer: Explainer, make: Make, edit: ScheduleRepository, db: DatabaseConnection
) -> None:
    schedule_id = make()
    backdate(db, schedule_id, 1)
    edit.update_schedule(schedule_id, enabled=False)
    watched(db)
    assert explainer.explain(schedule_id, ago(300)).verdict is Verdict.UNACCOUNTED
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert explainer.explain(schedule_id, tomorrow).verdict is Verdict.DISABLED


def test_a_time_without_an_offset_is_read_in_utc_where_the_schedule_s_zone_does_not_exist(
    explainer: Explainer, make: Make, db: DatabaseConnection
) -> None:
    schedule_id = make()
    run_sql(db, "UPDATE schedules SET timezone = 'Nowhere/Land'")
    backdate(db, schedule_id, 1)
    answer = explainer.explain_text(schedule_id, f"{ago(30):%Y-%m-%dT%H:%M:%S}")
    assert (answer.at, answer.verdict) == (ago(30), Verdict.INVALID)


def test_a_broken_schedule_says_what_is_wrong(explainer: Explainer, make: Make, db: DatabaseConnection) -> None:
    schedule_id = make()
    run_sql(db, "UPDATE schedules SET frequency = 'dayly'")
    backdate(db, schedule_id, 1)
    answer = explainer.explain(schedule_id, ago(30))
    assert answer.verdict is Verdict.INVALID
    assert "unknown frequency 'dayly'" in said(answer)


def test_before_its_creation_there_was_nothing(explainer: Explainer, make: Make) -> None:
    schedule_id = make()
    answer = explainer.explain(schedule_id, ago(3000))
    assert answer.verdict is Verdict.NOT_EXISTING
    assert "did not exist yet (created by python:" in said(answer)


def test_after_its_deletion_there_is_nothing(
    explainer: Explainer, make: Make, edit: ScheduleRepository, db: DatabaseConnection
) -> None:
    schedule_id = make()
    edit.delete_schedule(schedule_id, actor="token:anna")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert "deleted by token:anna" in said(explainer.explain(schedule_id, tomorrow))
    run_sql(db, "UPDATE schedule_changes SET changed_at = changed_at - interval '1 hour'")
    answer = explainer.explain(schedule_id, ago(5))
    assert answer.verdict is Verdict.NOT_EXISTING
    assert "The schedule had been deleted (deleted by token:anna at" in said(answer)


def test_a_truncated_table_ended_every_schedule(explainer: Explainer, make: Make, db: DatabaseConnection) -> None:
    schedule_id = make()
    run_sql(db, "TRUNCATE schedules CASCADE")
    run_sql(db, "UPDATE schedule_changes SET changed_at = changed_at - interval '1 hour'")
    assert explainer.explain(schedule_id, ago(5)).verdict is Verdict.NOT_EXISTING


def test_a_fire_to_come_says_when(explainer: Explainer, make: Make) -> None:
    schedule_id = make()
    answer = explainer.explain(schedule_id, (datetime.now(UTC) + timedelta(hours=2, seconds=30)).replace(microsecond=0))
    assert answer.verdict is Verdict.UPCOMING
    assert "It will run in 2 h" in said(answer)


def test_a_row_that_waits_for_a_special_replica_says_which(
    explainer: Explainer, make: Make, db: DatabaseConnection
) -> None:
    schedule_id = make(queue="browser", requires=["eu"])
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, due_at)
               VALUES (%(id)s, 'job', 'job', %(id)s, 'pending', %(at)s, %(at)s)""",
            {"id": schedule_id, "at": ago(30)},
        )
        connection.exec_driver_sql(
            "INSERT INTO scheduler_instances (instance_id, incarnation) VALUES ('replica', gen_random_uuid())"
        )
    words = "waiting for a free slot on a replica that serves the queue 'browser' and offers eu since"
    assert words in said(explainer.explain(schedule_id, ago(30)))


def test_what_no_living_replica_is_able_to_run_says_what_they_lack(
    explainer: Explainer, store: ExecutionStore, make: Make, db: DatabaseConnection
) -> None:
    """Also of a fire that was coalesced into it: what the elder waits for, the younger one waits for, too."""
    schedule_id = make(requires=["gpu"])
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO scheduler_instances (instance_id, incarnation, abilities, queues)
               VALUES ('replica', gen_random_uuid(), '{job:noop}', '{default}')"""
        )
        connection.exec_driver_sql(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, due_at,
                                           queue, needs)
               VALUES (%(id)s, 'job', 'job', %(id)s, 'pending', %(at)s, %(at)s, 'default', '{gpu,job:noop}')""",
            {"id": schedule_id, "at": ago(30)},
        )
    lack = f"It has been waiting since {ago(30):%Y-%m-%d %H:%M:%S} UTC: no live replica has gpu."
    assert lack in said(explainer.explain(schedule_id, ago(30)))
    assert store.claim([fire(schedule_id, 3)]).decisions == {fire(schedule_id, 3): Decision.COALESCED}
    assert lack in said(explainer.explain(schedule_id, ago(3)))
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE scheduler_instances SET abilities = '{gpu,job:noop}'")
    assert "waiting for a free slot on a replica that offers gpu since" in said(explainer.explain(schedule_id, ago(3)))
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE job_executions SET queue = 'browser' WHERE status = 'pending'")
    assert "no live replica has queue:browser." in said(explainer.explain(schedule_id, ago(30)))


def test_what_a_fleet_ran_says_where_it_waited_and_ran(
    explainer: Explainer, store: ExecutionStore, make: Make, db: Any
) -> None:
    schedule_id = make(queue="browser")
    claim = start(store, schedule_id, 100)
    end(store, claim, ExecutionStatus.SUCCESS)
    run_sql(
        db,
        """UPDATE job_executions SET published_at = scheduled_for + '1 s', claimed_at = scheduled_for + '60 s',
                                    started_at = scheduled_for + '60 s', instance_id = 'worker-1-857'""",
    )
    words = said(explainer.explain(schedule_id, ago(100)))
    assert "It waited 1 min, announced to the workers of the queue 'browser' at" in words
    assert "Worker worker-1-857 claimed it 1 min after it was due." in words
    assert "It ran on worker-1-857 and succeeded" in words
    record = JobHistory(db).get_execution(claim.execution_id)
    assert record is not None
    moments = [(moment.what, moment.text) for moment in timeline(record)][1:-1]
    assert moments == [
        ("due", "due"),
        ("announced", "announced to the workers of its queue"),
        ("claimed", "claimed by worker-1-857"),
        ("started", "started by worker-1-857"),
    ]


def test_a_row_that_waits_for_a_worker_says_for_which(explainer: Explainer, make: Make, db: DatabaseConnection) -> None:
    schedule_id = make(queue="browser")
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, due_at,
                                           published_at)
               VALUES (%(id)s, 'job', 'job', %(id)s, 'pending', %(at)s, %(at)s, %(at)s)""",
            {"id": schedule_id, "at": ago(30)},
        )
        connection.exec_driver_sql(
            "INSERT INTO scheduler_instances (instance_id, incarnation) VALUES ('replica', gen_random_uuid())"
        )
    words = "waiting for a free slot on a worker that serves the queue 'browser' since"
    assert words in said(explainer.explain(schedule_id, ago(30)))


def of_a_limit(db: DatabaseConnection, schedule_id: UUID, status: str, **columns: Any) -> None:
    values = {"schedule_id": schedule_id, "status": status, "at": ago(40), **columns}
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, due_at,
                                           reason, metadata, limit_keys, started_at, completed_at, instance_id)
               VALUES (%(schedule_id)s, 'job', 'job', %(schedule_id)s, %(status)s, %(at)s, %(at)s, %(reason)s,
                       %(metadata)s, %(limit_keys)s, %(started_at)s, %(completed_at)s, 'replica')""",
            {"reason": None, "metadata": None, "limit_keys": [], "started_at": None, "completed_at": None, **values},
        )


def test_a_row_that_waits_for_a_limit_says_which_and_how_full_it_is(
    explainer: Explainer, make: Make, db: DatabaseConnection
) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql("INSERT INTO limits (name, max_running) VALUES ('customer:*', 2)")
        connection.exec_driver_sql(
            "INSERT INTO scheduler_instances (instance_id, incarnation) VALUES ('replica', gen_random_uuid())"
        )
    for _ in range(2):
        of_a_limit(db, make(), "running", limit_keys=["customer:42"], started_at=ago(40))
    schedule_id = make(limit_keys=["customer:42"])
    of_a_limit(
        db, schedule_id, "pending", reason="limit:customer:42", metadata=Json({"waited_for_limit": "customer:42"})
    )
    words = r"It has been waiting 4\d s for limit customer:42 \(2 of 2 running by customer:\*\), since"
    assert re.search(words, said(explainer.explain(schedule_id, ago(40))))


def test_a_row_that_waits_beside_an_empty_place_says_for_whom_that_is_kept(
    explainer: Explainer, make: Make, db: DatabaseConnection
) -> None:
    both, alone = make(limit_keys=["customer:42", "site:berlin"]), make(limit_keys=["customer:42"])
    mark = Json({"waited_for_limit": "customer:42"})
    for schedule_id, key in ((both, "site:berlin"), (alone, "customer:42")):
        of_a_limit(db, schedule_id, "pending", reason=f"limit:{key}", metadata=mark)
    with db.transaction() as connection:
        connection.exec_driver_sql("INSERT INTO limits (name, max_running) VALUES ('customer:42', 1)")
        connection.exec_driver_sql(
            "INSERT INTO scheduler_instances (instance_id, incarnation) VALUES ('replica', gen_random_uuid())"
        )
        waiting = "SELECT execution_id::text FROM job_executions WHERE reason = 'limit:site:berlin'"
        keeper = connection.exec_driver_sql(waiting).scalar_one()
        kept = Json({"customer:42": {"execution_id": keeper, "until": (ago(0) + timedelta(minutes=5)).isoformat()}})
        connection.exec_driver_sql("UPDATE limit_stripes SET kept = %s", (kept,))
    words = f"for limit customer:42 (0 of 1 running, one place kept for execution {keeper[:8]})"
    assert words in said(explainer.explain(alone, ago(40)))
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE job_executions SET status = 'cancelled' WHERE execution_id = %s", (keeper,))
    assert "(0 of 1 running)" in said(explainer.explain(alone, ago(40)))


@pytest.mark.parametrize(
    ("elder", "words"),
    [
        ("pending", r"It has been waiting 4\d s for limit customer:42 \(0 of 2 running by customer:\*\), since"),
        ("running", r"It waited \d+ s for limit customer:42\."),
    ],
)
def test_a_coalesced_fire_says_what_its_elder_waits_for(
    explainer: Explainer, store: ExecutionStore, make: Make, db: DatabaseConnection, elder: str, words: str
) -> None:
    schedule_id = make(limit_keys=["customer:42"])
    mark = Json({"waited_for_limit": "customer:42"})
    of_a_limit(db, schedule_id, "pending", reason="limit:customer:42", metadata=mark)
    assert store.claim([fire(schedule_id, 3)]).decisions == {fire(schedule_id, 3): Decision.COALESCED}
    with db.transaction() as connection:
        connection.exec_driver_sql("INSERT INTO limits (name, max_running) VALUES ('customer:*', 2)")
        if elder == "running":
            connection.exec_driver_sql(
                """UPDATE job_executions SET status = 'running', reason = NULL, claimed_at = clock_timestamp(),
                          started_at = clock_timestamp() WHERE status = 'pending'"""
            )
    answer = said(explainer.explain(schedule_id, ago(3)))
    assert f"That fire is {ago(40):%Y-%m-%d %H:%M:%S} UTC ({elder})." in answer
    assert re.search(words, answer)


def test_what_waited_for_a_limit_was_not_late(explainer: Explainer, make: Make, db: DatabaseConnection) -> None:
    schedule_id = make(limit_keys=["customer:42"])
    mark = Json({"waited_for_limit": "customer:42"})
    of_a_limit(db, schedule_id, "success", metadata=mark, started_at=ago(10), completed_at=ago(5))
    answer = explainer.explain(schedule_id, ago(40))
    assert "It waited 30 s for limit customer:42." in said(answer)
    assert "late" not in said(answer)
    assert answer.late_seconds is None


def test_a_spread_fire_waits_for_its_turn(explainer: Explainer, make: Make, db: DatabaseConnection) -> None:
    schedule_id = make(spread_seconds=86_400)
    backdate(db, schedule_id, 1)
    answer = explainer.explain(schedule_id, ago(2))
    assert answer.verdict is Verdict.UPCOMING
    assert "Its spread delays it by" in said(answer)


def test_a_fire_of_a_moment_ago_still_has_its_chance(explainer: Explainer, make: Make, db: DatabaseConnection) -> None:
    schedule_id = make()
    backdate(db, schedule_id, 1)
    assert explainer.explain(schedule_id, ago(2)).verdict is Verdict.SETTLING


def test_a_fire_without_a_row_has_the_chance_of_a_gap_scan_that_has_not_looked_yet(
    explainer: Explainer, make: Make, db: DatabaseConnection
) -> None:
    schedule_id = make()
    backdate(db, schedule_id, 1)
    assert explainer.explain(schedule_id, ago(20)).verdict is Verdict.NO_REPLICA
    a_replica(db)
    assert explainer.explain(schedule_id, ago(20)).verdict is Verdict.SETTLING
    watched(db)
    assert explainer.explain(schedule_id, ago(20)).verdict is Verdict.UNACCOUNTED


def test_a_change_at_the_same_moment_may_have_been_first(
    explainer: Explainer, make: Make, edit: ScheduleRepository, db: DatabaseConnection
) -> None:
    schedule_id = make()
    backdate(db, schedule_id, 1)
    edit.update_schedule(schedule_id, enabled=False)
    run_sql(
        db, "UPDATE schedule_changes SET changed_at = %s WHERE operation = 'update'", ago(60) + timedelta(seconds=1)
    )
    answer = explainer.explain(schedule_id, ago(60))
    assert (answer.verdict, "at the same moment" in said(answer)) == (Verdict.SETTLING, True)


def test_history_that_is_not_kept_explains_nothing(
    explainer: Explainer, edit: ScheduleRepository, db: DatabaseConnection
) -> None:
    schedule_id = edit.create_schedule(**VALID)
    backdate(db, schedule_id, 400)
    answer = explainer.explain(
        schedule_id, (datetime.now(UTC) - timedelta(days=200)).replace(hour=2, minute=0, second=0, microsecond=0)
    )
    assert answer.verdict is Verdict.FORGOTTEN


def test_without_any_replica_nothing_runs(explainer: Explainer, make: Make, db: DatabaseConnection) -> None:
    schedule_id = make()
    backdate(db, schedule_id, 1)
    never = explainer.explain(schedule_id, ago(300))
    assert (never.verdict, "no replica is running." in said(never)) == (Verdict.NO_REPLICA, True)
    a_replica(db, beat=timedelta(minutes=10))
    died = explainer.explain(schedule_id, ago(300))
    assert died.verdict is Verdict.NO_REPLICA
    assert "the last heartbeat was at" in said(died)
    assert "catch-up policy 'one'" in said(died)


def test_a_replica_that_started_later_could_not_have_run_it(
    explainer: Explainer, make: Make, db: DatabaseConnection
) -> None:
    schedule_id = make()
    backdate(db, schedule_id, 1)
    a_replica(db, started=timedelta(seconds=100))
    answer = explainer.explain(schedule_id, ago(300))
    assert answer.verdict is Verdict.NO_REPLICA
    assert "the oldest live replica started at" in said(answer)


def test_what_no_replica_has_looked_at_yet_is_no_hole(explainer: Explainer, make: Make, db: DatabaseConnection) -> None:
    schedule_id = make()
    backdate(db, schedule_id, 1)
    a_replica(db)
    answer = explainer.explain(schedule_id, ago(300))
    assert answer.verdict is Verdict.UNWATCHED
    assert "no gap scan checked yet" in said(answer)


def test_a_hole_is_called_one(explainer: Explainer, make: Make, db: DatabaseConnection) -> None:
    schedule_id = make()
    backdate(db, schedule_id, 1)
    watched(db)
    answer = explainer.explain(schedule_id, ago(300))
    assert answer.verdict is Verdict.UNACCOUNTED
    assert "manage.py audit" in said(answer)


def test_a_database_without_a_log_is_explained_by_its_rows(
    explainer: Explainer, make: Make, db: DatabaseConnection
) -> None:
    schedule_id = make()
    backdate(db, schedule_id, 1)
    run_sql(db, "DELETE FROM schedule_changes")
    watched(db)
    assert explainer.explain(schedule_id, ago(300)).verdict is Verdict.UNACCOUNTED
    assert explainer.explain(schedule_id, ago(86_400 * 2)).verdict is Verdict.NOT_EXISTING


# --- which moment ---


def test_without_a_time_the_latest_fire_is_meant(
    explainer: Explainer, edit: ScheduleRepository, db: DatabaseConnection
) -> None:
    schedule_id = edit.create_schedule(**VALID)
    backdate(db, schedule_id, 10)
    answer = explainer.explain(schedule_id)
    now = datetime.now(UTC)
    today = now.replace(hour=2, minute=0, second=0, microsecond=0)
    assert answer.at == (today if now > today + timedelta(seconds=1) else today - timedelta(days=1))


def test_an_unknown_schedule_is_not_found(explainer: Explainer) -> None:
    with pytest.raises(ScheduleNotFound):
        explainer.explain(uuid4(), ago(10))


@pytest.mark.parametrize(
    ("text", "timezone", "expected"),
    [
        ("2027-01-31T02:00", "Europe/Berlin", "2027-01-31T01:00:00+00:00"),
        ("2027-01-31 02:00", "Europe/Berlin", "2027-01-31T01:00:00+00:00"),
        ("2027-01-31T02:00:00+00:00", "Europe/Berlin", "2027-01-31T02:00:00+00:00"),
        ("2027-01-31T02:00:00 01:00", "UTC", "2027-01-31T01:00:00+00:00"),
        ("2027-01-31T02:00:00Z", "Europe/Berlin", "2027-01-31T02:00:00+00:00"),
    ],
)
def test_a_moment_is_read_as_people_of_the_zone_mean_it(text: str, timezone: str, expected: str) -> None:
    assert parse_moment(text, timezone).isoformat() == expected


def test_a_time_that_the_clocks_skip_is_named_and_what_was_planned_for_it_explained(
    explainer: Explainer, edit: ScheduleRepository
) -> None:
    in_berlin = {**VALID, "time_config": {"hour": 2, "minute": 30}, "timezone": "Europe/Berlin"}
    found = explainer.explain_text(edit.create_schedule(**in_berlin), "2099-03-29T02:30")
    assert found.sentences[0].startswith("2099-03-29T02:30 does not exist in Europe/Berlin")
    assert "2099-03-29 03:00:00 CEST" in found.sentences[0]
    assert (found.verdict, found.at) == (Verdict.UPCOMING, datetime(2099, 3, 29, 1, tzinfo=UTC))


@pytest.mark.parametrize("text", ["", "tomorrow", "2027-13-01", "0001-01-01T00:00", "9999-12-31T00:00", "x" * 500])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="at: must be an ISO 8601 time"):
        parse_moment(text, "UTC")


# --- on the command line ---


def test_the_command_line_explains(own_process: dict[str, str], edit: ScheduleRepository) -> None:
    edit.create_schedule(**VALID, name="nightly")
    asked = ["schedule", "explain", "nightly", "--at", "2099-01-01T02:00"]
    result = CliRunner().invoke(manage.app, asked)
    assert result.exit_code == 0, result.output
    assert "It will run in" in result.output
    plain = json.loads(CliRunner().invoke(manage.app, [*asked, "--json"]).output)
    assert (plain["verdict"], plain["at"]) == ("upcoming", "2099-01-01T02:00:00+00:00")
    bad = CliRunner().invoke(manage.app, ["schedule", "explain", "nightly", "--at", "noon"])
    assert (bad.exit_code, "at: must be an ISO 8601 time" in bad.stderr) == (2, True)
