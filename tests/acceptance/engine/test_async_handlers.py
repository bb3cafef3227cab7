"""The promises for async handlers, with replicas that are really killed, frozen and stopped."""

import time
from datetime import datetime, timedelta
from typing import Any
from urllib.request import urlopen

import pytest

from services.insight.audit import audit
from tests.acceptance.conftest import Breakable
from tests.support.replicas import Cluster, Replica
from tests.support.rows import (
    count,
    every_second,
    never_two_at_once,
    nothing_twice_and_no_gap,
    once,
    repository,
    soon,
    switch_off,
)
from tests.support.waiting import eventually

GRACE = timedelta(seconds=2)  # a started call may be told of in the file a moment later
MODULES = {"JOB_MODULES": "tests.support.handlers,tests.support.async_handlers"}


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    cluster.environment = {**cluster.environment, **MODULES}
    return cluster


def waiting(seconds: float, at: float = 2, **more: Any) -> dict[str, Any]:
    return once(soon(at), job_type="async_sleep", job_config={"seconds": seconds}, **more)


def most_at_once(cluster: Cluster) -> int:
    ((most,),) = cluster.rows(
        """SELECT max(n) FROM (
               SELECT sum(step) OVER (ORDER BY at, step) AS n FROM (
                   SELECT started_at AS at, 1 AS step FROM job_executions
                   UNION ALL SELECT started_at + make_interval(secs => duration_seconds), -1 FROM job_executions
                   WHERE duration_seconds IS NOT NULL) AS steps
           ) AS counts"""
    )
    return int(most)


def owner(cluster: Cluster) -> Replica:
    ((name,),) = cluster.rows("SELECT instance_id FROM job_executions WHERE status = 'running' AND attempt = 1")
    return next(replica for replica in cluster.replicas if replica.name == name)


def test_a_thousand_handlers_that_wait_a_second_take_ten_rounds_on_five_threads(cluster: Cluster) -> None:
    cluster.start(1, MAX_WORKERS="5")
    repository(cluster).save_schedules(waiting(1.0, at=4) for _ in range(1000))
    eventually(lambda: count(cluster, "status = 'success'") == 1000, 60)
    ((seconds,),) = cluster.rows(
        "SELECT extract(epoch FROM max(completed_at) - min(started_at))::float8 FROM job_executions"
    )
    assert 80 <= most_at_once(cluster) <= 140, "MAX_ASYNC_WORKERS, and what is started a moment ahead"
    assert seconds < 50, "in threads: 200 s; about 11 s on a quiet machine"


def test_neither_threads_nor_the_event_loop_wait_for_each_other_s_places(cluster: Cluster) -> None:
    cluster.start(1, MAX_WORKERS="1", MAX_ASYNC_WORKERS="2")
    at = soon(3)
    long = [once(at, job_type="sleep", job_config={"seconds": 60}) for _ in range(3)]
    long_async = [once(at, job_type="async_sleep", job_config={"seconds": 60}) for _ in range(2)]
    repository(cluster).save_schedules([*long, *long_async[:1]])
    eventually(lambda: count(cluster, "status = 'running'") >= 2, 20)
    repository(cluster).save_schedules([waiting(0.1, at=1) for _ in range(5)])
    eventually(lambda: count(cluster, "status = 'success'") == 5, 20)
    running = "SELECT s.job_type FROM job_executions JOIN schedules AS s USING (schedule_id) WHERE status = 'running'"
    assert sorted(cluster.rows(running)) == [("async_sleep",), ("sleep",)]


def test_waiting_rows_of_both_kinds_find_their_places_although_the_other_kind_is_full(cluster: Cluster) -> None:
    """Retries and manual runs wait as rows, which nobody has sorted yet."""
    cluster.start(1, MAX_WORKERS="1", MAX_ASYNC_WORKERS="2")
    repository(cluster).save_schedules([once(soon(2), job_type="sleep", job_config={"seconds": 60})])
    eventually(lambda: count(cluster, "status = 'running'") == 1, 20)
    retried = once(soon(1), job_type="async_fail", max_retries=2, retry_backoff_seconds=0)
    repository(cluster).save_schedules([retried, *(once(soon(1)) for _ in range(3))])
    eventually(lambda: count(cluster, "status = 'failed'") == 3, 20)
    assert cluster.rows("SELECT attempt, error_message FROM job_executions WHERE status = 'failed' ORDER BY 1") == [
        (attempt, f"attempt {attempt} failed as told") for attempt in (1, 2, 3)
    ]


def test_a_killed_replica_s_async_execution_is_abandoned_and_retried_elsewhere(cluster: Cluster) -> None:
    cluster.start(2)
    repository(cluster).create_schedule(**waiting(6, max_retries=1, retry_backoff_seconds=0))
    eventually(lambda: count(cluster, "status = 'running'") == 1, 15)
    killed = owner(cluster)
    killed.kill()
    eventually(lambda: count(cluster, "attempt = 1 AND status = 'abandoned' AND reason = 'replica_dead'") == 1, 15)
    eventually(lambda: count(cluster, "attempt = 2 AND status = 'success'") == 1, 30)
    assert cluster.rows("SELECT instance_id <> %s FROM job_executions WHERE attempt = 2", killed.name) == [(True,)]


def test_a_frozen_replica_that_wakes_up_can_overwrite_nothing(cluster: Cluster) -> None:
    cluster.start(2, LOCK_TIMEOUT="2")
    repository(cluster).create_schedule(**waiting(2, max_retries=1, retry_backoff_seconds=0))
    eventually(lambda: count(cluster, "status = 'running'") == 1, 15)
    frozen = owner(cluster)
    frozen.freeze()
    eventually(lambda: count(cluster, "attempt = 2 AND status = 'success'") == 1, 30)
    frozen.resume()
    eventually(lambda: frozen.says("finish_refused"), 15)
    assert cluster.rows("SELECT attempt, status FROM job_executions ORDER BY attempt") == [
        (1, "abandoned"),
        (2, "success"),
    ]


def test_what_waits_for_the_event_loop_of_a_frozen_replica_is_never_called_there(cluster: Cluster) -> None:
    """A handler blocks the loop, others are started behind it; then the process freezes and is given up. Once it wakes
    up and the loop is free, what it had started before belongs to another replica: nothing is called twice.
    """
    (first,) = cluster.start(1)
    blocker = once(soon(2), job_type="async_block", job_config={"seconds": 4})
    repository(cluster).create_schedule(**blocker)
    eventually(lambda: len(cluster.calls()) == 1, 15)
    repository(cluster).save_schedules(waiting(0.1, at=1, max_retries=1, retry_backoff_seconds=0) for _ in range(5))
    eventually(lambda: count(cluster, "status = 'running'") == 6, 15)
    assert len(cluster.calls()) == 1
    first.freeze()
    cluster.start(1)
    eventually(lambda: count(cluster, "status = 'success'") == 5, 40)
    first.resume()
    eventually(lambda: first.says("given_up") or first.says("finish_refused"), 20)
    time.sleep(1)
    assert cluster.called_twice() == []
    others = [call for call in cluster.calls() if call.instance_id == first.name]
    assert len(others) == 1, "the blocker"


def test_each_fire_runs_once_and_alone_while_redis_and_postgres_vanish_and_a_replica_is_killed(
    breakable: Breakable,
) -> None:
    cluster, servers = breakable.cluster, breakable.servers
    cluster.environment = {**cluster.environment, **MODULES}
    first, _ = cluster.start(2)
    short, long = ({"job_type": "async_sleep", "job_config": {"seconds": seconds}} for seconds in (0.2, 1.5))
    schedules = [*(every_second(**short) for _ in range(3)), every_second(**long, max_retries=1)]
    repository(cluster).save_schedules([*schedules, every_second(**short, name="switched off")])
    ((since,),) = cluster.rows("SELECT min(effective_from) FROM schedules")

    def more(successes: int = 8) -> None:
        before = count(cluster, "status = 'success'")
        eventually(lambda: count(cluster, "status = 'success'") >= before + successes, 60)

    more()
    servers.stop_redis()
    more()
    servers.start_redis()
    servers.restart_postgres("immediate")
    more()
    cluster.run("UPDATE schedules SET enabled = false WHERE name = 'switched off'")
    ((off, at),) = cluster.rows("SELECT schedule_id, clock_timestamp() FROM schedules WHERE NOT enabled")
    first.kill()
    more()
    cluster.start(1)
    more()
    switch_off(cluster)
    of_it = [datetime.fromisoformat(call.at) for call in cluster.calls() if call.schedule_id == str(off)]
    assert max(of_it) < at + GRACE
    rows = cluster.rows(
        "SELECT schedule_id::text, scheduled_for, attempt FROM job_executions WHERE started_at IS NOT NULL"
    )
    called = {
        (call.schedule_id, datetime.fromisoformat(call.scheduled_for), int(call.attempt)) for call in cluster.calls()
    }
    assert called <= set(rows), "no row, no call"
    nothing_twice_and_no_gap(cluster)
    never_two_at_once(cluster)
    assert audit(cluster.db, since, settle_seconds=0).is_clean


def test_a_timeout_and_a_cancellation_arrive_as_cancelled_error(cluster: Cluster) -> None:
    cluster.start(1)
    timed = repository(cluster).create_schedule(**waiting(60, timeout_seconds=1))
    asked = repository(cluster).create_schedule(**waiting(60))
    eventually(lambda: count(cluster, "status = 'timed_out'") == 1, 20)
    cluster.run("UPDATE job_executions SET cancel_requested_at = now() WHERE status = 'running'")
    eventually(lambda: count(cluster, "status = 'cancelled'") == 1, 20)
    rows = cluster.rows("SELECT schedule_id, status, metadata->'log'->>0 LIKE '%%told to stop' FROM job_executions")
    assert set(rows) == {(timed, "timed_out", True), (asked, "cancelled", True)}


def test_a_handler_that_swallows_its_cancellation_ends_all_the_same(cluster: Cluster) -> None:
    (replica,) = cluster.start(1, MAX_ASYNC_WORKERS="1", SHUTDOWN_GRACE_SECONDS="1")
    repository(cluster).create_schedule(**once(soon(2), job_type="async_hang", timeout_seconds=1))
    eventually(lambda: count(cluster, "status = 'timed_out'") == 1, 20)
    repository(cluster).create_schedule(**waiting(0.1, at=1))
    eventually(lambda: count(cluster, "status = 'success'") == 1, 20)
    assert replica.says("coroutine_leaked")
    assert replica.stop() == 0


def test_a_replica_that_is_asked_to_stop_finishes_what_waits_in_its_event_loop(cluster: Cluster) -> None:
    (replica,) = cluster.start(1)
    repository(cluster).save_schedules(waiting(2) for _ in range(100))
    eventually(lambda: len(cluster.calls()) == 100, 15)
    assert replica.stop() == 0
    assert cluster.rows("SELECT status, count(*) FROM job_executions GROUP BY 1") == [("success", 100)]
    assert cluster.rows("SELECT count(*) FROM scheduler_instances") == [(0,)]


def test_what_waits_longer_than_the_grace_is_retried_elsewhere_at_once(cluster: Cluster) -> None:
    leaving, _ = cluster.start(2, SHUTDOWN_GRACE_SECONDS="1")
    repository(cluster).save_schedules(waiting(30, max_retries=1) for _ in range(12))
    eventually(lambda: count(cluster, "status = 'running'") == 12, 15)
    assert leaving.stop() == 0
    eventually(lambda: count(cluster, "status = 'abandoned'") == count(cluster, "attempt = 2") > 0, 10)


def test_a_handler_that_blocks_the_loop_is_named_and_stops_nothing_else(cluster: Cluster, free_port: int) -> None:
    (replica,) = cluster.start(1, METRICS_PORT=str(free_port))
    schedule = repository(cluster).create_schedule(
        **once(soon(2), job_type="async_block", job_config={"seconds": 5}, name="blocker")
    )
    eventually(lambda: len(cluster.calls()) == 1, 15)
    begun = time.monotonic()
    repository(cluster).save_schedules(once(soon(1)) for _ in range(10))
    eventually(lambda: replica.says("loop_blocked"), 10)
    eventually(lambda: count(cluster, "status = 'success'") == 10, 15)
    if time.monotonic() - begun < 4.5:
        assert count(cluster, "status = 'running'") == 1, "it still blocks"
    ((gap,),) = cluster.rows("SELECT extract(epoch FROM now() - heartbeat_at)::float8 FROM scheduler_instances")
    assert gap < 3
    [line] = [line for line in replica.log.read_text().splitlines() if '"loop_blocked"' in line]
    assert "blocker (job type async_block) has blocked the event loop" in line
    assert "async_handlers.py" in line
    assert f'"schedule_id": "{schedule}"' in line
    eventually(lambda: count(cluster, "status = 'success'") == 11, 15)
    with urlopen(f"http://127.0.0.1:{free_port}/metrics") as answer:
        metrics = answer.read().decode()
    assert 'scheduler_event_loop_blocked_total{job_type="async_block"} 1.0' in metrics


def test_an_async_handler_runs_in_a_process_of_its_own_and_is_told_there(cluster: Cluster) -> None:
    cluster.start(1)
    isolated = {"isolation": "process", "seconds": 0.1}
    repository(cluster).create_schedule(**once(soon(2), job_type="async_sleep", job_config=isolated))
    hanging = {"isolation": "process", "seconds": 60}
    repository(cluster).create_schedule(**once(soon(2), job_type="async_sleep", job_config=hanging, timeout_seconds=3))
    eventually(lambda: count(cluster, "status = 'success'") == 1, 30)
    eventually(lambda: count(cluster, "status = 'timed_out' AND metadata->'log'->>0 LIKE '%%told to stop'") == 1, 30)


def test_what_a_full_event_loop_cannot_run_is_given_to_a_replica_with_places(cluster: Cluster) -> None:
    cluster.start(1, MAX_ASYNC_WORKERS="1")
    cluster.start(1, MAX_ASYNC_WORKERS="50", MAX_WORKERS="1")
    repository(cluster).save_schedules(waiting(4, at=3) for _ in range(30))
    eventually(lambda: count(cluster, "status = 'success'") == 30, 40)
    ((seconds,),) = cluster.rows(
        "SELECT extract(epoch FROM max(completed_at) - min(started_at))::float8 FROM job_executions"
    )
    assert seconds < 20, "one after the other: 60 s"
