"""Async handlers on Celery workers: the promises that they have on replicas, whatever the pool."""

import os
import signal
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from services.job_history import JobHistory
from tests.support.fleet import Fleet
from tests.support.replicas import Cluster
from tests.support.rows import count, once, repository, soon
from tests.support.waiting import eventually

PREFORK, THREADS = ("--concurrency", "2"), ("--pool", "threads", "--concurrency", "4")
RUNNING = """SELECT e.execution_id, (i.facts->>'pid')::int FROM job_executions AS e
             JOIN scheduler_instances AS i USING (incarnation) WHERE e.status = 'running'"""


@pytest.fixture
def fleet(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    modules = "tests.support.handlers,tests.support.async_handlers"
    cluster.environment = {**cluster.environment, "JOB_MODULES": modules}
    fleet = Fleet(cluster, f"fleet-{uuid4().hex[:8]}")
    cluster.start(1, **fleet.environment)
    try:
        yield fleet
    finally:
        fleet.end()
        request.node.user_properties.append(("logs", fleet.logs()))


def awaiting(cluster: Cluster, fleet: Fleet, seconds: float, **more: Any) -> UUID:
    given = {"job_type": "async_sleep", "job_config": {"seconds": seconds}, "queue": fleet.queue, **more}
    return repository(cluster).create_schedule(**once(soon(1), **given))


@pytest.mark.parametrize(("options", "processes"), [(PREFORK, 2), (THREADS, 1)], ids=["prefork", "threads"])
def test_they_run_once_and_hear_a_timeout_and_a_cancellation(
    cluster: Cluster, fleet: Fleet, options: tuple[str, ...], processes: int
) -> None:
    worker = fleet.start(*options, processes=processes)
    for _ in range(6):
        awaiting(cluster, fleet, 0.2)
    eventually(lambda: count(cluster, "status = 'success'") == 6, 30)
    late = awaiting(cluster, fleet, 60, timeout_seconds=1)
    eventually(lambda: count(cluster, "status = 'timed_out'") == 1, 30)
    asked = awaiting(cluster, fleet, 60)
    eventually(lambda: cluster.rows(RUNNING), 30)
    ((execution_id, _),) = cluster.rows(RUNNING)
    JobHistory(cluster.db).request_cancel(execution_id)
    eventually(lambda: count(cluster, "status = 'cancelled'") == 1, 30)
    told = "SELECT schedule_id, metadata->'log'->>0 LIKE '%%told to stop' FROM job_executions WHERE status <> 'success'"
    assert set(cluster.rows(told)) == {(late, True), (asked, True)}
    assert cluster.called_twice() == []
    assert {call.instance_id.startswith(worker.name) for call in cluster.calls()} == {True}
    assert worker.stop() == 0


@pytest.mark.parametrize(("options", "processes"), [(PREFORK, 2), (THREADS, 1)], ids=["prefork", "threads"])
def test_one_that_swallows_its_cancellation_and_one_that_blocks_the_loop_stop_no_other(
    cluster: Cluster, fleet: Fleet, options: tuple[str, ...], processes: int
) -> None:
    fleet.start(*options, processes=processes)
    for job_type in ("async_hang", "async_block"):
        awaiting(cluster, fleet, 20, job_type=job_type, timeout_seconds=1)
    eventually(lambda: count(cluster, "status = 'timed_out'") == 2, 40)
    for _ in range(4):
        awaiting(cluster, fleet, 0.1)
    eventually(lambda: count(cluster, "status = 'success'") == 4, 60)


def test_one_that_is_killed_while_it_waits_is_abandoned_and_retried(cluster: Cluster, fleet: Fleet) -> None:
    fleet.start(*PREFORK, processes=2)
    awaiting(cluster, fleet, 60, max_retries=1, retry_backoff_seconds=0)
    eventually(lambda: cluster.rows(RUNNING), 30)
    ((_, pid),) = cluster.rows(RUNNING)
    cluster.run("UPDATE schedules SET job_config = '{\"seconds\": 0}'")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: count(cluster, "status = 'success'") == 1, 30)
    rows = cluster.rows("SELECT attempt, status, reason FROM job_executions ORDER BY attempt")
    assert rows == [(1, "abandoned", "replica_dead"), (2, "success", None)]
