"""No row, no run: what the dispatcher does when Postgres refuses the row that must come first."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from database.connection import DatabaseConnection
from services.clock import DatabaseClock
from services.dispatcher import Dispatcher
from services.distributed_lock import Coordinator
from services.embedded import Addresses
from services.execution_store import ExecutionStore
from services.finisher import Finisher
from services.jobs import ExecutionContext, JobRegistry, WorkerPool
from services.peers import Peers
from services.redis_client import RedisClient
from tests.executions import Make, fire, rows
from tests.waiting import eventually


@dataclass(frozen=True)
class Parts:
    """One replica's dispatcher, with its pool; `ran` has the executions whose handler was called."""

    dispatcher: Dispatcher
    ran: list[UUID]


@pytest.fixture
def parts(store: ExecutionStore, servers: Addresses) -> Iterator[Parts]:
    ran: list[UUID] = []
    registry = JobRegistry(set())

    @registry.job("noop")
    def _noop(context: ExecutionContext, config: dict[str, Any]) -> None:
        ran.append(context.execution_id)

    redis = RedisClient(servers.redis_url)
    coordinator = Coordinator(redis, owner=str(uuid4()), lease_seconds=60, mark_seconds=60)
    dispatcher = Dispatcher(
        store=store,
        coordinator=coordinator,
        finisher=Finisher(store, coordinator),
        peers=Peers("replica"),
        clock=DatabaseClock(5),
        instance_id="replica",
        max_workers=2,
        verify_after_seconds=5,
        may_claim=lambda: True,
    )
    pool = WorkerPool(2, registry, dispatcher.done)
    dispatcher.use(pool)
    yield Parts(dispatcher, ran)
    pool.shutdown(5)
    redis.close()


def change(db: DatabaseConnection, sql: str) -> None:
    with db.transaction() as connection:
        connection.execute(text(sql))


def test_a_claim_whose_start_is_refused_waits_and_runs_only_after_it_is_written(
    db: DatabaseConnection, make: Make, parts: Parts
) -> None:
    parts.dispatcher.hand_over([fire(make()), fire(make())])
    change(db, "ALTER TABLE job_executions ADD CONSTRAINT nothing_starts CHECK (status <> 'running')")
    for _ in range(3):
        with pytest.raises(DBAPIError):
            parts.dispatcher.tick()
    assert (parts.ran, rows(db, "status")) == ([], [("claimed",)] * 2)
    change(db, "ALTER TABLE job_executions DROP CONSTRAINT nothing_starts")
    parts.dispatcher.tick()
    eventually(lambda: len(parts.ran) == 2)
    assert rows(db, "status") == [("running",)] * 2


def test_a_fire_whose_row_is_refused_does_not_run(db: DatabaseConnection, make: Make, parts: Parts) -> None:
    change(db, "ALTER TABLE job_executions ADD CONSTRAINT nothing_is_claimed CHECK (status <> 'claimed')")
    parts.dispatcher.hand_over([fire(make())])
    parts.dispatcher.tick()
    assert (parts.ran, rows(db)) == ([], [])
    assert parts.dispatcher.known() == {}
