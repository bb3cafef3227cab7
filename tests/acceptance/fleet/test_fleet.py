"""Executions of a fleet queue run on real Celery workers, once each, and under the replicas' own promises."""

import os
import signal
import socket
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.insight.audit import audit
from services.job_history import JobHistory
from tests.acceptance.conftest import Breakable
from tests.acceptance.fleet.conftest import FleetOf
from tests.support.fleet import SOLO, Fleet, messages_at, owner_pid, run, runners, running
from tests.support.ledger import Ledger
from tests.support.rabbitmq import RabbitMQ, why_not
from tests.support.replicas import Cluster
from tests.support.rows import (
    calls,
    count,
    every_run_was_seen,
    every_second,
    never_two_at_once,
    once,
    repository,
    soon,
    switch_off,
)
from tests.support.waiting import eventually


@pytest.mark.parametrize(("options", "processes"), [(("--concurrency", "2"), 2), (("--pool", "threads"), 1)])
def test_each_fire_of_a_fleet_queue_runs_once_on_a_worker_whatever_its_pool(
    cluster: Cluster, fleet: Fleet, ledger: Ledger, options: tuple[str, ...], processes: int
) -> None:
    since = datetime.now(UTC)
    (replica,) = cluster.start(1, **fleet.environment)
    worker = fleet.start(*options, processes=processes)
    for queue in (fleet.queue, fleet.queue, fleet.queue, None):
        repository(cluster).create_schedule(**every_second(queue=queue) | calls(ledger))
    eventually(lambda: count(cluster, "status = 'success'") >= 12, 30)
    eventually(lambda: len(runners(cluster)) == processes + 1, 30)
    switch_off(cluster)
    assert {name for name in runners(cluster) if not name.startswith(worker.name)} == {replica.name}
    every_run_was_seen(cluster, ledger)
    never_two_at_once(cluster)
    assert audit(cluster.db, since, settle_seconds=0).is_clean
    assert worker.stop() == 0
    assert fleet.pids() == []


def test_a_child_that_is_killed_in_a_run_is_noticed_and_its_execution_retried_on_another(
    cluster: Cluster, fleet: Fleet
) -> None:
    cluster.start(1, **fleet.environment)
    fleet.start("--concurrency", "1")
    run(cluster, fleet, job_type="sleep", job_config={"seconds": 60}, max_retries=1, retry_backoff_seconds=0)
    eventually(lambda: running(cluster), 30)
    cluster.run("UPDATE schedules SET job_config = '{\"seconds\": 0}'")
    os.kill(owner_pid(cluster), signal.SIGKILL)
    eventually(lambda: count(cluster, "status = 'success'") == 1, 30)
    rows = cluster.rows("SELECT status, attempt, reason FROM job_executions ORDER BY attempt")
    assert rows == [("abandoned", 1, "replica_dead"), ("success", 2, None)]
    assert len(runners(cluster)) == 2


def test_a_worker_that_was_frozen_and_given_up_writes_nothing_when_it_wakes_up(cluster: Cluster, fleet: Fleet) -> None:
    cluster.start(1, **fleet.environment)
    frozen = fleet.start(*SOLO)
    run(cluster, fleet, job_type="sleep", job_config={"seconds": 2}, max_retries=1, retry_backoff_seconds=0)
    eventually(lambda: running(cluster), 30)
    frozen.freeze()
    try:
        fleet.start(*SOLO)
        eventually(lambda: count(cluster, "status = 'success'") == 1, 40)
    finally:
        frozen.resume()
    eventually(lambda: frozen.says("finish_refused"), 30)
    rows = cluster.rows("SELECT status, attempt FROM job_executions ORDER BY attempt")
    assert rows == [("abandoned", 1), ("success", 2)]
    assert len(runners(cluster)) == 2


def test_a_message_twice_a_purged_queue_and_a_restarted_broker_neither_repeat_nor_lose_an_execution(
    breakable: Breakable, fleet_of: FleetOf, ledger: Ledger
) -> None:
    cluster, since = breakable.cluster, datetime.now(UTC)
    fleet = fleet_of(cluster)
    cluster.start(1, **fleet.environment)
    with closing(messages_at(cluster.environment["REDIS_URL"])) as messages:
        run(cluster, fleet, **calls(ledger))
        eventually(lambda: messages.depth(fleet.queue) == 1, 30)
        messages.purge(fleet.queue)
        fleet.start(*SOLO)
        half_a_minute_passes(cluster)
        eventually(lambda: count(cluster, "status = 'success'") == 1, 30)
        run(cluster, fleet, **calls(ledger))
        messages.send(fleet.queue, 5)
        eventually(lambda: count(cluster, "status = 'success'") == 2, 30)
    breakable.servers.stop_redis()
    run(cluster, fleet, **calls(ledger))
    eventually(lambda: '"event": "broker_unavailable"' in cluster.logs(), 30)
    breakable.servers.start_redis()
    eventually(lambda: count(cluster, "status = 'success'") == 3, 60)
    eventually(lambda: count(cluster, "status = 'pending'") == 0)
    every_run_was_seen(cluster, ledger)
    assert len(ledger.requests()) == 3
    assert audit(cluster.db, since, settle_seconds=0).is_clean


def half_a_minute_passes(cluster: Cluster) -> None:
    """For the publisher: what nobody has taken since is announced again."""
    cluster.run("UPDATE job_executions SET publish_at = clock_timestamp() WHERE status = 'pending'")


def test_rabbitmq_that_is_killed_and_purged_neither_repeats_nor_loses_an_execution(
    cluster: Cluster, fleet: Fleet, ledger: Ledger, tmp_path: Path
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    since = datetime.now(UTC)
    with RabbitMQ.in_directory(tmp_path) as broker:
        (replica,) = cluster.start(1, **fleet.environment, CELERY_BROKER_URL=broker.url)
        run(cluster, fleet, **calls(ledger))
        with closing(messages_at("redis://unused/0", broker.url)) as messages:
            eventually(lambda: messages.depth(fleet.queue) == 1, 30)
            messages.purge(fleet.queue)
            assert messages.depth(fleet.queue) == 0
        worker = fleet.start("--concurrency", "2", processes=2, CELERY_BROKER_URL=broker.url)
        half_a_minute_passes(cluster)
        eventually(lambda: count(cluster, "status = 'success'") == 1, 30)
        repository(cluster).save_schedules(every_second(queue=fleet.queue, **calls(ledger)) for _ in range(3))
        eventually(lambda: count(cluster, "status = 'success'") >= 7, 30)
        broker.kill()
        eventually(lambda: replica.says("broker_unavailable"), 30)
        broker.start()
        eventually(lambda: replica.says("broker_available"), 30)
        with closing(messages_at("redis://unused/0", broker.url)) as messages:
            messages.send(fleet.queue, 5)
        done = count(cluster, "status = 'success'")
        eventually(lambda: count(cluster, "status = 'success'") >= done + 6, 60)
        switch_off(cluster)
        assert worker.stop() == 0
    assert all(name.startswith(worker.name) for name in runners(cluster))
    every_run_was_seen(cluster, ledger)
    never_two_at_once(cluster)
    assert audit(cluster.db, since, settle_seconds=0).is_clean


def test_cancel_and_timeout_reach_a_worker_and_a_thread_that_ignores_them_ends_with_its_child(
    cluster: Cluster, fleet: Fleet
) -> None:
    cluster.start(1, **fleet.environment)
    fleet.start("--concurrency", "1")
    run(cluster, fleet, job_type="patient")
    eventually(lambda: running(cluster), 30)
    ((execution_id,),) = cluster.rows("SELECT execution_id FROM job_executions")
    JobHistory(cluster.db).request_cancel(execution_id)
    eventually(lambda: count(cluster, "status = 'cancelled'") == 1, 20)
    before = fleet.pids()
    run(cluster, fleet, job_type="sleep", job_config={"seconds": 60}, timeout_seconds=1)
    eventually(lambda: count(cluster, "status = 'timed_out'") == 1, 20)
    eventually(lambda: len(fleet.pids()) == 1 and fleet.pids() != before, 30)
    run(cluster, fleet)
    eventually(lambda: count(cluster, "status = 'success'") == 1, 20)
    assert len(runners(cluster)) == 2


def test_a_schedule_runs_once_at_a_time_over_replicas_and_workers_and_loses_no_fire(
    cluster: Cluster, fleet: Fleet
) -> None:
    """Its queue changes to and fro meanwhile."""
    cluster.start(1, **fleet.environment)
    fleet.start("--concurrency", "2", processes=2)
    given = every_second(job_type="sleep", job_config={"seconds": 0.7}, coalesce=False, misfire_grace_seconds=60)
    schedule_id = repository(cluster).create_schedule(**given, queue=fleet.queue)
    eventually(lambda: count(cluster, "status = 'success'") >= 3, 30)
    cluster.run("UPDATE schedules SET queue = NULL WHERE schedule_id = %s", schedule_id)
    eventually(lambda: any(name.startswith("replica") for name in runners(cluster)), 30)
    cluster.run("UPDATE schedules SET queue = %s WHERE schedule_id = %s", fleet.queue, schedule_id)
    done = count(cluster, "status = 'success'")
    eventually(lambda: count(cluster, "status = 'success'") >= done + 2, 30)
    switch_off(cluster)
    never_two_at_once(cluster)
    assert any(name.startswith("worker") for name in runners(cluster))
    assert count(cluster, "status NOT IN ('success', 'skipped')") == 0


def test_a_broker_that_accepts_and_never_answers_costs_other_schedules_nothing(
    cluster: Cluster, fleet: Fleet, ledger: Ledger
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"redis://127.0.0.1:{deaf.getsockname()[1]}/0"
        (replica,) = cluster.start(1, **fleet.environment, CELERY_BROKER_URL=url, MAX_WORKERS="1")
        for queue in (fleet.queue, fleet.queue, None):
            repository(cluster).create_schedule(**every_second(queue=queue) | calls(ledger))
        eventually(lambda: replica.says("broker_unavailable"), 40)
        done = count(cluster, "status = 'success'")
        eventually(lambda: count(cluster, "status = 'success'") >= done + 4, 20)
    switch_off(cluster)
    late = "SELECT max(started_at - due_at) < interval '1 s' FROM job_executions WHERE started_at IS NOT NULL"
    assert cluster.rows(late) == [(True,)]
    assert runners(cluster) == {replica.name}
    assert count(cluster, "status = 'success' AND queue <> ''") == 0
    every_run_was_seen(cluster, ledger)


def test_a_place_that_a_replica_frees_rings_for_the_row_that_a_worker_could_not_take(
    cluster: Cluster, fleet: Fleet
) -> None:
    """It would wait for half a minute to be announced again."""
    cluster.run("INSERT INTO limits (name, max_running) VALUES ('site', 1)")
    cluster.start(1, **fleet.environment)
    fleet.start(*SOLO)
    held = once(soon(1), job_type="sleep", job_config={"seconds": 60}, limit_keys=["site"])
    holder = repository(cluster).create_schedule(**held)
    eventually(lambda: running(cluster), 30)
    run(cluster, fleet, limit_keys=["site"])
    eventually(lambda: count(cluster, "reason = 'limit:site' AND published_at IS NOT NULL") == 1, 30)
    ((execution_id,),) = cluster.rows("SELECT execution_id FROM job_executions WHERE schedule_id = %s", holder)
    JobHistory(cluster.db).request_cancel(execution_id)
    eventually(lambda: count(cluster, "status = 'success'") == 1, 20)
    ((announced_again,),) = cluster.rows(
        """SELECT worked.started_at - held.completed_at < interval '10 s' FROM job_executions AS worked,
                  job_executions AS held WHERE worked.status = 'success' AND held.status = 'cancelled'"""
    )
    assert announced_again
