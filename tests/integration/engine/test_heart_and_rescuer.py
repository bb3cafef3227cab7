"""Life signs and rescue in one process; with replicas that really die they are in tests/acceptance."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from threading import Event
from uuid import UUID, uuid4

import psycopg2
import pytest
from prometheus_client import REGISTRY

from database.clock import DatabaseClock
from database.connection import DatabaseConnection
from services.distributed_lock import Coordinator
from services.embedded import Addresses
from services.engine.heart import Heart, Pulse
from services.engine.heart_sql import BEAT, HAND_BACK_STRANGERS
from services.engine.held_claims import HeldClaims
from services.engine.ownership import Gate
from services.engine.rescuer import LOOK_SECONDS, SECOND_LOOK_SECONDS, Rescuer
from services.engine.rescuer_sql import RESCUE, SESSIONS
from services.engine.shares.shares import Shares
from services.job_history import JobHistory
from services.jobs import ExecutionContext
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Claim, Owner
from services.redis_client import RedisClient
from tests.support.contexts import a_context
from tests.support.executions import POLICY, Make, fire, rows, store_of
from tests.support.statements import each_statement
from tests.support.waiting import eventually

FACTS = {"revision": 0, "schedules": 0, "running": 0, "claiming": True, "on_duty": True, "host": "h", "free_slots": 4}
INTERVAL, TIMEOUT = 4.0, 15.0
OWNER = Owner("rescuer", uuid4())


def shares_of(owner: Owner) -> Shares:
    return Shares(owner.instance_id, owner.incarnation, copies=2, timeout_seconds=TIMEOUT, gap_seconds=TIMEOUT / 2)


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
def cancelled() -> list[UUID]:
    """What the heart told the pool to cancel."""
    return []


@pytest.fixture
def heart(db: DatabaseConnection, boot: Boot, held: HeldClaims, cancelled: list[UUID]) -> Iterator[Heart]:
    heart = heart_of(db, held, cancelled)
    yield heart
    heart.stop()


def heart_of(db: DatabaseConnection, held: HeldClaims, cancelled: list[UUID]) -> Heart:
    return Heart(
        db,
        OWNER,
        DatabaseClock(5),
        shares_of(OWNER),
        held,
        Pulse(INTERVAL, TIMEOUT),
        facts=lambda: dict(FACTS),
        cancel=cancelled.append,
    )


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


def test_a_replica_knows_for_how_long_it_has_seen_the_others_without_a_break(heart: Heart, boot: Boot) -> None:
    assert heart.connected_seconds == 0
    for _ in range(3):
        heart.beat()
        boot.at += INTERVAL
    assert heart.connected_seconds == 3 * INTERVAL
    boot.at += TIMEOUT
    assert heart.connected_seconds == 0
    heart.beat()
    boot.at += 1
    assert heart.connected_seconds == 1


def test_a_heartbeat_counts_from_before_it_was_sent(db: DatabaseConnection, heart: Heart, boot: Boot) -> None:
    """Postgres wrote it at some time before the answer, and the others count from then."""

    db.keeps_plans = False  # so that a statement is recognised by its text

    def answers_late(_driver: object, statement: str, _values: object) -> None:
        if statement == BEAT:
            boot.at += TIMEOUT

    with each_statement(db, answered=answers_late):
        heart.beat()
    assert not heart.is_trusted


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


def test_a_heartbeat_that_was_a_little_late_still_proves_that_nobody_gave_us_up(
    db: DatabaseConnection, make: Make, heart: Heart, boot: Boot
) -> None:
    """Else a busy replica would ask Postgres before every call."""
    heart.beat()
    (mine,) = store_of(db).claim([fire(make())], start=1).started
    mine = replace(mine, asked_at=boot.at)
    boot.at += INTERVAL + 0.4
    heart.beat()
    give_up(db, mine)
    assert heart.confirms(mine), "nobody is asked"


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

    def slowly(*_: object) -> None:
        boot.at += 2.0

    with each_statement(db, answered=slowly):
        assert heart.confirms(mine) is None
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


def test_an_answer_that_comes_while_its_row_is_being_handed_back_is_thrown_away(
    db: DatabaseConnection, make: Make, heart: Heart, held: HeldClaims
) -> None:
    db.keeps_plans = False  # so that a statement is recognised by its text
    store = ExecutionStore(db, OWNER, POLICY, 86_400)
    late = store.claim([fire(make())], start=1).started
    accepted: list[Claim] = []

    def the_answer_comes(_driver: object, statement: str, _values: object) -> None:
        if statement == HAND_BACK_STRANGERS:
            accepted.extend(held.accept(late, [])[0])

    heart.beat()
    with each_statement(db, the_answer_comes):
        heart.beat()
    assert (accepted, rows(db, "status")) == ([], [("pending",)])
    store.close()


def test_a_row_that_we_got_again_is_not_handed_back_by_its_former_token(
    db: DatabaseConnection, make: Make, heart: Heart, held: HeldClaims
) -> None:
    """The hand-back of a stranger was on its way for so long that the row came back to us in between."""
    db.keeps_plans = False  # so that a statement is recognised by its text
    store = ExecutionStore(db, OWNER, POLICY, 86_400)
    stranger = store.claim([fire(make())])
    again: list[Claim] = []

    def claimed_again(_driver: object, statement: str, _values: object) -> None:
        if statement == HAND_BACK_STRANGERS:
            store.hand_back(stranger.claims)
            again.extend(store.waiting.take(1).claims)
            held.accept([], again)

    heart.beat()
    with each_statement(db, claimed_again):
        heart.beat()
    assert rows(db, "status, fencing_token") == [("claimed", again[0].fencing_token)]
    store.close()


def test_a_replica_hears_with_its_next_heartbeat_that_a_job_of_its_own_is_to_be_cancelled(
    db: DatabaseConnection, make: Make, heart: Heart, held: HeldClaims, cancelled: list[UUID]
) -> None:
    store = ExecutionStore(db, OWNER, POLICY, 86_400)
    ours, another = store.claim([fire(make()), fire(make())], start=2).started
    held.accept([ours, another], [])
    heart.beat()
    assert cancelled == []
    JobHistory(db).request_cancel(ours.execution_id)
    heart.beat()
    assert cancelled == [ours.execution_id]
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


# --- the gate before a handler ---


def test_an_execution_that_was_given_up_is_turned_away(
    db: DatabaseConnection, make: Make, heart: Heart, held: HeldClaims, boot: Boot
) -> None:
    mine, taken = held.accept(claimed_before_the_first_beat(db, make, boot, 2), [])[0]
    heart.beat()
    give_up(db, taken)
    turned_away: list[Claim] = []
    gate = Gate(heart, held, Event(), turned_away.extend)
    assert (gate.may_run(context_of(mine)), gate.may_run(context_of(taken))) == (True, False)
    assert turned_away == [taken]


def test_an_execution_waits_at_the_gate_while_postgres_cannot_say_whose_it_is(
    db: DatabaseConnection, database_url: str, make: Make, held: HeldClaims, boot: Boot
) -> None:
    (mine,) = held.accept(claimed_before_the_first_beat(db, make, boot, 1), [])[0]
    refusals: list[object] = []
    with (
        closing(DatabaseConnection(database_url, statement_timeout_seconds=1)) as own,
        ThreadPoolExecutor(1) as worker,
        each_statement(own, refused=lambda *asked: refusals.append(asked)),
    ):
        heart = heart_of(own, held, [])
        heart.beat()
        gate = Gate(heart, held, Event(), lambda _: None)
        with db.transaction() as somebody:
            somebody.exec_driver_sql("LOCK TABLE job_executions")
            answer = worker.submit(gate.may_run, context_of(mine))
            eventually(lambda: len(refusals) > 1 or answer.done())
            assert not answer.done()
        assert answer.result(60)
        heart.stop()


def claimed_before_the_first_beat(db: DatabaseConnection, make: Make, boot: Boot, count: int) -> list[Claim]:
    """So that the heart has to ask Postgres whether they are still ours."""
    claims = store_of(db).claim([fire(make()) for _ in range(count)], start=count).started
    return [replace(claim, asked_at=boot.at - 1) for claim in claims]


def context_of(claim: Claim) -> ExecutionContext:
    return a_context(execution_id=claim.execution_id, fencing_token=claim.fencing_token)


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


def test_what_a_dead_replica_left_is_logged_by_name_and_as_an_error_if_no_attempt_follows(
    db: DatabaseConnection, make: Make, heart: Heart, rescuer: Rescuer, boot: Boot, caplog: pytest.LogCaptureFixture
) -> None:
    again, last = make(max_retries=1, name="tried again"), make(domain="given up.example")
    store_of(db, "dead").claim([fire(again), fire(last)], start=2)
    listened(db, heart, boot)
    rescuer.tick()
    said = {
        record.getMessage().partition(" at ")[0]: (record.levelname, record.getMessage().partition(": ")[2])
        for record in caplog.records
        if vars(record).get("event") == "execution_abandoned"
    }
    why = "abandoned: replica dead stopped sending heartbeats"
    assert said == {"tried again": ("WARNING", why), "given up.example": ("ERROR", why)}


def test_the_fleet_hears_of_the_places_that_a_dead_replica_held(
    db: DatabaseConnection, make: Make, heart: Heart, rescuer: Rescuer, boot: Boot
) -> None:
    told: list[tuple[list[UUID], list[str]]] = []
    rescuer.tell_fleet(lambda schedule_ids, keys: told.append((list(schedule_ids), list(keys))))
    schedule_id = make(limit_keys=["site"])
    with db.transaction() as connection:
        connection.exec_driver_sql("INSERT INTO limits (name, max_running) VALUES ('site', 1)")
    store_of(db, "dead").claim([fire(schedule_id)], start=1)
    listened(db, heart, boot)
    rescuer.tick()
    (ids, keys), *others = told
    assert (ids, "site" in keys, others) == ([schedule_id], True, [])


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


def test_what_a_former_process_of_the_same_name_ran_is_rescued(
    db: DatabaseConnection, make: Make, heart: Heart, rescuer: Rescuer, boot: Boot
) -> None:
    store_of(db, OWNER.instance_id).claim([fire(make())], start=1)
    listened(db, heart, boot)
    rescuer.tick()
    assert rows(db, "status") == [("abandoned",)]


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
    heart = Heart(db, owner, clock, shares_of(owner), HeldClaims(), pulse, facts=facts, cancel=lambda _: None)
    store = ExecutionStore(db, owner, POLICY, 86_400)
    heart.beat()
    yield Other(db, heart, store)
    store.close()
    heart.stop()
    db.close()


def vanish(other: Other) -> None:
    """Closes all sessions of the other replica, and waits until the server has noticed."""
    other.store.close()
    other.heart._connection.close()
    other.db.close()
    url = other.db.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with closing(psycopg2.connect(url, application_name="test")) as watching, watching.cursor() as cursor:
        watching.autocommit = True
        name = other.heart.owner.session_name

        def is_gone() -> bool:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", (name,))
            return cursor.fetchone() == (0,)

        eventually(is_gone)


def looks(rescuer: Rescuer, heart: Heart, boot: Boot, seconds: float) -> None:
    for _ in range(int(seconds)):
        boot.at += 1
        heart.beat()
        rescuer.tick()


def aged_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rescuer's own session has been there for longer than the timeout."""
    monkeypatch.setattr("services.engine.rescuer.SESSIONS", SESSIONS.replace("a.backend_start", "timestamptz 'epoch'"))


def test_who_gives_a_sign_of_life_while_it_is_being_given_up_lives(
    db: DatabaseConnection, make: Make, heart: Heart, rescuer: Rescuer, boot: Boot, other: Other
) -> None:
    """Between the two statements of a rescue."""
    db.keeps_plans = False  # so that a statement is recognised by its text
    other.store.claim([fire(make())], start=1)
    listened(db, heart, boot)
    age(db, "other", TIMEOUT + 1)

    def the_other_one_is_back(_driver: object, statement: str, _values: object) -> None:
        if statement == RESCUE:
            other.heart.beat()

    with each_statement(db, the_other_one_is_back):
        rescuer.tick()
    assert rows(db, "status") == [("running",)]


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
    assert (status, message) == ("abandoned", "replica other is gone: its process no longer has a connection")


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


def test_a_replica_that_was_never_seen_with_a_session_is_not_missed(
    db: DatabaseConnection,
    make: Make,
    heart: Heart,
    rescuer: Rescuer,
    boot: Boot,
    other: Other,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server may hide it from us, or name it otherwise."""
    aged_session(monkeypatch)
    other.store.claim([fire(make())], start=1)
    listened(db, heart, boot)
    vanish(other)
    age(db, "other", INTERVAL + 2)
    looks(rescuer, heart, boot, 8)
    assert rows(db, "status") == [("running",)]


def test_sessions_that_vanished_while_the_rescuer_was_away_are_looked_for_anew(
    db: DatabaseConnection,
    make: Make,
    heart: Heart,
    rescuer: Rescuer,
    boot: Boot,
    other: Other,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It saw them missing once, slept, and cannot know what was in between."""
    aged_session(monkeypatch)
    other.store.claim([fire(make())], start=1)
    listened(db, heart, boot)
    looks(rescuer, heart, boot, 2)
    vanish(other)
    age(db, "other", INTERVAL + 2)
    looks(rescuer, heart, boot, 1)
    boot.at += TIMEOUT / 2
    looks(rescuer, heart, boot, 1)
    assert rows(db, "status") == [("running",)]
    looks(rescuer, heart, boot, 4)
    assert rows(db, "status") == [("abandoned",)]


def test_a_rescuer_looks_more_often_while_somebody_is_absent(
    heart: Heart, rescuer: Rescuer, boot: Boot, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged_session(monkeypatch)
    heart.beat()
    assert rescuer.tick() == LOOK_SECONDS
    vanish(other)
    boot.at += 1
    assert rescuer.tick() == SECOND_LOOK_SECONDS


def test_a_worker_of_the_fleet_is_no_member_of_ours(heart: Heart, db: DatabaseConnection) -> None:
    """It would be an elder otherwise, of which one is enough to make every replica load every schedule."""
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO scheduler_instances (instance_id, incarnation, kind, claiming)
               VALUES ('worker', gen_random_uuid(), 'worker', true)"""
        )
    heart.beat()
    assert heart._shares is not None
    assert (heart._shares.known, heart._shares.elders) == ({OWNER.incarnation}, ())
