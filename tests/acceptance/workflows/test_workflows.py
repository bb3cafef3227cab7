"""Workflows as replicas run them: schedules of their own, history like every other job, faults that stay at home."""

from typing import Any

from services.job_history import JobHistory
from services.queues.queue import Queue
from services.queues.queue_state import QueueStates
from services.workflows.domain_extraction import DOMAIN_EXTRACTION
from tests.support.hanging_queue import HANGING
from tests.support.places import add_places, places, query
from tests.support.replicas import Cluster
from tests.support.waiting import eventually

WORKFLOWS = {"WORKFLOWS_ENABLED": "true", "JOB_MODULES": "tests.support.workflow_queues"}


def add_business(cluster: Cluster, website: str) -> None:
    cluster.run(
        """INSERT INTO local_businesses (place_id, website_url, domain_extraction_status)
           VALUES (gen_random_uuid(), %s, 'Queued')""",
        website,
    )


def run_now(cluster: Cluster, queue: Queue[Any]) -> None:
    eventually(lambda: cluster.rows("SELECT FROM schedules WHERE schedule_id = %s", queue.schedule_id))
    JobHistory(cluster.db).request_run(queue.schedule_id, "test")


def domains(cluster: Cluster) -> set[str]:
    return {row[0] for row in cluster.rows("SELECT domain FROM domains")}


def executions(cluster: Cluster, queue: Queue[Any]) -> list[tuple[Any, ...]]:
    return cluster.rows(
        """SELECT status, reason, metadata->'result' FROM job_executions
           WHERE schedule_id = %s AND cause = 'manual' AND completed_at IS NOT NULL ORDER BY completed_at""",
        queue.schedule_id,
    )


def test_a_business_becomes_a_domain_and_the_run_says_what_it_did(cluster: Cluster) -> None:
    add_business(cluster, "https://www.one.example/")
    cluster.start(2, **WORKFLOWS)
    run_now(cluster, DOMAIN_EXTRACTION)
    eventually(lambda: domains(cluster) == {"one.example"}, 30)
    ((status, reason, result),) = eventually(lambda: executions(cluster, DOMAIN_EXTRACTION), 30)
    assert (status, reason, result["claimed"] <= 1) == ("success", None, True)


def test_a_paused_queue_s_run_is_recorded_as_skipped(cluster: Cluster) -> None:
    QueueStates(cluster.db).pause(DOMAIN_EXTRACTION.name, "under repair", "anna")
    add_business(cluster, "https://www.one.example/")
    cluster.start(1, **WORKFLOWS)
    run_now(cluster, DOMAIN_EXTRACTION)
    ((status, reason, _),) = eventually(lambda: executions(cluster, DOMAIN_EXTRACTION), 30)
    assert (status, reason, domains(cluster)) == ("skipped", "paused", set())


def test_without_the_setting_there_are_no_system_schedules(cluster: Cluster) -> None:
    cluster.start(1)
    assert cluster.rows("SELECT name FROM schedules") == []


def test_a_replica_writes_a_former_variable_into_the_schedule_and_says_so(cluster: Cluster) -> None:
    (replica,) = cluster.start(1, **WORKFLOWS, DOMAIN_EXTRACTION_SCHEDULER_CONCURRENCY="7")
    sql = "SELECT job_config FROM schedules WHERE schedule_id = %s"
    carried = {"queue": "domain_extraction", "concurrency": 7}
    eventually(lambda: cluster.rows(sql, DOMAIN_EXTRACTION.schedule_id) == [(carried,)], 30)
    assert "DOMAIN_EXTRACTION_SCHEDULER_CONCURRENCY=7 is no longer a setting" in replica.log.read_text()


def test_a_queue_whose_items_hang_leaves_the_others_running(cluster: Cluster) -> None:
    add_places(cluster.db, 3)
    cluster.start(1, **WORKFLOWS)
    run_now(cluster, HANGING)
    eventually(lambda: places(cluster.db).count("Processing") == 3, 30)
    add_business(cluster, "https://two.example/")
    run_now(cluster, DOMAIN_EXTRACTION)
    eventually(lambda: "two.example" in domains(cluster), 30)
    assert places(cluster.db).count("Processing") == 3


def test_a_replica_that_drains_hands_its_items_back(cluster: Cluster) -> None:
    """They hang, so they cannot be finished within the grace; nobody has to wait for the rescue."""
    add_places(cluster.db, 3)
    (replica,) = cluster.start(1, **WORKFLOWS, SHUTDOWN_GRACE_SECONDS="2")
    run_now(cluster, HANGING)
    eventually(lambda: places(cluster.db).count("Processing") == 3, 30)
    assert replica.stop() == 0
    assert places(cluster.db, "deep_scan_status, attempts") == [("Queued", 0)] * 3


def test_what_a_killed_replica_had_in_work_goes_to_another(cluster: Cluster) -> None:
    add_places(cluster.db, 2)
    (victim,) = cluster.start(1, **WORKFLOWS)
    run_now(cluster, HANGING)
    eventually(lambda: places(cluster.db).count("Processing") == 2, 30)
    victim.kill()
    query(cluster.db, "UPDATE places_staging SET claimed_at = now() - interval '1 hour'")  # as if time had passed
    cluster.start(1, **WORKFLOWS)
    run_now(cluster, HANGING)
    eventually(lambda: places(cluster.db, "attempts") == [2, 2], 60)
