"""Replicas call the tasks of a user's own Celery app; its worker's ledger is the judge."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from services.embedded import Addresses
from services.jobs import JobRegistry
from services.schedule_repository import ScheduleRepository
from tests.support.celery_workers import ShopWorker
from tests.support.replicas import Cluster, Replica
from tests.support.rows import count, every_second, once, soon, switch_off
from tests.support.waiting import eventually

# As long as this replica lives, no success of its executions can be written.
NOT_FINISHED = """
CREATE FUNCTION refuse_success() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'not now' USING ERRCODE = 'lock_not_available';
END $$;
CREATE TRIGGER refuse_success BEFORE UPDATE ON job_executions FOR EACH ROW
WHEN (NEW.status = 'success' AND OLD.instance_id = 'replica-1') EXECUTE FUNCTION refuse_success();
"""


@pytest.fixture(scope="module")
def worker(servers: Addresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopWorker]:
    worker = ShopWorker.start(servers.redis_url, tmp_path_factory.mktemp("shop"))
    yield worker
    worker.end()


def start(cluster: Cluster, worker: ShopWorker) -> Replica:
    app = {"CELERY_APPS_SHOP_BROKER_URL": worker.broker_url, "CELERY_APPS_SHOP_TASKS": "shop.*"}
    (replica,) = cluster.start(1, **app)
    return replica


def add(cluster: Cluster, worker: ShopWorker, **fields: Any) -> UUID:
    job = {"job_type": "celery_task", "job_config": {"app": "shop", "task": "shop.note", "queue": worker.queue}}
    return ScheduleRepository(cluster.db, JobRegistry({"celery_task"})).create_schedule(**fields | job)


def test_each_fire_calls_its_task_once_with_several_replicas(cluster: Cluster, worker: ShopWorker) -> None:
    start(cluster, worker), start(cluster, worker)
    ids = [add(cluster, worker, **every_second()) for _ in range(3)]
    eventually(lambda: all(count(cluster, f"schedule_id = '{each}' AND status = 'success'") >= 4 for each in ids), 60)
    switch_off(cluster)
    called = [call for call in worker.calls_before_now() if UUID(call["schedule_id"]) in ids]
    rows = cluster.rows("SELECT execution_id, schedule_id, fencing_token FROM job_executions WHERE status = 'success'")
    assert sorted((UUID(call["id"]), UUID(call["schedule_id"]), call["fencing_token"]) for call in called) == sorted(
        rows
    )
    assert len({call["idempotency_key"] for call in called}) == len(called)


def test_a_replica_killed_after_it_sent_the_message_is_followed_by_another_attempt_with_the_same_key(
    cluster: Cluster, worker: ShopWorker
) -> None:
    first = start(cluster, worker)
    cluster.run(NOT_FINISHED)
    schedule_id = add(cluster, worker, **once(soon(2), max_retries=1, retry_backoff_seconds=0))
    eventually(lambda: len(calls_of(worker, schedule_id)) == 1, 30)
    start(cluster, worker)
    first.kill()
    eventually(lambda: count(cluster, f"schedule_id = '{schedule_id}' AND status = 'success'") == 1, 40)
    worker.calls_before_now()
    lost, again = calls_of(worker, schedule_id)
    assert (lost["attempt"], again["attempt"]) == (1, 2)
    assert lost["idempotency_key"] == again["idempotency_key"]
    assert lost["fencing_token"] < again["fencing_token"]
    assert cluster.rows(
        "SELECT execution_id::text, status FROM job_executions WHERE schedule_id = %s ORDER BY attempt", schedule_id
    ) == [(lost["id"], "abandoned"), (again["id"], "success")]


def calls_of(worker: ShopWorker, schedule_id: UUID) -> list[dict[str, Any]]:
    return [call for call in worker.calls() if call["schedule_id"] == str(schedule_id)]
