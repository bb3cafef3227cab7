"""A worker of the fleet in this process: what it takes, and that nobody takes it for a replica."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from config import Settings
from database.connection import DatabaseConnection
from services.embedded import Addresses
from services.engine.gap_scan.scanner_sql import ATTENDED_SINCE
from services.engine.heart import Heart
from services.errors import Unavailable
from services.fleet.worker import TRIES, FleetWorker
from services.insight.explain.history_sql import CIRCUMSTANCES
from services.insight.replicas import list_replicas
from services.jobs import ExecutionContext, JobRegistry
from services.ledger.needs import Abilities
from services.ledger.outbox import Outbox
from services.ledger.waiting import TakeReport, WaitingStore
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


def test_a_wake_that_finds_a_row_which_is_not_announced_yet_leaves_none_without_a_message(
    db: DatabaseConnection, make: Make, start: Start, ran: list[UUID]
) -> None:
    """The row whose wake it was would wait for half a minute."""
    announced = waiting(db, make)
    with db.transaction() as connection:
        connection.execute(text("UPDATE job_executions SET published_at = now(), publish_at = now() + interval '30 s'"))
    urgent = waiting(db, make, priority=5)
    worker = start()
    assert worker.serve()
    assert ran == [urgent]
    with closing(Outbox(db, ["scan"], 15.0)) as outbox:
        assert outbox.take().by_queue == {"scan": 1}
        assert worker.serve()
        assert ran == [urgent, announced]
        assert outbox.take().ids == []


def test_a_wake_that_finds_its_own_row_announces_nothing(db: DatabaseConnection, make: Make, start: Start) -> None:
    for _ in range(2):
        waiting(db, make)
    with closing(Outbox(db, ["scan"], 15.0)) as outbox:
        assert len(outbox.take().ids) == 2
        assert start().serve()
        assert outbox.take().ids == []


def test_a_process_keeps_three_sessions_with_postgres(db: DatabaseConnection, make: Make, start: Start) -> None:
    """Heartbeat, taking and results; an end whose places are announced to others needs no further one."""
    waiting(db, make, limit_keys=["site"])
    worker = start()
    assert worker.serve()
    named = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %(name)s"
    assert rows_of(db, named, name=worker.owner.session_name) == [(3,)]


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


def test_a_worker_pauses_and_gives_up_while_another_session_decides_a_limit(
    db: DatabaseConnection, make: Make, start: Start, ran: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(db, "site", 1)
    waiting(db, make, limit_keys=["site"])
    worker, takes = start(), counted(monkeypatch)
    with db.transaction() as other:
        other.exec_driver_sql("SELECT FROM limit_stripes FOR UPDATE")
        assert serves(worker) == [False]
    assert (ran, len(takes)) == ([], TRIES)
    assert worker.serve()


def test_a_worker_that_may_not_claim_gives_the_wake_up(
    db: DatabaseConnection, make: Make, start: Start, ran: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Celery's warm shutdown waits for it, and the row is announced again."""
    waiting(db, make)
    worker = start()
    monkeypatch.setattr("services.fleet.worker.UNREADY_SECONDS", 0.01)
    with monkeypatch.context() as untrusted:
        untrusted.setattr(Heart, "is_trusted", False)  # no heartbeat of late
        assert serves(worker) == [False]
    with monkeypatch.context() as without_postgres:

        def fails(self: WaitingStore, *_: object, **__: object) -> TakeReport:
            raise Unavailable("Postgres", "nowhere", "it is away")

        without_postgres.setattr(WaitingStore, "take", fails)
        assert serves(worker) == [False]
    assert ran == []
    assert worker.serve()


@pytest.mark.parametrize("looked_at", ["", "limit:a500"])
def test_one_wake_finds_the_row_with_room_behind_any_number_of_keys(
    db: DatabaseConnection, make: Make, start: Start, ran: list[UUID], looked_at: str
) -> None:
    limit(db, "a*", 0)
    limit(db, "b", 1)
    row = waiting(db, make, limit_keys=["b"])
    with db.transaction() as connection:
        connection.exec_driver_sql(
            "UPDATE job_executions SET reason = 'limit:' || %s", ("b" if not looked_at else "A",)
        )
        connection.exec_driver_sql(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, queue, needs, reason)
               SELECT gen_random_uuid(), 'job', 'domain', gen_random_uuid(), 'pending', 'default', '{job:noop}',
                      'limit:a' || lpad(n::text, 3, '0') FROM generate_series(1, 900) AS n"""
        )
    worker = start()
    worker.place.store.waiting._last_reason = looked_at
    assert worker.serve()
    assert ran == [row]


def limit(db: DatabaseConnection, name: str, most: int) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql("INSERT INTO limits (name, max_running) VALUES (%s, %s)", (name, most))


def serves(worker: FleetWorker) -> list[bool]:
    """Within a time that no pause of it needs."""
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(worker.serve()), daemon=True)
    thread.start()
    thread.join(10)
    return answers


def counted(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    takes: list[None] = []
    take = WaitingStore.take

    def counting(self: WaitingStore, count: int, start: int = 0) -> TakeReport:
        takes.append(None)
        return take(self, count, start)

    monkeypatch.setattr(WaitingStore, "take", counting)
    return takes


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
