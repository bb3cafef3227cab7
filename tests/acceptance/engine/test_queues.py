"""Replicas that serve different queues, judged from outside: who ran what, what waits, and nothing twice."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.support.ledger import Ledger
from tests.support.replicas import Cluster, Replica
from tests.support.rows import calls, count, every_run_was_seen, every_second, once, repository, soon, switch_off
from tests.support.waiting import eventually


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger() as opened:
        yield opened


def runners(cluster: Cluster, schedule_id: UUID) -> set[str]:
    ran = "SELECT DISTINCT instance_id FROM job_executions WHERE schedule_id = %s AND started_at IS NOT NULL"
    return {name for (name,) in cluster.rows(ran, schedule_id)}


def waits(cluster: Cluster, schedule_id: UUID) -> bool:
    return count(cluster, f"schedule_id = '{schedule_id}' AND status = 'pending' AND queue <> ''") > 0


def start_both(cluster: Cluster) -> tuple[Replica, Replica]:
    (plain,), (server,) = cluster.start(1, QUEUES="default"), cluster.start(1, QUEUES="default,browser")
    return plain, server


def test_schedules_of_a_queue_run_only_on_replicas_that_serve_it(cluster: Cluster, ledger: Ledger) -> None:
    plain, server = start_both(cluster)
    ids = [repository(cluster).create_schedule(**every_second(queue="browser") | calls(ledger)) for _ in range(4)]
    # Each is tried first by one of both replicas, as its id falls: all by the same one in 1 of 2,000 runs.
    others = [repository(cluster).create_schedule(**every_second() | calls(ledger)) for _ in range(12)]
    eventually(lambda: all(seen(cluster, each) >= 3 for each in [*ids, *others]), 60)
    eventually(lambda: set().union(*(runners(cluster, each) for each in others)) == {plain.name, server.name}, 60)
    switch_off(cluster)
    assert set().union(*(runners(cluster, each) for each in ids)) == {server.name}
    every_run_was_seen(cluster, ledger)
    assert count(cluster, "status NOT IN ('success', 'skipped')") == 0


def test_a_new_queue_moves_the_row_that_waits(cluster: Cluster, ledger: Ledger) -> None:
    _, server = start_both(cluster)
    schedule_id = repository(cluster).create_schedule(**once(soon(2), queue="nowhere") | calls(ledger))
    eventually(lambda: waits(cluster, schedule_id), 30)
    cluster.run("UPDATE schedules SET queue = 'browser' WHERE schedule_id = %s", schedule_id)
    eventually(lambda: seen(cluster, schedule_id) == 1, 20)
    assert runners(cluster, schedule_id) == {server.name}
    every_run_was_seen(cluster, ledger)


def test_when_the_only_server_of_a_queue_dies_its_rows_wait_and_are_missed_after_their_grace(
    cluster: Cluster, ledger: Ledger
) -> None:
    _, server = start_both(cluster)
    given: dict[str, Any] = {**calls(ledger), "queue": "browser"}
    patient = repository(cluster).create_schedule(**every_second(misfire_grace_seconds=3600) | given)
    eventually(lambda: seen(cluster, patient) >= 2, 30)
    server.kill()
    hasty = repository(cluster).create_schedule(**once(soon(2), misfire_grace_seconds=6) | given)
    eventually(lambda: waits(cluster, patient) and waits(cluster, hasty), 30)
    missed = f"schedule_id = '{hasty}' AND status = 'missed' AND reason = 'nobody_able'"
    eventually(lambda: count(cluster, missed) == 1, 40)
    assert count(cluster, "status = 'failed'") == 0
    assert waits(cluster, patient)
    assert runners(cluster, patient) == {server.name}
    (again,) = cluster.start(1, QUEUES="browser")
    eventually(lambda: again.name in runners(cluster, patient), 30)
    switch_off(cluster)
    every_run_was_seen(cluster, ledger)
    assert runners(cluster, hasty) == set()


def seen(cluster: Cluster, schedule_id: UUID) -> int:
    return count(cluster, f"schedule_id = '{schedule_id}' AND status = 'success'")
