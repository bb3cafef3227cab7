"""Replicas that are really killed, frozen, restarted and stopped; jobs that hang. Lines of the failure table."""

import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

from services.insight.audit import audit
from services.job_history import JobHistory
from tests.support.ledger import Ledger
from tests.support.replicas import Cluster, Replica
from tests.support.rows import (
    calls,
    count,
    every_run_was_seen,
    every_second,
    nothing_twice_and_no_gap,
    once,
    repository,
    soon,
    switch_off,
)
from tests.support.waiting import eventually


def test_a_killed_replica_s_running_execution_is_abandoned_and_retried_elsewhere(cluster: Cluster) -> None:
    cluster.start(2)
    repository(cluster).create_schedule(
        **once(soon(2), job_type="sleep", job_config={"seconds": 6}, max_retries=1, retry_backoff_seconds=0)
    )
    eventually(lambda: count(cluster, "status = 'running'") == 1, 15)
    ((name,),) = cluster.rows("SELECT instance_id FROM job_executions")
    next(replica for replica in cluster.replicas if replica.name == name).kill()
    eventually(lambda: count(cluster, "attempt = 1 AND status = 'abandoned' AND reason = 'replica_dead'") == 1, 15)
    eventually(lambda: count(cluster, "attempt = 2 AND status = 'success'") == 1, 20)
    assert cluster.rows("SELECT instance_id <> %s FROM job_executions WHERE attempt = 2", name) == [(True,)]


def test_a_killed_replica_s_unstarted_claim_is_claimed_again(cluster: Cluster) -> None:
    """The row is made by hand: the moment between claim and start is too short to hit."""
    cluster.run(
        """INSERT INTO schedules (domain_config_id, domain, job_type, frequency, time_config)
           VALUES (gen_random_uuid(), 'x', 'noop', 'once', '{"at": "2099-01-01T00:00:00+00:00"}')"""
    )
    cluster.run(
        """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, due_at,
                                       claimed_at, instance_id, incarnation, fencing_token)
           SELECT schedule_id, 'job', 'x', domain_config_id, 'claimed', now(), now(), now(), 'dead',
                  gen_random_uuid(), nextval('fencing_token_seq')
           FROM schedules"""
    )
    cluster.start(1)
    eventually(lambda: count(cluster, "status = 'success'") == 1, 15)
    assert cluster.rows(
        "SELECT attempt, instance_id, fencing_token > 1 FROM job_executions WHERE fencing_token > 0"
    ) == [(1, "replica-1", True)]


def test_the_others_take_a_killed_replica_s_fires_without_a_gap(cluster: Cluster, ledger: Ledger) -> None:
    cluster.start(3)
    ledger.answer("/", delay_seconds=0.3)
    repository(cluster).save_schedules(every_second(**calls(ledger)) for _ in range(15))
    eventually(lambda: count(cluster, "status = 'success'") >= 45, 20)
    kill_in_the_middle_of_a_call(cluster, ledger)
    before = count(cluster)
    eventually(lambda: count(cluster) >= before + 90, 30)
    switch_off(cluster)
    nothing_twice_and_no_gap(cluster)
    every_run_was_seen(cluster, ledger)


def kill_in_the_middle_of_a_call(cluster: Cluster, ledger: Ledger) -> None:
    answered = len(ledger.requests())
    eventually(lambda: len(ledger.requests()) > answered, 20)
    unanswered = ledger.requests()[-1].headers["X-Execution-Id"]
    ((name,),) = cluster.rows("SELECT instance_id FROM job_executions WHERE execution_id = %s::uuid", unanswered)
    next(replica for replica in cluster.replicas if replica.name == name).kill()


def test_a_frozen_replica_that_wakes_up_can_overwrite_nothing(cluster: Cluster) -> None:
    """Frozen for longer than its lease in Redis and its heartbeat's timeout."""
    first, second = cluster.start(2, LOCK_TIMEOUT="2")
    repository(cluster).create_schedule(
        **once(soon(2), job_type="sleep", job_config={"seconds": 2}, max_retries=1, retry_backoff_seconds=0)
    )
    eventually(lambda: count(cluster, "status = 'running'") == 1, 15)
    ((name,),) = cluster.rows("SELECT instance_id FROM job_executions")
    frozen = first if first.name == name else second
    frozen.freeze()
    frozen_at = time.monotonic()
    eventually(lambda: count(cluster, "attempt = 2 AND status = 'success'") == 1, 30)
    assert time.monotonic() - frozen_at > 2, "longer than LOCK_TIMEOUT"
    frozen.resume()
    eventually(lambda: frozen.says("finish_refused"), 15)
    assert cluster.rows("SELECT attempt, status FROM job_executions ORDER BY attempt") == [
        (1, "abandoned"),
        (2, "success"),
    ]


def test_a_replica_restarted_under_its_name_does_not_hide_its_former_self(cluster: Cluster) -> None:
    (replica,) = cluster.start(1)
    repository(cluster).create_schedule(**once(soon(2), job_type="sleep", job_config={"seconds": 60}))
    eventually(lambda: count(cluster, "status = 'running'") == 1, 15)
    replica.kill()
    cluster.one(replica.name)
    eventually(lambda: count(cluster, "status = 'abandoned'") == 1, 20)


def test_a_replica_that_is_asked_to_stop_finishes_what_runs(cluster: Cluster) -> None:
    (replica,) = cluster.start(1)
    repository(cluster).create_schedule(**once(soon(2), job_type="sleep", job_config={"seconds": 2}))
    eventually(lambda: len(cluster.calls()) == 1, 15)  # a row that runs without a call yet is handed back
    assert replica.stop() == 0
    assert cluster.rows("SELECT status FROM job_executions") == [("success",)]
    assert cluster.rows("SELECT count(*) FROM scheduler_instances") == [(0,)]


def test_what_runs_longer_than_the_grace_is_rescued_without_waiting(cluster: Cluster) -> None:
    leaving, _ = cluster.start(2, SHUTDOWN_GRACE_SECONDS="1")
    repository(cluster).save_schedules(
        once(soon(2), job_type="sleep", job_config={"seconds": 30}, max_retries=1) for _ in range(6)
    )
    eventually(lambda: count(cluster, "status = 'running'") == 6, 15)
    assert leaving.stop() == 0
    eventually(lambda: count(cluster, "status = 'abandoned'") == count(cluster, "attempt = 2") > 0, 10)


def test_a_replica_that_is_stopped_under_load_abandons_nothing_that_did_not_run(cluster: Cluster) -> None:
    leaving, _ = cluster.start(2, MAX_WORKERS="2")
    repository(cluster).save_schedules(
        once(soon(3), job_type="sleep", job_config={"seconds": 0.05}) for _ in range(300)
    )
    eventually(lambda: count(cluster, "status = 'success'") >= 40, 30)
    assert leaving.stop() == 0
    eventually(lambda: count(cluster, "status = 'success'") == 300, 60)
    assert count(cluster) == 300


def test_a_replica_that_slept_longer_than_the_horizon_accounts_for_every_fire_of_that_time(cluster: Cluster) -> None:
    """Claims of older fires are refused, and the timer remembers fifty: the scan has to account for the rest."""
    horizon_seconds = 60
    limits = {"FENCE_HORIZON_SECONDS": str(horizon_seconds), "CATCHUP_WINDOW_SECONDS": "30"}
    (replica,) = cluster.start(1, JOB_MISFIRE_GRACE_TIME="5", **limits)
    repository(cluster).save_schedules(every_second() for _ in range(3))
    eventually(lambda: count(cluster, "status = 'success'") >= 6, 20)
    ((before,),) = cluster.rows("SELECT max(effective_from) FROM schedules")
    replica.freeze()
    time.sleep(horizon_seconds + 15)
    replica.resume()
    ((resumed_at,),) = cluster.rows("SELECT clock_timestamp()")
    eventually(lambda: cluster.rows("SELECT until > %s FROM fires_watched", resumed_at) == [(True,)], 60)
    switch_off(cluster)
    report = audit(cluster.db, before, resumed_at)
    assert (report.unexplained.count, report.unwatched.count, report.extra.count) == (0, 0, 0)
    assert report.expected >= 3 * horizon_seconds
    assert count(cluster, "status = 'missed' AND reason = 'catchup_cap'") == 3, "what nobody may run any more"
    assert not replica.says("loop_failed")


# --- jobs ---


def test_a_handler_that_hangs_times_out_and_does_not_keep_its_slot(cluster: Cluster) -> None:
    cluster.start(1, MAX_WORKERS="1")
    repository(cluster).create_schedule(
        **once(soon(1), job_type="sleep", job_config={"seconds": 60}, timeout_seconds=1)
    )
    eventually(lambda: count(cluster, "status = 'timed_out'") == 1, 20)
    repository(cluster).create_schedule(**once(soon(1)))
    eventually(lambda: count(cluster, "status = 'success'") == 1, 15)


def test_a_running_job_can_be_cancelled(cluster: Cluster) -> None:
    cluster.start(1)
    repository(cluster).create_schedule(**once(soon(1), job_type="sleep", job_config={"seconds": 60}))
    eventually(lambda: count(cluster, "status = 'running'") == 1, 15)
    ((execution_id,),) = cluster.rows("SELECT execution_id FROM job_executions")
    assert JobHistory(cluster.db).request_cancel(execution_id)
    eventually(lambda: count(cluster, "status = 'cancelled'") == 1, 15)


def test_a_manual_run_is_its_own_row_and_waits_for_its_turn(cluster: Cluster) -> None:
    cluster.start(2)
    schedule_id = repository(cluster).create_schedule(
        **every_second(job_type="sleep", job_config={"seconds": 0.7}), timezone="UTC"
    )
    eventually(lambda: count(cluster, "status = 'success'") >= 1, 15)
    execution_id = JobHistory(cluster.db).request_run(schedule_id, actor="test")
    eventually(lambda: count(cluster, f"execution_id = '{execution_id}' AND status = 'success'") == 1, 20)
    switch_off(cluster)
    nothing_twice_and_no_gap(cluster)


# --- handlers that fork ---


def test_the_copy_of_a_replica_that_comes_back_from_a_handler_ends_itself(cluster: Cluster, free_port: int) -> None:
    """One worker and many jobs that wait for it: a copy that went on would run them as well."""
    (replica,) = cluster.start(1, MAX_WORKERS="1", METRICS_PORT=str(free_port))
    repository(cluster).save_schedules(
        [*(every_second(job_type="fork") for _ in range(3)), *(every_second() for _ in range(12))]
    )
    eventually(lambda: count(cluster, "status = 'success'") >= 60, 30)
    switch_off(cluster)
    copies = living_children(replica)
    for copy in copies:
        os.kill(copy, signal.SIGKILL)
    assert copies == []
    nothing_twice_and_no_gap(cluster)


def test_a_copy_that_stays_keeps_neither_the_port_nor_a_connection_of_its_replica(
    cluster: Cluster, free_port: int
) -> None:
    (replica,) = cluster.start(1, METRICS_PORT=str(free_port))
    repository(cluster).create_schedule(**once(soon(1), job_type="fork", job_config={"child_seconds": 60}))
    eventually(lambda: count(cluster, "status = 'success'") == 1, 20)
    (copy,) = living_children(replica)
    replica.kill()
    try:
        with socket.create_server(("127.0.0.1", free_port)):
            pass
        eventually(
            lambda: cluster.rows("SELECT pid FROM pg_stat_activity WHERE application_name = %s", replica.name) == [], 10
        )
    finally:
        os.kill(copy, signal.SIGKILL)


def living_children(replica: Replica) -> list[int]:
    """Those that have ended and were not asked for their exit code are not among them."""
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended while we were reading
            state, parent, *_ = path.read_text().rpartition(")")[2].split()
            if int(parent) == replica.pid and state != "Z":
                children.append(int(path.parent.name))
    return children
