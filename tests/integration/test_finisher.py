"""Results are written in groups, and no result can keep another from being written."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest

from database.connection import DatabaseConnection
from database.models import ExecutionStatus
from services.distributed_lock import Coordinator
from services.embedded import Addresses
from services.finisher import Finisher
from services.fires import Claim, Ending
from services.redis_client import RedisClient
from tests.executions import Make, fire, rows, store_of


@pytest.fixture
def finisher(db: DatabaseConnection, servers: Addresses) -> Iterator[Finisher]:
    with closing(RedisClient(servers.redis_url)) as redis:
        coordinator = Coordinator(redis, owner=str(uuid4()), lease_seconds=60, mark_seconds=60)
        yield Finisher(store_of(db), coordinator)


def running(db: DatabaseConnection, make: Make, count: int) -> list[Claim]:
    store = store_of(db)
    claims = store.claim([fire(make()) for _ in range(count)]).claims
    store.start(claims)
    return claims


def ending(claim: Claim, **more: Any) -> Ending:
    return Ending(claim=claim, status=ExecutionStatus.SUCCESS, duration_seconds=0.1, **more)


def test_results_that_came_together_are_written_together(
    db: DatabaseConnection, make: Make, finisher: Finisher
) -> None:
    written: list[Claim] = []
    finisher.on_written = written.append
    claims = running(db, make, 20)
    for claim in claims:
        finisher.put(ending(claim))
    finisher.tick()
    assert written == claims
    assert set(rows(db, "status, xmin::text")) == {("success", rows(db, "xmin::text")[0][0])}
    assert finisher.unwritten == 0


def test_a_result_that_cannot_be_stored_fails_alone(db: DatabaseConnection, make: Make, finisher: Finisher) -> None:
    good, poison, other = running(db, make, 3)
    for claim, details in ((good, {"pages": 1}), (poison, {"text": "a\x00b"}), (other, {"pages": 2})):
        finisher.put(ending(claim, details=details))
    finisher.tick()
    outcome = {row[0]: row[1:] for row in rows(db, "execution_id, status, error_message")}
    assert outcome[good.execution_id] == outcome[other.execution_id] == ("success", None)
    status, message = outcome[poison.execution_id]
    assert status == "failed"
    assert message.startswith("its result could not be stored: ")
