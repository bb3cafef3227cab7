"""Job types that some replicas do not know: left to those that do, never failed for good, and told before it hurts."""

from collections.abc import Collection
from uuid import uuid4

import pytest
from sqlalchemy import text

from database.connection import DatabaseConnection
from database.models import Cause
from services.insight.overview import Overview, Trouble
from services.insight.unhandled_jobs import UnhandledJobs, unhandled_jobs
from services.job_history import JobHistory
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Decision, Owner
from services.ledger.needs import Abilities
from services.ledger.waiting import TakeReport
from tests.support.executions import POLICY, Make, fire, rows, settle

OTHERS = frozenset({"report"})
LONG_AGO = 400  # seconds; beyond the grace of POLICY


def store_that_knows(db: DatabaseConnection, job_types: Collection[str] = OTHERS) -> ExecutionStore:
    return ExecutionStore(db, Owner("replica", uuid4()), POLICY, 86_400, abilities=Abilities(lambda: job_types))


def make_late(db: DatabaseConnection) -> None:
    with db.transaction() as connection:
        connection.execute(text(f"UPDATE job_executions SET due_at = due_at - interval '{LONG_AGO} seconds'"))


def heartbeat(db: DatabaseConnection, name: str, *job_types: str) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO scheduler_instances (instance_id, incarnation, facts)
               VALUES (%s, gen_random_uuid(), jsonb_build_object('job_types', to_jsonb(%s::text[])))""",
            (name, list(job_types)),
        )


def test_a_fire_waits_for_a_replica_that_knows_its_job(db: DatabaseConnection, make: Make) -> None:
    ours, theirs = store_that_knows(db), store_that_knows(db, {"noop"})
    due = fire(make())
    assert ours.claim([due], start=1).decisions == {due: Decision.LATER}
    assert rows(db, "status, reason, instance_id") == [("pending", None, None)]
    assert [ours.waiting.take(10) for _ in range(3)] == [TakeReport()] * 3  # nothing to be busy with
    (claim,) = theirs.waiting.take(10).claims
    assert (claim.scheduled_for, claim.attempt) == (due.scheduled_for, 1)


def test_the_next_run_moves_on_although_nobody_has_begun(db: DatabaseConnection, make: Make) -> None:
    due = fire(make())
    store_that_knows(db).claim([due])
    with db.transaction() as connection:
        assert connection.scalar(text("SELECT next_run FROM schedules")) > due.scheduled_for


def test_overdue_fires_are_coalesced_all_the_same(db: DatabaseConnection, make: Make) -> None:
    schedule = make()
    store_that_knows(db).claim([fire(schedule, seconds_ago=3), fire(schedule, seconds_ago=2)])
    assert rows(db) == [("skipped", "coalesced"), ("pending", None)]


def alive(db: DatabaseConnection, store: ExecutionStore, *abilities: str) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO scheduler_instances (instance_id, incarnation, alive_since, abilities, queues)
               VALUES (%s, %s, now() - interval '1 hour', %s, '{default}')""",
            (*store._owner.as_values().values(), list(abilities)),
        )


def test_when_its_grace_is_over_it_is_missed_with_what_nobody_was_able_to_do(
    db: DatabaseConnection, make: Make
) -> None:
    ours = store_that_knows(db)
    alive(db, ours, "job:report")
    ours.claim([fire(make())])
    make_late(db)
    settle(db, ours)
    assert rows(db, "status, reason, error_message") == [
        ("missed", "nobody_able", "no living replica can run it; it needs job:noop")
    ]


def test_while_a_living_replica_is_able_it_was_only_late(db: DatabaseConnection, make: Make) -> None:
    ours, theirs = store_that_knows(db), store_that_knows(db, {"noop"})
    alive(db, ours, "job:report")
    alive(db, theirs, "job:noop")
    ours.claim([fire(make())])
    make_late(db)
    settle(db, ours)
    assert rows(db) == [("missed", "misfire")]


def test_a_replica_that_was_away_itself_does_not_say_that_nobody_is_able(db: DatabaseConnection, make: Make) -> None:
    ours = store_that_knows(db)
    alive(db, ours, "job:report")
    with db.transaction() as connection:
        connection.execute(text("UPDATE scheduler_instances SET alive_since = now()"))
    ours.claim([fire(make())])
    make_late(db)
    settle(db, ours)
    assert rows(db) == [("missed", "misfire")]


def test_a_replica_of_the_version_before_may_be_able(db: DatabaseConnection, make: Make) -> None:
    ours = store_that_knows(db)
    alive(db, ours, "job:report")
    heartbeat(db, "old", "noop")
    ours.claim([fire(make())])
    make_late(db)
    settle(db, ours)
    assert rows(db) == [("missed", "misfire")]


def test_a_replica_that_knows_it_says_that_it_was_late(db: DatabaseConnection, make: Make) -> None:
    store_that_knows(db).claim([fire(make())])
    make_late(db)
    store_that_knows(db, {"noop"}).waiting.take(10)
    assert rows(db) == [("missed", "misfire")]


@pytest.mark.parametrize(
    ("cause", "late", "ends"),
    [
        (Cause.MANUAL, False, ("pending", None)),
        (Cause.MANUAL, True, ("missed", "nobody_able")),
        (Cause.CATCHUP, True, ("pending", None)),
        (Cause.BACKFILL, True, ("pending", None)),
    ],
)
def test_other_causes_wait_as_long_as_they_may(
    db: DatabaseConnection, make: Make, cause: Cause, late: bool, ends: tuple[str, str | None]
) -> None:
    JobHistory(db).request_run(make(), "anna")
    with db.transaction() as connection:
        connection.execute(text("UPDATE job_executions SET cause = :cause"), {"cause": cause.value})
    if late:
        make_late(db)
    ours = store_that_knows(db)
    alive(db, ours, "job:report")
    settle(db, ours)
    assert ours.waiting.take(10).claims == []
    assert rows(db) == [ends]


def test_a_claimed_execution_goes_back_when_its_schedule_changes_to_an_unknown_job(
    db: DatabaseConnection, make: Make
) -> None:
    ours = store_that_knows(db, {"noop"})
    (claim,) = ours.claim([fire(make())]).claims
    with db.transaction() as connection:
        connection.execute(text("UPDATE schedules SET job_type = 'letter'"))
    assert ours.start([claim]).started == []
    assert ours.look_again(claim) is None
    assert rows(db, "status, reason, instance_id") == [("pending", None, None)]


def test_what_a_live_replica_does_not_know_is_told_with_who_does(db: DatabaseConnection, make: Make) -> None:
    make(), make(), make(job_type="noop", enabled=False)
    heartbeat(db, "new", "noop", "report")
    heartbeat(db, "old", "report")
    assert unhandled_jobs(db, 15) == [
        UnhandledJobs(job_type="noop", schedules=2, known_to=("new",), unknown_to=("old",), schedule_id=None)
    ]
    assert _troubles(db) == [
        (Trouble.UNHANDLED, "job type noop", "2 schedules use it; old has no handler for it, new has one")
    ]


def test_what_nobody_knows_is_told_as_such(db: DatabaseConnection, make: Make) -> None:
    schedule = make()
    heartbeat(db, "one", "report")
    (found,) = unhandled_jobs(db, 15)
    assert (found.known_to, found.unknown_to, found.schedule_id) == ((), ("one",), schedule)
    assert _troubles(db) == [
        (Trouble.UNHANDLED, "job type noop", "1 schedule uses it and cannot run: no live replica has a handler for it")
    ]


def test_what_all_know_and_what_dead_ones_do_not_is_no_trouble(db: DatabaseConnection, make: Make) -> None:
    make()
    heartbeat(db, "one", "noop")
    heartbeat(db, "dead")
    with db.transaction() as connection:
        connection.execute(
            text("UPDATE scheduler_instances SET heartbeat_at = now() - interval '1 day' WHERE instance_id = 'dead'")
        )
    assert unhandled_jobs(db, 15) == []


def _troubles(db: DatabaseConnection) -> list[tuple[Trouble, str, str]]:
    found = Overview(db).attention()
    return [(item.trouble, item.label, item.words) for item in found if item.trouble is Trouble.UNHANDLED]
