"""Life signs and rescue in one process; with replicas that really die they are in tests/acceptance."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY

from database.connection import DatabaseConnection
from services.clock import DatabaseClock
from services.distributed_lock import Coordinator
from services.embedded import Addresses
from services.fires import Owner
from services.peers import Peers
from services.recovery import Heart, Rescuer
from services.redis_client import RedisClient
from tests.executions import POLICY, Make, fire, rows, store_of

FACTS = {"revision": 0, "schedules": 0, "running": 0, "claiming": True}
TIMEOUT = 15.0


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
def heart(db: DatabaseConnection, boot: Boot) -> Iterator[Heart]:
    heart = Heart(
        db,
        Owner("rescuer", uuid4()),
        DatabaseClock(5),
        Peers("rescuer"),
        timeout_seconds=TIMEOUT,
        facts=lambda: dict(FACTS),
        known=dict,
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


def test_a_replica_that_slept_does_not_trust_itself_before_its_next_beat(heart: Heart, boot: Boot) -> None:
    heart.beat()
    assert heart.is_trusted
    boot.at += TIMEOUT  # the machine was suspended, and with it time.monotonic()
    assert not heart.is_trusted
    heart.beat()
    assert heart.is_trusted


def test_a_dead_replica_s_executions_are_rescued_and_their_retries_counted(
    db: DatabaseConnection, make: Make, heart: Heart, rescuer: Rescuer, boot: Boot
) -> None:
    dead = store_of(db, "dead")
    dead.claim([fire(make(max_retries=1)), fire(make())], start=2)
    dead.claim([fire(make())])
    before = retries_planned()
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
