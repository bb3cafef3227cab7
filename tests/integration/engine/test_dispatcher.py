"""What the dispatcher does with fires that find no slot, and when Postgres refuses the row that must come first."""

import math
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, NoReturn
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from database.connection import DatabaseConnection
from database.models import ExecutionStatus
from enhanced_scheduler.results import failed
from services.distributed_lock import Coordinator
from services.embedded import Addresses
from services.engine.dispatcher import BUSY_POLL_SECONDS, NO_ROOM_SECONDS, PENDING_POLL_SECONDS
from services.engine.pool import WorkerPool
from services.errors import Unavailable
from services.jobs import ExecutionContext, JobFailed
from services.ledger import limits_sql
from services.ledger.claims import ClaimReport, ExecutionStore
from services.ledger.fires import Ending, Fire
from services.ledger.waiting import WaitingStore, Wish
from services.redis_client import RedisClient
from tests.support.contexts import a_context
from tests.support.dispatching import Parts, dispatching
from tests.support.executions import Make, fire, rows, store_of
from tests.support.waiting import eventually
from tests.unit.engine.shares.test_shares import member, shares_of


@pytest.fixture
def redis(servers: Addresses) -> Iterator[RedisClient]:
    redis = RedisClient(servers.redis_url)
    yield redis
    redis.close()


@pytest.fixture
def parts(store: ExecutionStore, redis: RedisClient) -> Iterator[Parts]:
    with dispatching(store, redis) as parts:
        yield parts


def change(db: DatabaseConnection, sql: str) -> None:
    with db.transaction() as connection:
        connection.execute(text(sql))


def test_a_claim_whose_start_is_refused_waits_and_runs_only_after_it_is_written(
    db: DatabaseConnection, make: Make, store: ExecutionStore, parts: Parts
) -> None:
    store.hand_back(store.claim([fire(make()), fire(make())]).claims)
    with interrupted_before_the_start(db, parts):
        for _ in range(2):
            with pytest.raises(DBAPIError):
                parts.dispatcher.tick()
        assert (parts.ran, rows(db, "status")) == ([], [("claimed",)] * 2)
    parts.dispatcher.tick()
    eventually(lambda: len(parts.ran) == 2)
    assert rows(db, "status") == [("running",)] * 2


def test_a_row_that_waits_and_has_a_worker_goes_straight_to_running(
    db: DatabaseConnection, make: Make, store: ExecutionStore, parts: Parts
) -> None:
    store.hand_back(store.claim([fire(make())]).claims)
    change(db, "ALTER TABLE job_executions ADD CONSTRAINT nothing_is_claimed CHECK (status <> 'claimed')")
    parts.dispatcher.tick()
    eventually(lambda: len(parts.ran) == 1)
    assert rows(db, "status, fencing_token IS NULL, started_at IS NULL") == [("running", False, False)]


def test_a_fire_whose_row_is_refused_does_not_run(db: DatabaseConnection, make: Make, parts: Parts) -> None:
    change(
        db, "ALTER TABLE job_executions ADD CONSTRAINT nothing_is_claimed CHECK (status NOT IN ('claimed', 'running'))"
    )
    parts.dispatcher.hand_over([fire(make())])
    parts.dispatcher.tick()
    assert (parts.ran, rows(db)) == ([], [])
    assert len(parts.held) == 0


def test_a_fire_with_a_free_place_is_claimed_and_started_in_one_write(
    db: DatabaseConnection, make: Make, parts: Parts
) -> None:
    change(db, "ALTER TABLE job_executions ADD CONSTRAINT nothing_waits CHECK (status <> 'claimed')")
    parts.dispatcher.hand_over([fire(make()), fire(make())])
    parts.dispatcher.tick()
    eventually(lambda: len(parts.ran) == 2)
    assert rows(db, "status, started_at >= claimed_at") == [("running", True)] * 2


def test_fires_beyond_the_free_places_wait_for_one(db: DatabaseConnection, make: Make, store: ExecutionStore) -> None:
    report = store.claim([fire(make()) for _ in range(3)], start=2)
    assert (len(report.started), len(report.claims)) == (2, 1)
    assert sorted(rows(db, "status")) == [("claimed",), ("running",), ("running",)]


def test_fires_of_a_refused_batch_wait_for_a_postgres_that_goes_away_meanwhile(
    db: DatabaseConnection, make: Make, store: ExecutionStore, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is claimed in halves, to find the row that is refused; the second half must not be forgotten."""
    refusals = [refusal("23514"), Unavailable("Postgres", "here", "gone")]
    claim = store.claim

    def refuse(fires: list[Fire], start: int = 0) -> ClaimReport:
        if refusals:
            raise refusals.pop(0)
        return claim(fires, start)

    monkeypatch.setattr(ExecutionStore, "claim", lambda self, fires, start=0: refuse(fires, start))
    parts.dispatcher.hand_over([fire(make()), fire(make())])
    with pytest.raises(Unavailable):
        parts.dispatcher.tick()
    parts.dispatcher.tick()
    eventually(lambda: len(parts.ran) == 2)


def refusal(sqlstate: str) -> DBAPIError:
    class Refused(Exception):
        pgcode = sqlstate

    return DBAPIError("INSERT", {}, Refused("refused"))


@pytest.mark.parametrize("sqlstate", ["55P03", "57014", "42703"])  # a lock, a timeout, a changed schema
def test_an_error_that_is_about_the_moment_loses_no_fire_and_is_not_asked_again_for_each(
    make: Make, store: ExecutionStore, parts: Parts, monkeypatch: pytest.MonkeyPatch, sqlstate: str
) -> None:
    claim, asked = store.claim, []

    def refuse(self: ExecutionStore, fires: list[Fire], start: int = 0) -> ClaimReport:
        asked.append(len(fires))
        if len(asked) == 1:
            raise refusal(sqlstate)
        return claim(fires, start)

    monkeypatch.setattr(ExecutionStore, "claim", refuse)
    parts.dispatcher.hand_over([fire(make()), fire(make())])
    with pytest.raises(DBAPIError):
        parts.dispatcher.tick()
    parts.dispatcher.tick()
    eventually(lambda: len(parts.ran) == 2)
    assert asked == [2, 2]


def test_only_a_claim_proves_that_claims_work_again(
    make: Make, store: ExecutionStore, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_claim = True
    monkeypatch.setattr(parts.dispatcher, "_may_claim", lambda: may_claim)
    parts.dispatcher.tick()
    assert parts.dispatcher.claims_work(), "it has asked for rows that wait"
    may_claim = False
    parts.dispatcher.hand_over([fire(make())])
    parts.dispatcher.tick()
    assert not parts.dispatcher.claims_work()
    may_claim = True
    parts.dispatcher.tick()
    assert parts.dispatcher.claims_work()
    eventually(lambda: parts.held.in_pool == 0)
    parts.gate.clear()
    parts.dispatcher.hand_over([fire(make()), fire(make())])
    eventually(lambda: parts.finisher.tick() is None and parts.dispatcher.tick() and len(parts.ran) == 3)
    eventually(lambda: parts.dispatcher.threads.room <= 0)  # it stops to expect that they end soon
    parts.dispatcher.tick()
    assert parts.dispatcher.claims_work(), "all slots are taken: there is nothing to claim for, perhaps for hours"


def test_what_was_claimed_starts_although_nothing_more_can_be_claimed(
    db: DatabaseConnection, make: Make, store: ExecutionStore, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.hand_back(store.claim([fire(make())]).claims)
    with interrupted_before_the_start(db, parts):
        assert rows(db, "status") == [("claimed",)]

    def refuse(self: WaitingStore, *_: object, **__: object) -> NoReturn:
        raise refusal("42703")

    monkeypatch.setattr(WaitingStore, "take", refuse)
    parts.dispatcher.look_for_pending()
    with pytest.raises(DBAPIError):
        parts.dispatcher.tick()
    eventually(lambda: len(parts.ran) == 1)


def test_rows_that_cannot_be_claimed_do_not_keep_fires_from_being_claimed(
    make: Make, store: ExecutionStore, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise refusal("22008")

    monkeypatch.setattr(store.waiting, "take", refuse)
    parts.dispatcher.hand_over([fire(make())])
    for _ in range(2):
        with suppress(DBAPIError):
            parts.dispatcher.tick()
    eventually(lambda: len(parts.ran) == 1)


def test_one_fire_that_cannot_be_judged_does_not_take_its_batch_along(
    make: Make, store: ExecutionStore, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison, good = make(), make()
    judge = ExecutionStore._judge

    def fail(self: ExecutionStore, due: Fire, locked: Any) -> Any:
        if due.schedule_id == poison:
            raise OverflowError("date value out of range")
        return judge(self, due, locked)

    monkeypatch.setattr(ExecutionStore, "_judge", fail)
    parts.dispatcher.hand_over([fire(poison), fire(good)])
    for _ in range(2):
        with suppress(OverflowError):
            parts.dispatcher.tick()
    eventually(lambda: len(parts.ran) == 1)


# --- claims whose answer came late ---


def test_a_claim_that_was_disowned_while_its_answer_was_on_its_way_is_not_run(
    db: DatabaseConnection, make: Make, store: ExecutionStore, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = store.claim

    def answered_late(self: ExecutionStore, fires: list[Fire], start: int = 0) -> ClaimReport:
        report = claim(fires, start)
        first = report.started[0]
        assert parts.held.disown([first.proof]) == [first.proof]
        return report

    monkeypatch.setattr(ExecutionStore, "claim", answered_late)
    parts.dispatcher.hand_over([fire(make()), fire(make())])
    parts.dispatcher.tick()
    eventually(lambda: len(parts.ran) == 1)
    eventually(lambda: parts.held.in_pool == 0)  # the disowned one takes no place
    assert len(parts.held) == 1


def test_a_claim_that_the_pool_refuses_is_handed_back_and_the_rest_of_its_batch_runs(
    db: DatabaseConnection, make: Make, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = WorkerPool.submit
    refused: list[UUID] = []

    def refuse_the_first(self: WorkerPool, context: ExecutionContext) -> None:
        if not refused:
            refused.append(context.execution_id)
            raise RuntimeError("submitted twice")
        submit(self, context)

    monkeypatch.setattr(WorkerPool, "submit", refuse_the_first)
    parts.dispatcher.hand_over([fire(make()), fire(make())])
    parts.dispatcher.tick()
    eventually(lambda: len(parts.ran) == 1)
    assert dict(rows(db, "execution_id, status"))[refused[0]] == "pending"
    eventually(lambda: parts.held.in_pool == 0)  # its place is free again
    assert len(parts.held) == 1


# --- schedules that another session holds ---


def test_held_schedules_take_no_turn_of_the_others(
    db: DatabaseConnection, make: Make, store: ExecutionStore, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, free = [make() for _ in range(6)], [make() for _ in range(3)]
    claimed: list[int] = []
    claim = store.claim

    def counted(self: ExecutionStore, fires: list[Fire], start: int = 0) -> ClaimReport:
        claimed.append(len(fires))
        return claim(fires, start)

    monkeypatch.setattr(ExecutionStore, "claim", counted)
    with db.transaction() as session:
        session.execute(text("SELECT FROM schedules WHERE schedule_id = ANY(:held) FOR UPDATE"), {"held": held})
        parts.dispatcher.hand_over([fire(each, 3) for each in held])

        def are_asked_about_only() -> bool:
            parts.dispatcher.tick()
            return parts.dispatcher.held_schedules == len(held)

        eventually(are_asked_about_only)
        claimed.clear()
        parts.dispatcher.hand_over([fire(each, 2) for each in held])  # their next fires join those that wait
        parts.dispatcher.hand_over([fire(each, 1) for each in free])
        parts.dispatcher.tick()
        assert sum(claimed) <= len(free), "the held ones are older, and not tried"
        eventually(lambda: parts.finisher.tick() is None and parts.dispatcher.tick() and len(parts.ran) == len(free))
    eventually(lambda: parts.finisher.tick() is None and parts.dispatcher.tick() and len(parts.ran) == 9)
    assert sorted(rows(db), key=str).count(("skipped", "coalesced")) == 6, "all fires of a held schedule come together"
    assert parts.dispatcher.held_schedules == 0


def test_the_oldest_fire_that_waits_is_told_also_if_its_schedule_is_held_or_being_claimed(
    db: DatabaseConnection, make: Make, store: ExecutionStore, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher, claim = parts.dispatcher, store.claim
    waited: list[float] = []

    def watched(self: ExecutionStore, fires: list[Fire], start: int = 0) -> ClaimReport:
        waited.append(dispatcher.oldest_wait_seconds)
        return claim(fires, start)

    monkeypatch.setattr(ExecutionStore, "claim", watched)
    assert dispatcher.oldest_wait_seconds == 0
    held = make()
    with db.transaction() as session:
        session.execute(text("SELECT FROM schedules WHERE schedule_id = :held FOR UPDATE"), {"held": held})
        dispatcher.hand_over([fire(held, 100), fire(make(), 50)])
        assert dispatcher.oldest_wait_seconds >= 100, "nobody has looked at it yet"
        dispatcher.tick()
        assert waited[0] >= 100, "right now it is claimed"
        eventually(lambda: len(parts.ran) == 1)
        assert dispatcher.oldest_wait_seconds >= 100, "it could not be claimed"
    eventually(lambda: dispatcher.tick() and len(parts.ran) == 2)
    assert dispatcher.oldest_wait_seconds == 0


def test_a_start_goes_around_a_row_that_another_session_holds(
    db: DatabaseConnection, make: Make, store: ExecutionStore
) -> None:
    held, free = store.claim([fire(make()), fire(make())]).claims
    with db.transaction() as session:
        session.execute(
            text("SELECT FROM job_executions WHERE execution_id = :id FOR UPDATE"), {"id": held.execution_id}
        )
        report = store.start([held, free])
        assert (report.started, report.later) == ([free], [held])
        assert store.hand_back([held]) == [held]
        assert store.unstart([held, free]) == [held]
        ended = store.finish([Ending(claim=held, status=ExecutionStatus.SUCCESS)])
        assert [ending.claim for ending in ended.later] == [held]
    assert store.hand_back([held]) == []
    assert rows(db, "status") == [("pending",)] * 2


def test_what_was_claimed_and_not_started_is_given_back_at_the_end_and_forgotten(
    db: DatabaseConnection, make: Make, store: ExecutionStore, parts: Parts
) -> None:
    store.hand_back(store.claim([fire(make())]).claims)
    with interrupted_before_the_start(db, parts):
        assert (rows(db, "status"), len(parts.held)) == ([("claimed",)], 1)
        parts.dispatcher.drain()
    assert (rows(db, "status"), len(parts.held)) == ([("pending",)], 0)


def test_a_replica_that_leaves_gives_away_what_is_due_and_what_it_has_not_begun(
    db: DatabaseConnection, make: Make, store: ExecutionStore, parts: Parts, redis: RedisClient
) -> None:
    store.hand_back(store.claim([fire(make())]).claims)
    with interrupted_before_the_start(db, parts):
        assert rows(db, "status") == [("claimed",)]
        parts.dispatcher.leave()
        parts.dispatcher.hand_over([fire(make()) for _ in range(10)])
        parts.dispatcher.hand_over([marked_by_another(redis, fire(make()))])  # which dies before it has written a row
        for _ in range(2):
            parts.dispatcher.tick()
    assert rows(db, "status, instance_id, queue") == [("pending", None, "")] * 12
    assert (parts.ran, len(parts.held), parts.dispatcher.queued, parts.dispatcher.given_away) == ([], 0, 0, 11)


def test_a_replica_that_leaves_gives_away_whole_schedules(db: DatabaseConnection, make: Make, parts: Parts) -> None:
    """As any claim does: of fires that coalesce only the last one waits."""
    schedule = make(coalesce=True)
    parts.dispatcher.leave()
    parts.dispatcher.hand_over([fire(schedule, seconds_ago) for seconds_ago in (2, 1, 0)])
    parts.dispatcher.tick()
    assert rows(db, "status, reason") == [("skipped", "coalesced"), ("skipped", "coalesced"), ("pending", None)]


# --- fires that another replica has marked ---


def test_a_fire_that_was_marked_and_got_no_row_is_claimed_after_all(
    db: DatabaseConnection, make: Make, parts: Parts, redis: RedisClient
) -> None:
    due = marked_by_another(redis, fire(make()))
    parts.dispatcher.hand_over([due])
    parts.dispatcher.tick()
    assert rows(db) == [], "first it is the other one's"
    parts.dispatcher.tick()
    eventually(lambda: len(parts.ran) == 1)


def test_a_fire_that_was_marked_and_has_its_row_is_left_alone(
    db: DatabaseConnection, make: Make, parts: Parts, redis: RedisClient
) -> None:
    due = marked_by_another(redis, fire(make()))
    store_of(db, "another").claim([due])
    parts.dispatcher.hand_over([due])
    for _ in range(3):
        parts.dispatcher.tick()
    assert (rows(db, "status, instance_id"), parts.ran) == ([("claimed", "another")], [])


def marked_by_another(redis: RedisClient, due: Fire) -> Fire:
    Coordinator(redis, owner="another", lease_seconds=60, mark_seconds=60).mark_fires([due.key])
    return due


def test_without_an_answer_of_redis_postgres_decides(db: DatabaseConnection, make: Make, store: ExecutionStore) -> None:
    with closing(RedisClient("redis://127.0.0.1:1/0")) as absent, dispatching(store, absent) as parts:
        parts.dispatcher.hand_over([fire(make())])
        parts.dispatcher.tick()
        eventually(lambda: len(parts.ran) == 1)


# --- rows that wait ---


def test_where_a_row_waited_another_one_is_looked_for_soon(
    make: Make, store: ExecutionStore, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.engine.dispatcher.PENDING_POLL_SECONDS", 1000.0)
    nothing_waited = parts.dispatcher.tick()
    store.hand_back(store.claim([fire(make())]).claims)
    parts.dispatcher.look_for_pending()
    something_waited = parts.dispatcher.tick()
    assert nothing_waited is not None
    assert something_waited is not None
    assert something_waited <= BUSY_POLL_SECONDS < nothing_waited
    eventually(lambda: len(parts.ran) == 1)


# --- two kinds of places ---


def test_rows_taken_for_threads_run_although_none_can_be_taken_for_the_event_loop(
    db: DatabaseConnection, make: Make, store: ExecutionStore, redis: RedisClient
) -> None:
    """They are written by then. Forgotten, they would be nobody's until two heartbeats have found them."""
    plain, refused = make(), make(job_type="waits", name="refused")
    store.hand_back(store.claim([fire(plain), fire(refused)]).claims)
    list(store.waiting.take_each([Wish(2, is_for=lambda needs: False)]))  # sorts them into their lanes
    change(db, "ALTER TABLE job_executions ADD CONSTRAINT not_this CHECK (status = 'pending' OR job_id <> 'refused')")
    with dispatching(store, redis, max_async=1) as parts:
        with pytest.raises(DBAPIError):
            parts.dispatcher.tick()
        eventually(lambda: len(parts.ran) == 1)
        assert len(parts.held) == 1
    assert sorted(rows(db, "status")) == [("pending",), ("running",)]


def test_a_full_event_loop_is_no_proof_that_threads_find_work(
    make: Make, store: ExecutionStore, redis: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.engine.dispatcher.PENDING_POLL_SECONDS", 1000.0)
    with dispatching(store, redis, max_async=1) as parts:
        parts.gate.clear()
        parts.dispatcher.hand_over([fire(make(job_type="waits"))])
        eventually(lambda: parts.dispatcher.tick() and len(parts.ran) == 1)
        parts.dispatcher.tick()
        assert not parts.dispatcher.claims_work(), "nothing was asked of Postgres, and there are free threads"


# --- leases ---


@pytest.mark.parametrize(
    "change_of_mind",
    ["UPDATE schedules SET enabled = false", "DELETE FROM schedules", "UPDATE schedules SET max_instances = 2"],
)
def test_a_claim_that_is_not_started_leaves_no_lease_behind(
    db: DatabaseConnection, make: Make, store: ExecutionStore, parts: Parts, redis: RedisClient, change_of_mind: str
) -> None:
    schedule_id = make()
    store.hand_back(store.claim([fire(schedule_id)]).claims)
    with interrupted_before_the_start(db, parts):
        assert redis.commands.exists(f"lock:schedule:{schedule_id}")
        change(db, change_of_mind)
    parts.dispatcher.tick()
    parts.coordinator.renew()  # would bring it back for as long as the replica lives
    assert not redis.commands.exists(f"lock:schedule:{schedule_id}")


@contextmanager
def interrupted_before_the_start(db: DatabaseConnection, parts: Parts) -> Iterator[None]:
    change(db, "ALTER TABLE job_executions ADD CONSTRAINT nothing_starts CHECK (status <> 'running')")
    waiting = parts.dispatcher._store.waiting
    take = waiting.take
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "take", lambda count, *_, **__: take(count, 0))  # claimed, as if its worker were taken
        with pytest.raises(DBAPIError):
            parts.dispatcher.tick()
    yield
    change(db, "ALTER TABLE job_executions DROP CONSTRAINT nothing_starts")


def test_what_was_started_runs_although_the_rest_of_its_batch_cannot_be_looked_at_again(
    db: DatabaseConnection, make: Make, store: ExecutionStore, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited, untouched = make(), make()
    store.hand_back(store.claim([fire(edited), fire(untouched)]).claims)
    with interrupted_before_the_start(db, parts):
        change(db, f"UPDATE schedules SET job_config = '{{\"a\": 1}}' WHERE schedule_id = '{edited}'")
    with monkeypatch.context() as outage:
        outage.setattr(store, "look_again", _nobody_answers)
        with pytest.raises(Unavailable):
            parts.dispatcher.tick()
    eventually(lambda: len(parts.ran) == 1)
    parts.dispatcher.tick()
    eventually(lambda: len(parts.ran) == 2)


def test_a_claim_that_waits_for_its_row_is_not_forgotten_when_the_rest_of_its_batch_cannot_be_looked_at_again(
    db: DatabaseConnection, make: Make, store: ExecutionStore, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited, held = make(), make()
    store.hand_back(store.claim([fire(edited), fire(held)]).claims)
    with interrupted_before_the_start(db, parts):
        change(db, f"UPDATE schedules SET job_config = '{{\"a\": 1}}' WHERE schedule_id = '{edited}'")
    with monkeypatch.context() as outage, db.transaction() as session:
        session.execute(text("SELECT FROM job_executions WHERE schedule_id = :id FOR UPDATE"), {"id": held})
        outage.setattr(store, "look_again", _nobody_answers)
        with pytest.raises(Unavailable):
            parts.dispatcher.tick()
    parts.dispatcher.tick()
    eventually(lambda: len(parts.ran) == 2)


def _nobody_answers(*_: object) -> NoReturn:
    raise Unavailable("Postgres", "here", "gone")


# --- more fires than slots ---


@pytest.fixture
def one_slot(store: ExecutionStore, redis: RedisClient) -> Iterator[Parts]:
    with dispatching(store, redis, max_workers=1) as parts:
        yield parts


def test_overdue_fires_of_a_schedule_become_one_run_also_when_they_waited_for_a_slot(
    db: DatabaseConnection, make: Make, one_slot: Parts
) -> None:
    schedule_id = make(coalesce=True)
    one_slot.dispatcher.hand_over([fire(schedule_id, seconds) for seconds in (3, 2, 1)])
    one_slot.dispatcher.tick()
    eventually(lambda: len(one_slot.ran) == 1)
    assert rows(db) == [("skipped", "coalesced"), ("skipped", "coalesced"), ("running", None)]


@pytest.mark.parametrize("max_workers", [1, 5])
def test_without_coalescing_overdue_fires_run_one_after_the_other_whatever_the_number_of_slots(
    db: DatabaseConnection, make: Make, store: ExecutionStore, redis: RedisClient, max_workers: int
) -> None:
    schedule_id = make(coalesce=False)
    with dispatching(store, redis, max_workers=max_workers) as parts:
        parts.dispatcher.hand_over([fire(schedule_id, seconds) for seconds in (3, 2, 1)])
        for run in (1, 2, 3):
            parts.dispatcher.look_for_pending()
            parts.dispatcher.tick()
            parts.dispatcher.tick()
            eventually(lambda: len(parts.ran) == run and parts.finisher.unwritten == 1)  # noqa: B023
            parts.finisher.tick()
    assert rows(db) == [("success", None)] * 3


def test_no_more_is_claimed_ahead_than_there_is_room_for(
    db: DatabaseConnection, make: Make, redis: RedisClient, one_slot: Parts
) -> None:
    """The more fires are other replicas', the more are looked at at once; that is no reason to claim so many."""
    theirs = [marked_by_another(redis, fire(make())) for _ in range(8)]
    one_slot.gate.clear()
    one_slot.dispatcher.hand_over([*theirs, *(fire(make()) for _ in range(8))])
    for _ in range(3):
        one_slot.dispatcher.tick()
    assert len(rows(db)) == 1
    one_slot.gate.set()

    def all_ran() -> bool:
        one_slot.dispatcher.tick()
        one_slot.finisher.tick()
        return len(one_slot.ran) == 16

    eventually(all_ran)
    assert rows(db) == [("success", None)] * 16


@dataclass
class Neighbour:
    """Another replica, as its last heartbeat describes it."""

    free_slots: int
    abilities: frozenset[str] = frozenset({"job:noop"})
    queues: frozenset[str] = frozenset({"default"})


@contextmanager
def full_beside(
    store: ExecutionStore, redis: RedisClient, make: Make, *others: Neighbour, fleet: Collection[str] = ()
) -> Iterator[Parts]:
    """A replica whose one worker has been busy for a while."""
    own, shares = member("own"), shares_of("own")
    shares.update([own, *(member(f"other-{n}", **vars(other)) for n, other in enumerate(others))], can_tell=True, now=0)
    with dispatching(store, redis, max_workers=1, shares=shares, fleet_queues=fleet) as parts:
        parts.gate.clear()
        parts.dispatcher.hand_over([fire(make())])
        parts.dispatcher.tick()
        yield parts


def wait_for_room(parts: Parts, fires: Sequence[Fire]) -> None:
    """For longer than a second, in which nothing is given away."""
    parts.dispatcher.hand_over(fires)
    parts.dispatcher.tick()
    assert (parts.dispatcher.queued, parts.dispatcher.given_away) == (len(fires), 0)
    eventually(lambda: time.monotonic() > (parts.dispatcher.threads.full_since or math.inf) + NO_ROOM_SECONDS)
    for _ in range(3):
        parts.dispatcher.tick()


def test_without_room_as_many_fires_are_given_away_as_others_have_free_slots_the_most_urgent_first(
    db: DatabaseConnection, make: Make, store: ExecutionStore, redis: RedisClient
) -> None:
    with full_beside(store, redis, make, Neighbour(2), Neighbour(1)) as parts:
        urgent = {make(): priority for priority in (5, 6, 7)}
        due = [replace(fire(each), priority=priority) for each, priority in urgent.items()]
        wait_for_room(parts, [*(fire(make()) for _ in range(3)), *due])
        assert set(rows(db, "schedule_id, instance_id, status")) >= {(each, None, "pending") for each in urgent}
        assert (len(rows(db)), parts.dispatcher.queued, parts.dispatcher.given_away) == (4, 3, 3)


def test_while_all_are_full_not_one_row_is_given_away(
    db: DatabaseConnection, make: Make, store: ExecutionStore, redis: RedisClient
) -> None:
    with full_beside(store, redis, make, Neighbour(0), Neighbour(0)) as parts:
        wait_for_room(parts, [fire(make()) for _ in range(5)])
        assert (rows(db, "status"), parts.dispatcher.queued) == ([("running",)], 5)


def test_while_all_are_full_fires_of_the_fleet_become_rows_however_many_others_are_more_urgent(
    db: DatabaseConnection, make: Make, store: ExecutionStore, redis: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers may idle meanwhile, and a row of theirs takes no place here."""
    monkeypatch.setattr("services.engine.dispatcher.MAX_BATCH", 2)
    with full_beside(store, redis, make, Neighbour(0), fleet=["scan"]) as parts:
        theirs = {make(queue="scan", priority=-1) for _ in range(2)}
        due = [replace(fire(each), priority=-1) for each in theirs]
        wait_for_room(parts, [*(fire(make()) for _ in range(5)), *due])

        def are_given() -> bool:
            parts.dispatcher.threads.give_at = 0.0
            parts.dispatcher.tick()
            return parts.dispatcher.given_away == 2

        eventually(are_given)
        assert {row[0] for row in rows(db, "schedule_id, status") if row[1] == "pending"} == theirs
        assert parts.dispatcher.queued == 5


def test_fires_of_the_fleet_take_none_of_the_room_of_other_replicas(
    db: DatabaseConnection, make: Make, store: ExecutionStore, redis: RedisClient
) -> None:
    with full_beside(store, redis, make, Neighbour(1), fleet=["scan"]) as parts:
        wait_for_room(parts, [*(fire(make(queue="scan")) for _ in range(3)), *(fire(make()) for _ in range(2))])
        assert (parts.dispatcher.queued, parts.dispatcher.given_away) == (1, 4)


def test_a_fire_that_those_with_room_cannot_run_stays(
    db: DatabaseConnection, make: Make, store: ExecutionStore, redis: RedisClient
) -> None:
    elsewhere = Neighbour(9, queues=frozenset({"browser"}))
    with full_beside(store, redis, make, elsewhere, Neighbour(9, abilities=frozenset())) as parts:
        browser = make(queue="browser", priority=-1)
        wait_for_room(parts, [*(fire(make()) for _ in range(4)), fire(browser)])
        assert [row for row in rows(db, "schedule_id, status") if row[1] == "pending"] == [(browser, "pending")]
        assert parts.dispatcher.queued == 4


def test_only_whole_schedules_are_given_away(
    db: DatabaseConnection, make: Make, store: ExecutionStore, redis: RedisClient
) -> None:
    with full_beside(store, redis, make, Neighbour(2)) as parts:
        long, short = make(coalesce=False), make(coalesce=False)
        fires = [replace(fire(long, seconds), priority=1) for seconds in (3, 2, 1)]
        wait_for_room(parts, [*fires, *(fire(short, seconds) for seconds in (2, 1))])
        pending = [row for row in rows(db, "schedule_id, status") if row[1] == "pending"]
        assert pending == [(short, "pending")] * 2


def test_without_a_free_slot_nobody_looks_again_before_one_is_free(make: Make, one_slot: Parts) -> None:
    """Else a replica with nothing to do but wait would do so as a busy loop."""
    one_slot.gate.clear()
    one_slot.dispatcher.hand_over([fire(make()), fire(make())])
    one_slot.dispatcher.tick()
    eventually(lambda: len(one_slot.ran) == 1)
    assert one_slot.dispatcher.tick() == PENDING_POLL_SECONDS


@pytest.mark.parametrize(("wish", "seconds"), [(None, 10), (7200.0, 7200), (1e9, 86_400), (float("nan"), 10)])
def test_a_failure_is_tried_again_after_its_backoff_or_as_late_as_its_handler_wishes_within_a_day(
    db: DatabaseConnection, make: Make, store: ExecutionStore, parts: Parts, wish: float | None, seconds: int
) -> None:
    (claim,) = store.claim([fire(make(max_retries=1, retry_backoff_seconds=10))], start=1).started
    parts.held.accept([claim], [])
    context = a_context(execution_id=claim.execution_id, fencing_token=claim.fencing_token)
    parts.dispatcher.done(context, failed(JobFailed("later", retry_after_seconds=wish)), 0.1)
    parts.finisher.tick()
    first, second = rows(db, "attempt, status, extract(epoch FROM due_at - created_at)::float8")
    assert (first[:2], second[:2]) == ((1, "failed"), (2, "pending"))
    assert second[2] == pytest.approx(seconds, rel=0.11)


def test_an_attempt_after_the_last_one_is_not_made(
    db: DatabaseConnection, make: Make, store: ExecutionStore, parts: Parts
) -> None:
    (claim,) = store.claim([fire(make(max_retries=0))], start=1).started
    parts.held.accept([claim], [])
    context = a_context(execution_id=claim.execution_id, fencing_token=claim.fencing_token)
    parts.dispatcher.done(context, failed(JobFailed("no")), 0.1)
    parts.finisher.tick()
    assert rows(db, "attempt, status") == [(1, "failed")]


def test_the_most_urgent_of_the_fires_that_wait_gets_the_free_slot(
    db: DatabaseConnection, make: Make, one_slot: Parts
) -> None:
    usual, urgent = make(), make(priority=5)
    one_slot.dispatcher.hand_over([fire(usual, 2), replace(fire(urgent, 1), priority=5)])
    one_slot.dispatcher.tick()
    assert rows(db, "schedule_id") == [(urgent,)]


def test_what_was_started_ahead_of_a_worker_that_does_not_come_goes_back(
    db: DatabaseConnection, make: Make, one_slot: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After quick jobs many are started at once; if they are slow ones, others may run them meanwhile."""
    monkeypatch.setattr("services.engine.dispatcher.HAND_BACK_SECONDS", 0.5)
    one_slot.dispatcher.hand_over([fire(make(), 2)])
    one_slot.dispatcher.tick()
    eventually(lambda: one_slot.finisher.unwritten == 1)
    one_slot.finisher.tick()
    one_slot.gate.clear()
    one_slot.dispatcher.hand_over([fire(make()) for _ in range(4)])
    one_slot.dispatcher.tick()
    assert rows(db, "status") == [("success",), *[("running",)] * 4]

    def went_back() -> bool:
        one_slot.dispatcher.tick()
        return sorted(rows(db, "status")) == [("pending",)] * 3 + [("running",), ("success",)]

    eventually(went_back)
    one_slot.dispatcher.look_for_pending()
    assert went_back(), "nor is it claimed again before the pool moves"
    assert len(one_slot.held) == 1
    one_slot.gate.set()
    eventually(lambda: one_slot.finisher.unwritten == 1)
    one_slot.dispatcher.look_for_pending()
    one_slot.dispatcher.tick()
    eventually(lambda: len(one_slot.ran) >= 3)


def test_fires_that_were_lost_shortly_after_each_other_are_verified_by_one_statement(
    make: Make, store: ExecutionStore, redis: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.engine.dispatcher.TOGETHER_SECONDS", 60)
    theirs = [fire(make()), fire(make()), fire(make())]
    other = Coordinator(redis, owner="another replica", lease_seconds=60, mark_seconds=60)
    other.mark_fires([each.key for each in theirs])
    assert len(store.claim(theirs).claims) == 3
    asked: list[int] = []
    verify = store.without_row

    def counted(fires: Sequence[Fire]) -> list[Fire]:
        asked.append(len(fires))
        return verify(fires)

    monkeypatch.setattr(store, "without_row", counted)
    with dispatching(store, redis, verify_after_seconds=1) as parts:
        for each in theirs:
            parts.dispatcher.hand_over([each])
            parts.dispatcher.tick()
            time.sleep(0.25)  # each alone would be verified a quarter of a second after the one before
        eventually(lambda: parts.dispatcher.tick() is not None and bool(asked))
    assert asked == [3]


def test_a_place_that_is_freed_just_before_a_poll_is_taken_in_it(
    db: DatabaseConnection, make: Make, store: ExecutionStore, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poll looks at one key at a time, by turns, and it is another's turn."""
    for name in ("PENDING_POLL_SECONDS", "BUSY_POLL_SECONDS", "PATIENCE_SECONDS"):
        monkeypatch.setattr(f"services.engine.dispatcher.{name}", 3600.0)
    one_key = limits_sql.LIMIT_LANES.replace(f"r.n < {limits_sql.MOST_KEYS}", "r.n < 1")
    monkeypatch.setattr("services.ledger.waiting.LIMIT_LANES", one_key)
    monkeypatch.setattr("services.ledger.waiting.MOST_KEYS", 1)
    change(db, "INSERT INTO limits (name, max_running) VALUES ('a', 0), ('b', 0), ('z', 1)")
    for key in ("a", "b", "z", "z"):
        parts.dispatcher.hand_over([fire(make(limit_keys=[key]))])
    parts.dispatcher.tick()
    eventually(lambda: parts.held.in_pool == 0)
    parts.finisher.tick()  # says that a place of z is free
    parts.dispatcher.look_for_pending()
    parts.dispatcher.tick()
    eventually(lambda: len(parts.ran) == 2)


def test_a_place_that_is_freed_is_taken_at_once(
    db: DatabaseConnection, make: Make, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No poll finds it here: each comes after an hour."""
    for name in ("PENDING_POLL_SECONDS", "BUSY_POLL_SECONDS", "PATIENCE_SECONDS"):
        monkeypatch.setattr(f"services.engine.dispatcher.{name}", 3600.0)
    change(db, "INSERT INTO limits (name, max_running) VALUES ('customer', 1)")
    parts.dispatcher.hand_over([fire(make(limit_keys=["customer"])) for _ in range(3)])
    for number in (1, 2, 3):
        parts.dispatcher.tick()
        eventually(lambda: parts.held.in_pool == 0)
        assert len(parts.ran) == number
        parts.finisher.tick()
