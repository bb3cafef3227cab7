"""Life signs and rescue in one process; with replicas that really die they are in tests/acceptance."""

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from prometheus_client import REGISTRY

from database.connection import DatabaseConnection
from services.clock import DatabaseClock
from services.distributed_lock import Coordinator
from services.embedded import Addresses
from services.execution_store import ExecutionStore
from services.fires import Claim, Owner
from services.peers import Peers
from services.recovery import Heart, Rescuer
from services.redis_client import RedisClient
from tests.executions import POLICY, Make, fire, rows, store_of

FACTS = {"revision": 0, "schedules": 0, "running": 0, "claiming": True}
TIMEOUT = 15.0
OWNER = Owner("rescuer", uuid4())


class Boot:
    """A clock of the machine that a test sets."""

    at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> Boot:
    boot = Boot()
    monkeypatch.setattr("services.recovery.awake_or_not", boot)
    return boot


@pytest.fixture
def known() -> dict[UUID, Claim]:
    """What the process remembers that it holds."""
    return {}


@pytest.fixture
def heart(db: DatabaseConnection, boot: Boot, known: dict[UUID, Claim]) -> Iterator[Heart]:
    heart = Heart(
        db,
        OWNER,
        DatabaseClock(5),
        Peers("rescuer"),
        timeout_seconds=TIMEOUT,
        facts=lambda: dict(FACTS),
        known=lambda: known,
        cancel=lambda execution_id: None,
    )
    yield heart
    heart.stop()


@pytest.fixture
def rescuer(db: DatabaseConnection, servers: Addresses, heart: Heart) -> Iterator[Rescuer]:
    redis = RedisClient(servers.redis_url)
    coordinator = Coordinator(redis, owner=str(uuid4()), lease_seconds=60, mark_seconds=60)
    rescuer = Rescuer(db, coordinator, POLICY, heart, timeout_seconds=TIMEOUT, rescued=lambda: None)
    yield rescuer
    rescuer.close()
    redis.close()


def retries_planned() -> float:
    return REGISTRY.get_sample_value("scheduler_retries_total") or 0.0


def abandoned_of(job_type: str) -> float:
    labels = {"job_type": job_type, "status": "abandoned"}
    return REGISTRY.get_sample_value("scheduler_executions_total", labels) or 0.0


def test_a_replica_that_slept_does_not_trust_itself_before_its_next_beat(heart: Heart, boot: Boot) -> None:
    heart.beat()
    assert heart.is_trusted
    boot.at += TIMEOUT  # the machine was suspended, and with it time.monotonic()
    assert not heart.is_trusted
    heart.beat()
    assert heart.is_trusted


def test_before_a_handler_is_called_a_replica_that_slept_asks_whether_the_execution_is_still_its_own(
    db: DatabaseConnection, make: Make, heart: Heart, boot: Boot
) -> None:
    mine, taken = store_of(db).claim([fire(make()), fire(make())], start=2).started
    with db.transaction() as connection:
        connection.exec_driver_sql(
            "UPDATE job_executions SET status = 'abandoned' WHERE execution_id = %s", (taken.execution_id,)
        )
    heart.beat()
    assert heart.confirms(taken), "nobody is asked while we are trusted"
    boot.at += TIMEOUT
    assert (heart.confirms(mine), heart.confirms(taken)) == (True, False)


def test_rows_under_our_name_that_we_do_not_know_go_back_after_two_beats(
    db: DatabaseConnection, make: Make, heart: Heart, known: dict[UUID, Claim]
) -> None:
    """The answer to a claim was lost: nobody will ever run them."""
    store = ExecutionStore(db, OWNER, POLICY, 86_400)
    ours = store.claim([fire(make()), fire(make())], start=1)
    known.update((claim.execution_id, claim) for claim in ours.claims)
    heart.beat()
    assert sorted(rows(db, "status")) == [("claimed",), ("running",)], "one beat may have met a claim on its way"
    heart.beat()
    assert sorted(rows(db, "status, fencing_token IS NULL")) == [("claimed", False), ("pending", True)]
    store.close()


def test_a_dead_replica_s_executions_are_rescued_and_their_retries_counted(
    db: DatabaseConnection, make: Make, heart: Heart, rescuer: Rescuer, boot: Boot
) -> None:
    dead = store_of(db, "dead")
    dead.claim([fire(make(max_retries=1)), fire(make())], start=2)
    dead.claim([fire(make())])
    before, were_abandoned = retries_planned(), abandoned_of("noop")
    for _ in range(3):  # nobody is given up before the rescuer has listened for as long as a life sign may take
        heart.beat()
        rescuer.tick()
        assert {status for (status,) in rows(db, "status")} == {"running", "claimed"}
        boot.at += TIMEOUT / 3
    heart.beat()
    rescuer.tick()
    assert sorted(rows(db, "status, attempt")) == [
        ("abandoned", 1),
        ("abandoned", 1),
        ("pending", 1),
        ("pending", 2),
    ]
    assert retries_planned() == before + 1
    assert abandoned_of("noop") == were_abandoned + 2


def test_what_a_dead_replica_ran_of_a_deleted_schedule_is_counted_too(
    db: DatabaseConnection, make: Make, heart: Heart, rescuer: Rescuer, boot: Boot
) -> None:
    store_of(db, "dead").claim([fire(make())], start=1)
    with db.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM schedules")
    before = abandoned_of("other")
    for _ in range(4):
        heart.beat()
        rescuer.tick()
        boot.at += TIMEOUT / 3
    assert rows(db, "status") == [("abandoned",)]
    assert abandoned_of("other") == before + 1
