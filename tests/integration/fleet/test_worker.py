"""A worker of the fleet in this process: what it takes, and that nobody takes it for a replica."""

from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from config import Settings
from database.connection import DatabaseConnection
from services.embedded import Addresses
from services.engine.gap_scan.scanner_sql import ATTENDED_SINCE
from services.fleet.worker import FleetWorker
from services.insight.explain.history_sql import CIRCUMSTANCES
from services.insight.replicas import list_replicas
from services.jobs import ExecutionContext, JobRegistry
from services.ledger.needs import Abilities
from services.schedule_watcher import WATCHED_SINCE
from tests.support.executions import Make, fire, rows, settle, store_of
from tests.support.waiting import eventually

Start = Callable[..., FleetWorker]


@pytest.fixture
def ran() -> list[UUID]:
    return []


@pytest.fixture
def start(database_url: str, servers: Addresses, ran: list[UUID]) -> Iterator[Start]:
    registry = JobRegistry()

    @registry.job("noop")
    def noop(context: ExecutionContext, config: None) -> None:
        assert context.schedule_id is not None
        ran.append(context.schedule_id)

    started: list[FleetWorker] = []

    def start(*queues: str) -> FleetWorker:
        urls = {"database_url": database_url, "redis_url": servers.redis_url}
        settings = Settings(_env_file=None, **urls)  # type: ignore[arg-type]
        worker = FleetWorker(settings, registry, queues or ("scan",), 1, name="worker", pool="solo")
        worker.start()
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.stop()


def waiting(db: DatabaseConnection, make: Make, queue: str = "scan", **schedule: object) -> UUID:
    """A fire of that queue, which a replica has met, written and sorted."""
    store = store_of(db, "replica", abilities_of_a_replica())
    schedule_id = make(queue=queue, **schedule)
    store.claim([fire(schedule_id)])
    settle(db, store)
    store.close()
    return schedule_id


def abilities_of_a_replica() -> Abilities:
    return Abilities(lambda: ["noop"])


def test_a_worker_takes_the_most_urgent_row_of_its_queues_and_returns_when_its_end_is_written(
    db: DatabaseConnection, make: Make, start: Start, ran: list[UUID]
) -> None:
    later, urgent, elsewhere = waiting(db, make), waiting(db, make, priority=5), waiting(db, make, "browser")
    worker = start()
    assert worker.serve()
    assert (ran, ended(db)) == ([urgent], [(urgent, "success", "worker")])
    assert worker.serve()
    assert ran == [urgent, later]
    assert not worker.serve()
    assert elsewhere not in [row[0] for row in ended(db)]


def test_what_nobody_has_sorted_is_none_of_a_workers_business(
    db: DatabaseConnection, make: Make, start: Start, ran: list[UUID]
) -> None:
    store = store_of(db)
    store.hand_back(store.claim([fire(make(queue="scan"))]).claims)
    assert not start().serve()
    assert (ran, rows(db, "queue")) == ([], [("",)])


def test_a_worker_takes_nothing_while_a_replica_of_the_version_before_lives(
    db: DatabaseConnection, make: Make, start: Start, ran: list[UUID]
) -> None:
    waiting(db, make)
    worker = start()
    with db.transaction() as connection:
        connection.exec_driver_sql(
            "INSERT INTO scheduler_instances (instance_id, incarnation) VALUES ('old', %s)", (uuid4(),)
        )
    assert not worker.serve()
    assert ran == []
    with db.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM scheduler_instances WHERE instance_id = 'old'")
    worker.serve()  # notices it
    eventually(lambda: ran or worker.serve())


def test_two_wakes_for_one_row_run_it_once(db: DatabaseConnection, make: Make, start: Start, ran: list[UUID]) -> None:
    waiting(db, make)
    worker = start()
    assert [worker.serve(), worker.serve()] == [True, False]
    assert len(ran) == 1


def test_nobody_takes_a_worker_for_a_replica(db: DatabaseConnection, start: Start) -> None:
    start("scan", "browser")
    assert rows_of(db, "SELECT kind, claiming, on_duty, holds FROM scheduler_instances") == [
        ("worker", False, False, None)
    ]
    with db.transaction() as connection:  # even if it said so
        connection.execute(text("UPDATE scheduler_instances SET claiming = true"))
    seen = list_replicas(db, 15)
    assert (seen.items, seen.are_converged) == ([], False)
    ((worker),) = seen.workers
    assert (worker.queues, worker.max_workers, worker.pool) == (["browser", "scan"], 1, "solo")
    assert rows_of(db, ATTENDED_SINCE, timeout=15)[0][0] is None
    assert {since for _, since in rows_of(db, WATCHED_SINCE, timeout=15, buckets=[0, 1])} == {None}
    assert rows_of(db, CIRCUMSTANCES, timeout=15, id=uuid4())[0][1] == 0


def ended(db: DatabaseConnection) -> list[tuple[object, ...]]:
    return [row for row in rows(db, "schedule_id, status, instance_id") if row[1] != "pending"]


def rows_of(db: DatabaseConnection, sql: str, **values: object) -> list[tuple[object, ...]]:
    with db.transaction() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(sql, values)]
