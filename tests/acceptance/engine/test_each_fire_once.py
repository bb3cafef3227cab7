"""G1 to G5 with real replicas: each fire once, never without a row, never two at once, obedient to changes."""

import json
from datetime import timedelta

import requests

from services.job_history import JobHistory
from tests.support.executions import age
from tests.support.ledger import Ledger
from tests.support.replicas import Cluster
from tests.support.rows import (
    OPEN,
    calls,
    count,
    every_run_was_seen,
    every_second,
    has_run,
    never_two_at_once,
    once,
    repository,
    rows_at_each_request,
    soon,
    switch_off,
)
from tests.support.waiting import eventually


def test_500_fires_at_one_instant_run_once_each_and_are_shared(cluster: Cluster) -> None:
    replicas = cluster.start(3)
    at = soon(4)
    repository(cluster).save_schedules(once(at) for _ in range(500))
    eventually(lambda: count(cluster, "status = 'success'") == 500, 60)
    assert count(cluster) == 500
    assert cluster.rows(
        "SELECT count(DISTINCT schedule_id), min(scheduled_for), max(scheduled_for) FROM job_executions"
    ) == [(500, at, at)]
    assert cluster.rows("SELECT count(*) FROM job_executions WHERE started_at < scheduled_for") == [(0,)]
    assert cluster.rows("SELECT count(DISTINCT instance_id) FROM job_executions") == [(len(replicas),)]


def test_the_outside_world_sees_each_fire_once(cluster: Cluster, ledger: Ledger) -> None:
    cluster.start(3)
    repository(cluster).save_schedules(every_second(**calls(ledger)) for _ in range(5))
    eventually(lambda: len(ledger.requests()) >= 25, 30)
    switch_off(cluster)
    every_run_was_seen(cluster, ledger)
    assert len(ledger.requests()) == count(cluster, "status = 'success'")


def test_no_handler_is_called_before_its_row_is_committed(cluster: Cluster, ledger: Ledger) -> None:
    """At the moment of each request somebody else looks at the table: fires, retries and manual runs alike."""
    cluster.start(3)
    seen = rows_at_each_request(cluster, ledger)
    ledger.answer("/unsure", status=503)
    at = soon(3)
    repository(cluster).save_schedules(
        once(at, job_type="http_request", job_config={"url": f"{ledger.url}/sure"}) for _ in range(150)
    )
    unsure = repository(cluster).create_schedule(
        **once(at, job_type="http_request", job_config={"url": f"{ledger.url}/unsure"}),
        max_retries=2,
        retry_backoff_seconds=0,
    )
    JobHistory(cluster.db).request_run(unsure, actor="test")
    eventually(lambda: count(cluster, "status = 'success'") == 150, 40)
    eventually(lambda: len(ledger.requests("/unsure")) == 6 and count(cluster, OPEN) == 0, 20)
    assert seen == [True] * 156


def test_a_schedule_never_overlaps_itself_across_replicas(cluster: Cluster) -> None:
    cluster.start(3)
    repository(cluster).save_schedules(
        every_second(job_type="sleep", job_config={"seconds": 1.5}, coalesce=False) for _ in range(6)
    )
    eventually(lambda: count(cluster, "status = 'success'") >= 18, 60)
    never_two_at_once(cluster)
    assert count(cluster, "status = 'skipped' AND reason = 'overlap'") > 0, "what did not run says why"


def test_fires_a_second_apart_of_1000_schedules_never_run_two_at_once(cluster: Cluster) -> None:
    cluster.start(3, MAX_WORKERS="20")
    at = soon(8)
    repository(cluster).save_schedules(
        {
            **every_second(job_type="sleep", job_config={"seconds": 0.05}, coalesce=False),
            "start_at": at,
            "end_at": at + timedelta(seconds=3),
        }
        for _ in range(1000)
    )
    eventually(lambda: count(cluster, f"NOT ({OPEN})") == 3000, 120)
    assert count(cluster) == 3000
    assert cluster.rows("SELECT count(DISTINCT instance_id) FROM job_executions WHERE started_at IS NOT NULL") == [(3,)]
    never_two_at_once(cluster)


def test_a_change_by_plain_sql_is_obeyed_at_once_by_every_replica(cluster: Cluster) -> None:
    cluster.start(3)
    cluster.run(
        """INSERT INTO schedules (domain_config_id, domain, job_type, frequency, time_config)
           VALUES (gen_random_uuid(), 'by hand', 'noop', 'interval', '{"seconds": 1}')"""
    )
    eventually(lambda: count(cluster, "status = 'success'") >= 2, 10)
    cluster.run("UPDATE schedules SET enabled = false")
    ((stopped_at,),) = cluster.rows("SELECT effective_from FROM schedules")
    cluster.run("UPDATE schedules SET enabled = true, time_config = '{\"seconds\": 2}'")
    ((changed_at,),) = cluster.rows("SELECT effective_from FROM schedules")
    eventually(
        lambda: cluster.rows("SELECT max(scheduled_for) FROM job_executions")[0][0] > changed_at + timedelta(seconds=5),
        15,
    )
    rows = cluster.rows("SELECT scheduled_for FROM job_executions WHERE started_at IS NOT NULL ORDER BY 1")
    assert not [at for (at,) in rows if stopped_at < at <= changed_at]
    assert all(at.second % 2 == 0 for (at,) in rows if at > changed_at)


def test_a_change_reaches_every_replica_long_before_the_next_comparison(cluster: Cluster) -> None:
    replicas = cluster.start(3, SCHEDULE_CHECK_INTERVAL="3600")
    repository(cluster).create_schedule(**every_second())
    eventually(lambda: count(cluster, "status = 'success'") >= 1, 15)
    for change in ("UPDATE schedules SET priority = 1", SECOND_SCHEDULE):
        cluster.run(change)
        ((newest,),) = cluster.rows("SELECT max(revision) FROM schedules")
        applied = "SELECT count(*) FROM scheduler_instances WHERE revision >= %s"
        eventually(lambda: cluster.rows(applied, newest) == [(len(replicas),)], 10)  # noqa: B023 - called right here
    cluster.run("DELETE FROM schedules WHERE domain = 'job'")
    eventually(lambda: sorted(cluster.rows("SELECT schedules FROM scheduler_instances"))[-2:] == [(1,), (1,)], 10)
    eventually(lambda: count(cluster, "domain = 'second' AND status = 'success'") >= 2, 10)


SECOND_SCHEDULE = """
INSERT INTO schedules (domain_config_id, domain, job_type, frequency, time_config)
VALUES (gen_random_uuid(), 'second', 'noop', 'interval', '{"seconds": 1}')
"""


def test_a_disabled_or_deleted_schedule_never_fires_again(cluster: Cluster) -> None:
    cluster.start(2)
    one, two = (repository(cluster).create_schedule(**every_second()) for _ in range(2))
    eventually(lambda: cluster.rows("SELECT count(DISTINCT schedule_id) FROM job_executions")[0][0] == 2, 10)
    repository(cluster).update_schedule(one, enabled=False)
    repository(cluster).delete_schedule(two)
    ((gone_at,),) = cluster.rows("SELECT clock_timestamp()")
    other = repository(cluster).create_schedule(**every_second())
    eventually(lambda: count(cluster, f"schedule_id = '{other}' AND status = 'success'") >= 4, 15)
    assert (
        count(
            cluster,
            f"schedule_id <> '{other}' AND started_at > '{gone_at.isoformat()}'::timestamptz + interval '0.5 s'",
        )
        == 0
    )


def test_a_schedule_recreated_between_the_claims_of_two_replicas_does_not_repeat_a_fire(cluster: Cluster) -> None:
    """One replica runs the fire; the other one comes to it when the schedule is a new one with the same id."""
    first, second = cluster.start(2)
    at = soon(4)
    schedule_id = repository(cluster).create_schedule(**once(at))
    eventually(lambda: soon(0) >= at - timedelta(seconds=1))
    second.freeze()
    eventually(lambda: has_run(cluster, schedule_id), 15)
    repository(cluster).delete_schedule(schedule_id)
    repository(cluster).create_schedule(schedule_id=schedule_id, **once(at))
    age(cluster.db, schedule_id, 60)  # as if it had been due under the new one, too
    second.resume()
    first.stop()
    marker = repository(cluster).create_schedule(**once(soon(4)))
    eventually(lambda: has_run(cluster, marker), 20)
    assert cluster.rows("SELECT instance_id FROM job_executions WHERE schedule_id = %s", marker) == [(second.name,)]
    assert cluster.rows("SELECT instance_id FROM job_executions WHERE schedule_id = %s", schedule_id) == [(first.name,)]


def test_a_run_uses_the_configuration_of_its_start_not_of_its_claim(cluster: Cluster, ledger: Ledger) -> None:
    """With one worker and jobs of 0.12 s a replica claims a fire ahead and does not start it."""
    cluster.start(1, MAX_WORKERS="1")
    usual = repository(cluster).create_schedule(**once(soon(1), job_type="sleep", job_config={"seconds": 0.12}))
    eventually(lambda: has_run(cluster, usual), 15)
    at = soon(3)
    repository(cluster).create_schedule(**once(at, job_type="sleep", job_config={"seconds": 4}, priority=1))
    late = repository(cluster).create_schedule(
        **once(at, job_type="http_request", job_config={"url": f"{ledger.url}/old"})
    )
    eventually(lambda: count(cluster, f"schedule_id = '{late}' AND status = 'claimed'") == 1, 10)
    repository(cluster).update_schedule(late, job_config={"url": f"{ledger.url}/new"})
    assert count(cluster, f"schedule_id = '{late}' AND status = 'claimed'") == 1, "it was not started meanwhile"
    eventually(lambda: has_run(cluster, late), 20)
    assert [request.path for request in ledger.requests()] == ["/new"]


def test_a_row_that_makes_no_sense_is_parked_and_stops_nobody(cluster: Cluster) -> None:
    (replica,) = cluster.start(1)
    for frequency, config in (("daily", {"hour": 77}), ("sometimes", {}), ("interval", {"seconds": 0})):
        cluster.run(
            """INSERT INTO schedules (domain_config_id, domain, job_type, frequency, time_config)
               VALUES (gen_random_uuid(), 'broken', 'noop', %s, %s)""",
            frequency,
            json.dumps(config),
        )
    repository(cluster).create_schedule(**every_second())
    eventually(lambda: count(cluster, "status = 'success'") >= 2, 15)
    parked = cluster.rows(
        "SELECT frequency, last_status, invalid_reason FROM schedules WHERE domain = 'broken' ORDER BY 1"
    )
    assert [row[:2] for row in parked] == [("daily", "invalid"), ("interval", "invalid"), ("sometimes", "invalid")]
    assert parked[0][2] == "time_config.hour: must be between 0 and 23, got 77"
    assert replica.says("schedule_parked")
    cluster.run("UPDATE schedules SET frequency = 'interval', time_config = '{\"seconds\": 1}' WHERE domain = 'broken'")
    eventually(lambda: count(cluster, "domain = 'broken' AND status = 'success'") >= 3, 15)


def test_failures_are_retried_with_backoff_and_each_attempt_is_a_row(cluster: Cluster) -> None:
    cluster.start(2)
    repository(cluster).create_schedule(**once(soon(2), job_type="fail", max_retries=2, retry_backoff_seconds=1))
    eventually(lambda: count(cluster, "status = 'failed'") == 3, 30)
    rows = cluster.rows("SELECT attempt, error_message, started_at FROM job_executions ORDER BY attempt")
    assert [row[:2] for row in rows] == [(n, f"attempt {n} failed as told") for n in (1, 2, 3)]
    assert rows[2][2] - rows[1][2] > rows[1][2] - rows[0][2] > timedelta(seconds=0.8)
    assert cluster.rows("SELECT last_status FROM schedules") == [("failed",)]


def test_500_due_fires_and_one_worker_lose_nothing(cluster: Cluster) -> None:
    cluster.start(1, MAX_WORKERS="1")
    repository(cluster).save_schedules(
        once(soon(3), job_type="sleep", job_config={"seconds": 0.01}) for _ in range(500)
    )
    eventually(lambda: count(cluster, "status = 'success'") == 500, 90)
    assert count(cluster) == 500


def test_fires_that_find_no_free_worker_in_their_grace_are_recorded_as_missed(cluster: Cluster) -> None:
    """Both kinds: what nobody has claimed yet, and what was claimed ahead of a worker and handed back."""
    cluster.start(1, MAX_WORKERS="1")
    at = soon(3)
    repository(cluster).create_schedule(**once(at, job_type="sleep", job_config={"seconds": 8}, priority=1))
    repository(cluster).save_schedules(once(at, misfire_grace_seconds=1) for _ in range(20))
    eventually(lambda: count(cluster, f"NOT ({OPEN})") == 21, 40)
    assert cluster.rows("SELECT status, reason, count(*) FROM job_executions GROUP BY 1, 2 ORDER BY 1") == [
        ("missed", "misfire", 20),
        ("success", None, 1),
    ]


def test_a_replica_that_does_not_know_a_job_leaves_it_to_one_that_does(cluster: Cluster) -> None:
    """Right after a deployment that has not reached all of them."""
    cluster.start(1, JOB_MODULES="")
    at = soon(4)  # saved before it is due, also on a busy machine
    repository(cluster).save_schedules(once(at) for _ in range(20))
    eventually(lambda: count(cluster, "status = 'pending'") == 20, 20)
    cluster.start(1)
    eventually(lambda: count(cluster, "status = 'success'") == 20, 30)
    assert cluster.rows("SELECT DISTINCT instance_id FROM job_executions") == [("replica-2",)]
    assert count(cluster) == 20


def test_a_replica_answers_probes_and_prometheus(cluster: Cluster, free_port: int) -> None:
    cluster.start(1, METRICS_PORT=str(free_port), METRICS_HOST="127.0.0.1")
    repository(cluster).create_schedule(**every_second())
    eventually(lambda: count(cluster, "status = 'success'") >= 2, 15)

    def get(path: str) -> requests.Response:
        return requests.get(f"http://127.0.0.1:{free_port}{path}", timeout=5)

    assert get("/healthz").status_code == get("/readyz").status_code == 200
    metrics = get("/metrics").text
    assert 'scheduler_executions_total{job_type="noop",status="success"}' in metrics
    assert "scheduler_schedules_loaded 1.0" in metrics
