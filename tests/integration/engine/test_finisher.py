"""Results are written in groups, and no result can keep another from being written."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.exc import DBAPIError

from database.connection import DatabaseConnection
from database.models import ExecutionStatus
from services.distributed_lock import Coordinator
from services.embedded import Addresses
from services.engine.finisher import Finisher
from services.engine.held_claims import HeldClaims
from services.ledger.claims import FinishReport
from services.ledger.fires import Claim, Ending, leases
from services.redis_client import RedisClient
from tests.support.executions import Make, fire, rows, store_of


@pytest.fixture
def held() -> HeldClaims:
    return HeldClaims()


@pytest.fixture
def coordinator(servers: Addresses) -> Iterator[Coordinator]:
    with closing(RedisClient(servers.redis_url)) as redis:
        yield Coordinator(redis, owner=str(uuid4()), lease_seconds=60, mark_seconds=60)


@pytest.fixture
def finisher(db: DatabaseConnection, held: HeldClaims, coordinator: Coordinator) -> Iterator[Finisher]:
    with closing(store_of(db)) as store:
        yield Finisher(store, held, coordinator)


def running(db: DatabaseConnection, make: Make, count: int) -> list[Claim]:
    with closing(store_of(db)) as store:
        claims = store.claim([fire(make()) for _ in range(count)]).claims
        store.start(claims)
    return claims


def ending(claim: Claim, **more: Any) -> Ending:
    return Ending(claim=claim, status=ExecutionStatus.SUCCESS, duration_seconds=0.1, **more)


def test_results_that_came_together_are_written_together(
    db: DatabaseConnection, make: Make, finisher: Finisher, held: HeldClaims
) -> None:
    claims = running(db, make, 20)
    held.accept(claims, [])
    for claim in claims:
        finisher.put(ending(claim))
    finisher.tick()
    assert len(held) == 0
    assert set(rows(db, "status, xmin::text")) == {("success", rows(db, "xmin::text")[0][0])}
    assert finisher.unwritten == 0


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_refused_result_and_its_retry_s_written_together_leave_no_lease_behind(
    db: DatabaseConnection, make: Make, finisher: Finisher, coordinator: Coordinator, newest_first: bool
) -> None:
    (claim,) = running(db, make, 1)
    given_up = replace(claim, execution_id=uuid4(), fencing_token=claim.fencing_token - 1)
    for each in (given_up, claim):
        coordinator.take_leases(leases([each]))
    for each in (claim, given_up) if newest_first else (given_up, claim):
        finisher.put(ending(each))
    finisher.tick()
    coordinator.renew()
    assert coordinator.stats().renewals == 0


@pytest.mark.parametrize(
    ("status", "retry_in_seconds", "level"),
    [("success", None, "INFO"), ("failed", 30.0, "WARNING"), ("failed", None, "ERROR"), ("timed_out", None, "ERROR"),
     ("skipped", None, "INFO"), ("cancelled", None, "INFO")],
)  # fmt: skip
def test_the_end_of_an_execution_is_logged_as_it_deserves(
    db: DatabaseConnection, make: Make, finisher: Finisher, caplog: pytest.LogCaptureFixture,
    status: str, retry_in_seconds: float | None, level: str,
) -> None:  # fmt: skip
    caplog.set_level("INFO")
    (claim,) = running(db, make, 1)
    error = None if status == "success" else "the door is locked"
    finisher.put(
        Ending(claim=claim, status=ExecutionStatus(status), error_message=error, retry_in_seconds=retry_in_seconds)
    )
    finisher.tick()
    (said,) = [record for record in caplog.records if vars(record).get("event") == "execution_finished"]
    assert said.levelname == level
    assert said.getMessage().startswith("job at "), "the name or what it is about, not only an id"
    assert vars(said)["execution_id"] == str(claim.execution_id)
    assert vars(said)["schedule_id"] == str(claim.schedule_id)
    if error:
        assert error in said.getMessage()


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


def test_at_the_end_of_the_process_what_is_left_is_written(
    db: DatabaseConnection, make: Make, finisher: Finisher
) -> None:
    (claim,) = running(db, make, 1)
    finisher._queue.put(ending(claim))  # as if its wake-up had been missed
    finisher.write_what_is_left(within_seconds=0)
    assert (finisher.unwritten, rows(db, "status")) == (1, [("running",)]), "nobody writes"
    finisher.loop.start()
    finisher.write_what_is_left(within_seconds=60)
    assert (finisher.unwritten, rows(db, "status")) == (0, [("success",)])
    finisher.loop.stop()


def test_a_result_stays_what_it_is_when_a_lock_keeps_it_longer_than_a_statement_may_take(
    db: DatabaseConnection, make: Make, finisher: Finisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = finisher._store
    store._connection.run("SET statement_timeout = 100")
    finish = store.finish

    def locked_out_once(endings: list[Ending]) -> FinishReport:
        monkeypatch.setattr(store, "finish", finish)
        with db.transaction() as connection:
            connection.exec_driver_sql("LOCK TABLE job_executions IN ACCESS EXCLUSIVE MODE")
            return finish(endings)

    (claim,) = running(db, make, 1)
    monkeypatch.setattr(store, "finish", locked_out_once)
    finisher.put(ending(claim, details={"pages": 1}))
    with pytest.raises(DBAPIError, match="statement timeout"):
        finisher.tick()
    assert (rows(db, "status"), finisher.unwritten) == ([("running",)], 1)
    finisher.tick()
    assert rows(db, "status, metadata") == [("success", {"pages": 1})]
