"""What is shown about all queues: gauges, samples for charts, and how long they are kept."""

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import REGISTRY

from config import Settings
from database.connection import DatabaseConnection
from services.queues.overview import QueueOverview
from services.queues.queue_state import QueueStates
from services.workflows.replica import ReplicaWorkflows
from tests.support.places import query

QUEUE = "domain_extraction"


@pytest.fixture
def overview(db: DatabaseConnection) -> QueueOverview:
    query(
        db,
        """INSERT INTO local_businesses (place_id, domain_extraction_status, not_before)
           SELECT n, CASE WHEN n > 2 THEN 'Error' ELSE 'Queued' END, now() - interval '1 hour'
           FROM generate_series(1, 3) AS n""",
    )
    return QueueOverview(db, Settings())


def gauge(name: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"queue": QUEUE})


def test_the_gauges_show_the_table(overview: QueueOverview) -> None:
    overview.watch()
    assert (gauge("scheduler_queue_depth"), gauge("scheduler_queue_failed")) == (2, 1)
    assert (gauge("scheduler_queue_oldest_seconds") or 0) >= 3600
    for name in ("processing", "stale", "dead_letters", "leaked_threads"):
        assert gauge(f"scheduler_queue_{name}") == 0


def test_rows_whose_worker_vanished_are_told_from_those_in_work(
    overview: QueueOverview, db: DatabaseConnection
) -> None:
    """One that somebody set to processing by hand has no claim; it counts from its last change, which is now."""
    query(
        db,
        """INSERT INTO local_businesses (place_id, domain_extraction_status, claimed_at)
           VALUES ('gone', 'Processing', now() - interval '1 hour'), ('in work', 'Processing', now()),
                  ('by hand', 'Processing', NULL), ('long done', 'Completed', now() - interval '1 hour')""",
    )
    (view,) = [view for view in overview.look() if view.name == QUEUE]
    overview.watch()
    shown = (gauge("scheduler_queue_processing"), gauge("scheduler_queue_stale"))
    query(db, "DELETE FROM local_businesses")
    overview.watch()
    assert (view.processing, view.stale) == shown == (3, 1)
    assert gauge("scheduler_queue_stale") == 0


def test_every_replica_shows_whether_a_queue_may_run_whoever_decided_it(
    overview: QueueOverview, db: DatabaseConnection
) -> None:
    """Also one that does not run it: an alarm that only the next run ends would ring on after a resume."""
    query(db, f"INSERT INTO workflow_queues (queue, circuit, batch_size) VALUES ('{QUEUE}', 'open', 80)")
    QueueStates(db).pause(QUEUE, "tea", "anna")
    overview.watch()
    shown = [gauge(f"scheduler_queue_{name}") for name in ("circuit", "paused", "batch_size")]
    QueueStates(db).resume(QUEUE)
    overview.watch()
    assert shown == [2, 1, 80]
    assert (gauge("scheduler_queue_circuit"), gauge("scheduler_queue_paused")) == (0, 0)


def test_one_sample_a_minute_is_kept_however_many_replicas_look(
    overview: QueueOverview, db: DatabaseConnection
) -> None:
    overview.watch()
    query(db, "UPDATE workflow_samples SET sampled_at = sampled_at - interval '1 minute'")
    for _ in range(3):
        overview.watch()
    samples = overview.samples(QUEUE, datetime.now(UTC) - timedelta(hours=1))
    assert 2 <= len(samples) <= 3  # the minute may have changed meanwhile
    assert samples[0].sampled_at < samples[1].sampled_at
    assert (samples[0].depth, samples[0].failed, samples[0].succeeded) == (2, 1, 0)


def test_old_samples_and_dead_letters_are_deleted(overview: QueueOverview, db: DatabaseConnection) -> None:
    overview.watch()
    for age in (10, 100):
        query(
            db,
            f"""INSERT INTO dead_letters (queue, item_key, attempts, error, died_at)
                VALUES ('{QUEUE}', '{age}', 3, 'no', now() - interval '{age} days')""",
        )
    query(db, "UPDATE workflow_samples SET sampled_at = now() - interval '15 days'")
    overview.watch()
    overview.cleanup(days=90)
    assert query(db, "SELECT item_key FROM dead_letters") == [("10",)]
    assert query(db, "SELECT min(sampled_at) > now() - interval '1 hour' FROM workflow_samples") == [(True,)]


@pytest.mark.parametrize("enabled", [True, False])
def test_a_replica_looks_after_queues_only_where_there_are_workflows(db: DatabaseConnection, enabled: bool) -> None:
    replica = ReplicaWorkflows(Settings(workflows_enabled=enabled), db)
    replica.install()
    replica.watch()
    assert (query(db, "SELECT count(*) FROM schedules")[0][0] > 0) is enabled
    assert (query(db, "SELECT count(*) FROM workflow_samples")[0][0] > 0) is enabled
