"""Life signs and rescue in one process; with replicas that really die they are in tests/acceptance."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import event

from database.clock import DatabaseClock
from database.connection import DatabaseConnection
from services.distributed_lock import Coordinator
from services.embedded import Addresses
from services.engine.heart import Heart, Pulse
from services.engine.held_claims import HeldClaims
from services.engine.peers import Peers
from services.engine.rescuer import Rescuer
from services.engine.rescuer_sql import SESSIONS
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Claim, Owner
from services.redis_client import RedisClient
from tests.support.executions import POLICY, Make, fire, rows, store_of

FACTS = {"revision": 0, "schedules": 0, "running": 0, "claiming": True}
INTERVAL, TIMEOUT = 4.0, 15.0
OWNER = Owner("rescuer", uuid4())


class Boot:
    """A clock of the machine that a test sets."""

    at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> Boot:
    boot = Boot()
    monkeypatch.setattr("services.engine.heart.awake_or_not", boot)
    monkeypatch.setattr("services.engine.rescuer.awake_or_not", boot)
    return boot


@pytest.fixture
def held() -> HeldClaims:
    return HeldClaims()


@pytest.fixture
def heart(db: DatabaseConnection, boot: Boot, held: HeldClaims) -> Iterator[Heart]:
    heart = Heart(
        db,
        OWNER,
        DatabaseClock(5),
        Peers("rescuer"),
        held,
        Pulse(INTERVAL, TIMEOUT),
        facts=lambda: dict(FACTS),
        cancel=lambda execution_id: None,
    )
    yield heart
    heart.stop()


@pytest.fixture
def rescuer(db: DatabaseConnection, servers: Addresses, heart: Heart) -> Iterator[Rescuer]:
    redis = RedisClient(servers.redis_url)
    coordinator = Coordinator(redis, owner=str(uuid4()), lease_seconds=60, mark_seconds=60)
    rescuer = Rescuer(db, coordinator, POLICY, heart, interval_seconds=0, rescued=lambda: None)
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


def give_up(db: DatabaseConnection, claim: Claim) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(
            "UPDATE job_executions SET status = 'abandoned' WHERE execution_id = %s", (claim.execution_id,)
        )


def test_before_a_handler_is_called_a_replica_that_slept_asks_whether_the_execution_is_still_its_own(
    db: DatabaseConnection, make: Make, heart: Heart, boot: Boot
) -> None:
    heart.beat()
    claims = store_of(db).claim([fire(make()), fire(make())], start=2).started
    mine, taken = (replace(claim, asked_at=boot.at) for claim in claims)
    give_up(db, taken)
    assert heart.confirms(taken), "nobody is asked while we are trusted"
    boot.at += TIMEOUT
    assert heart.confirms(mine) is None, "nobody can say before our next heartbeat"
    heart.beat()
    assert (heart.confirms(mine), heart.confirms(taken)) == (True, False)


def test_trust_that_is_younger_than_the_claim_is_none(
    db: DatabaseConnection, make: Make, heart: Heart, boot: Boot
) -> None:
    """The heartbeat came late, the others gave us up, and the claim's own answer came later still."""
    heart.beat()
    (taken,) = store_of(db).claim([fire(make())], start=1).started
    taken = replace(taken, asked_at=boot.at)
    boot.at += TIMEOUT
    heart.beat()
    give_up(db, taken)
    assert heart.is_trusted
    assert heart.confirms(taken) is False


def test_a_late_heartbeat_is_no_proof_that_nobody_gave_us_up(
    db: DatabaseConnection, make: Make, heart: Heart, boot: Boot
) -> None:
    """A replica whose sessions have vanished is given up soon after the heartbeat that it missed."""
    heart.beat()
    (taken,) = store_of(db).claim([fire(make())], start=1).started
    taken = replace(taken, asked_at=boot.at)
    give_up(db, taken)
    boot.at += INTERVAL + 1
    assert heart.is_trusted
    assert heart.confirms(taken) is False


def test_a_heartbeat_that_was_late_proves_nothing_for_what_was_claimed_before_it(
    db: DatabaseConnection, make: Make, heart: Heart, boot: Boot
) -> None:
    """Our sessions had vanished, the others gave us up, and then we were back: all within the timeout."""
    heart.beat()
    (taken,) = store_of(db).claim([fire(make())], start=1).started
    taken = replace(taken, asked_at=boot.at)
    give_up(db, taken)
    boot.at += INTERVAL + 2
    heart.beat()
    assert heart.confirms(taken) is False


def test_what_somebody_is_just_giving_up_is_not_confirmed(
    db: DatabaseConnection, make: Make, heart: Heart, boot: Boot
) -> None:
    """A rescue that has written and not committed: we woke up in between."""
    (taken,) = store_of(db).claim([fire(make())], start=1).started
    taken = replace(taken, asked_at=boot.at - 1)  # before our first heartbeat
    heart.beat()
    with db.transaction() as rescue:
        rescue.exec_driver_sql("UPDATE job_executions SET status = 'abandoned'")
        assert heart.confirms(taken) is None
    assert heart.confirms(taken) is False


def test_an_answer_that_took_long_is_asked_for_again(
    db: DatabaseConnection, make: Make, heart: Heart, boot: Boot
) -> None:
    (mine,) = store_of(db).claim([fire(make())], start=1).started
    mine = replace(mine, asked_at=boot.at - 1)  # before our first heartbeat
    heart.beat()

    @event.listens_for(db.engine, "after_cursor_execute")
    def _slowly(*_: object) -> None:
        boot.at += 2.0

    assert heart.confirms(mine) is None
    event.remove(db.engine, "after_cursor_execute", _slowly)
    heart.beat()
    assert heart.confirms(mine) is True


def test_rows_under_our_name_that_we_do_not_know_go_back_after_two_beats(
    db: DatabaseConnection, make: Make, heart: Heart, held: HeldClaims
) -> None:
    """The answer to a claim was lost: nobody will ever run them."""
    store = ExecutionStore(db, OWNER, POLICY, 86_400)
    ours = store.claim([fire(make()), fire(make())], start=1)
    held.accept([], ours.claims)
    heart.beat()
    assert sorted(rows(db, "status")) == [("claimed",), ("running",)], "one beat may have met a claim on its way"
    heart.beat()
    assert sorted(rows(db, "status, fencing_token IS NULL")) == [("claimed", False), ("pending", True)]
    assert held.accept(ours.started, []) == ([], []), "its answer comes too late: it was handed back"
    store.close()


def test_the_heart_waits_for_no_row(
    db: DatabaseConnection, make: Make, heart: Heart, held_row: Callable[[Claim], AbstractContextManager[None]]
) -> None:
    store = ExecutionStore(db, OWNER, POLICY, 86_400)
    first, second = store.claim([fire(make()), fire(make())], start=2).started
    heart.beat()
    with held_row(first):
        heart.beat()
        assert dict(rows(db, "execution_id, status")) == {first.execution_id: "running", second.execution_id: "pending"}
    heart.beat()
    assert [status for (status,) in rows(db, "status")] == ["pending", "pending"]
    store.close()


@pytest.fixture
def held_row(db: DatabaseConnection) -> Callable[[Claim], AbstractContextManager[None]]:
    """Somebody's open transaction that holds the row of an execution."""

    @contextmanager
    def hold(claim: Claim) -> Iterator[None]:
        with db.transaction() as connection:
            sql = "SELECT FROM job_executions WHERE execution_id = %s FOR UPDATE"
            connection.exec_driver_sql(sql, (claim.execution_id,))
            yield

    return hold


# --- rescue ---


def listened(db: DatabaseConnection, heart: Heart, boot: Boot) -> None:
    """The rescuer has lived for as long as a life sign may take."""
    for _ in range(5):
        heart.beat()
        boot.at += TIMEOUT / 4
    heart.beat()
    with db.transaction() as connection:
        connection.exec_driver_sql(
            "UPDATE scheduler_instances SET alive_since = alive_since - make_interval(secs => %s)"
            " WHERE instance_id = %s",
            (TIMEOUT, OWNER.instance_id),
        )


def age(db: DatabaseConnection, instance_id: str, seconds: float) -> None:
    """Its last heartbeat was so long ago."""
    with db.transaction() as connection:
        connection.exec_driver_sql(
            "UPDATE scheduler_instances SET heartbeat_at = clock_timestamp() - make_interval(secs => %s)"
            " WHERE instance_id = %s",
            (seconds, instance_id),
        )


def test_a_dead_replica_s_executions_are_rescued_and_their_retries_counted(
    db: DatabaseConnection, make: Make, heart: Heart, rescuer: Rescuer, boot: Boot
) -> None:
    dead = store_of(db, "dead")
    dead.claim([fire(make(max_retries=1)), fire(make())], start=2)
    dead.claim([fire(make())])
    before, were_abandoned = retries_planned(), abandoned_of("noop")
    heart.beat()
    rescuer.tick()  # nobody is given up before the rescuer has listened for as long as a life sign may take
    assert {status for (status,) in rows(db, "status")} == {"running", "claimed"}
    listened(db, heart, boot)
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
    listened(db, heart, boot)
    rescuer.tick()
    assert rows(db, "status") == [("abandoned",)]
    assert abandoned_of("other") == before + 1


def test_nobody_is_dead_for_a_replica_whose_own_heartbeat_is_old(
    db: DatabaseConnection, make: Make, heart: Heart, rescuer: Rescuer, boot: Boot
) -> None:
    """The server stalled, and the rescuer is the first one to wake up: by the table everybody is silent."""
    store_of(db, "dead").claim([fire(make())], start=1)
    listened(db, heart, boot)
    age(db, OWNER.instance_id, TIMEOUT / 2 + 1)
    rescuer.tick()
    assert rows(db, "status") == [("running",)]


def test_a_gap_of_its_own_makes_a_replica_listen_anew(
    db: DatabaseConnection, make: Make, heart: Heart, rescuer: Rescuer, boot: Boot
) -> None:
    store_of(db, "dead").claim([fire(make())], start=1)
    listened(db, heart, boot)
    age(db, OWNER.instance_id, TIMEOUT / 2 + 1)
    heart.beat()
    rescuer.tick()
    assert rows(db, "status") == [("running",)]


def test_a_clock_of_the_server_that_was_set_back_does_not_end_all_rescue(
    db: DatabaseConnection, make: Make, heart: Heart, rescuer: Rescuer, boot: Boot
) -> None:
    store_of(db, "dead").claim([fire(make())], start=1)
    heart.beat()
    with db.transaction() as connection:
        connection.exec_driver_sql(
            "UPDATE scheduler_instances SET alive_since = alive_since + interval '1 hour',"
            " heartbeat_at = heartbeat_at + interval '1 hour'"
        )
    listened(db, heart, boot)
    rescuer.tick()
    assert rows(db, "status") == [("abandoned",)]


def test_a_rescue_waits_for_no_execution_that_another_session_holds(
    db: DatabaseConnection,
    make: Make,
    heart: Heart,
    rescuer: Rescuer,
    boot: Boot,
    held_row: Callable[[Claim], AbstractContextManager[None]],
) -> None:
    first, second = store_of(db, "dead").claim([fire(make()), fire(make())], start=2).started
    listened(db, heart, boot)
    with held_row(first):
        rescuer.tick()
        ended = {first.execution_id: "running", second.execution_id: "abandoned"}
        assert dict(rows(db, "execution_id, status")) == ended
    rescuer.tick()
    assert rows(db, "status") == [("abandoned",)] * 2


# --- a process that died is known by its vanished sessions ---


@dataclass(frozen=True)
class Other:
    """Another replica, which lives in this process."""

    db: DatabaseConnection
    heart: Heart
    store: ExecutionStore


@pytest.fixture
def other(database_url: str) -> Iterator[Other]:
    owner = Owner("other", uuid4())
    db = DatabaseConnection(database_url, application_name=f"other#{owner.incarnation.hex[:12]}")
    facts, clock = (lambda: dict(FACTS)), DatabaseClock(5)
    pulse = Pulse(INTERVAL, TIMEOUT)
    heart = Heart(db, owner, clock, Peers("other"), HeldClaims(), pulse, facts=facts, cancel=lambda _: None)
    store = ExecutionStore(db, owner, POLICY, 86_400)
    heart.beat()
    yield Other(db, heart, store)
    store.close()
    heart.stop()
    db.close()


def vanish(other: Other) -> None:
    other.store.close()
    other.heart._connection.close()
    other.db.close()


def looks(rescuer: Rescuer, heart: Heart, boot: Boot, seconds: float) -> None:
    for _ in range(int(seconds)):
        boot.at += 1
        heart.beat()
        rescuer.tick()


def aged_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rescuer's own session has been there for longer than the timeout."""
    monkeypatch.setattr("services.engine.rescuer.SESSIONS", SESSIONS.replace("a.backend_start", "timestamptz 'epoch'"))


def test_a_process_whose_sessions_are_gone_and_that_missed_a_heartbeat_is_dead(
    db: DatabaseConnection,
    make: Make,
    heart: Heart,
    rescuer: Rescuer,
    boot: Boot,
    other: Other,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    aged_session(monkeypatch)
    other.store.claim([fire(make())], start=1)
    listened(db, heart, boot)
    looks(rescuer, heart, boot, 2)
    vanish(other)
    looks(rescuer, heart, boot, 6)
    assert rows(db, "status") == [("running",)], "its heartbeat is young: it may be reconnecting"
    age(db, "other", INTERVAL + 2)
    looks(rescuer, heart, boot, 1)
    ((status, message),) = rows(db, "status, error_message")
    assert (status, message) == ("abandoned", "replica other is gone: its process has no connection any more")


def test_a_silent_process_whose_sessions_are_there_keeps_the_whole_timeout(
    db: DatabaseConnection,
    make: Make,
    heart: Heart,
    rescuer: Rescuer,
    boot: Boot,
    other: Other,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    aged_session(monkeypatch)
    other.store.claim([fire(make())], start=1)
    listened(db, heart, boot)
    age(db, "other", TIMEOUT - 2)
    looks(rescuer, heart, boot, 8)
    assert rows(db, "status") == [("running",)]


def test_vanished_sessions_prove_nothing_for_a_rescuer_that_has_just_connected_itself(
    db: DatabaseConnection, make: Make, heart: Heart, rescuer: Rescuer, boot: Boot, other: Other
) -> None:
    """The server was restarted: everybody's sessions are gone."""
    other.store.claim([fire(make())], start=1)
    listened(db, heart, boot)
    looks(rescuer, heart, boot, 2)
    vanish(other)
    age(db, "other", INTERVAL + 2)
    looks(rescuer, heart, boot, 8)
    assert rows(db, "status") == [("running",)]


def test_sessions_that_come_back_between_two_looks_are_there(
    db: DatabaseConnection,
    make: Make,
    heart: Heart,
    rescuer: Rescuer,
    boot: Boot,
    other: Other,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody ends the sessions of a living replica again and again."""
    aged_session(monkeypatch)
    other.store.claim([fire(make())], start=1)
    listened(db, heart, boot)
    looks(rescuer, heart, boot, 2)
    for _ in range(3):
        vanish(other)
        age(db, "other", INTERVAL + 2)
        looks(rescuer, heart, boot, 3)
        other.store.without_row([])
        looks(rescuer, heart, boot, 1)
    assert rows(db, "status") == [("running",)]
