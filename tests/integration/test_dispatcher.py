"""No row, no run: what the dispatcher does when Postgres refuses the row that must come first."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from database.connection import DatabaseConnection
from services.embedded import Addresses
from services.execution_store import ExecutionStore
from services.redis_client import RedisClient
from tests.dispatching import Parts, dispatching
from tests.executions import Make, fire, rows
from tests.waiting import eventually


@pytest.fixture
def parts(store: ExecutionStore, servers: Addresses) -> Iterator[Parts]:
    redis = RedisClient(servers.redis_url)
    with dispatching(store, redis) as parts:
        yield parts
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
