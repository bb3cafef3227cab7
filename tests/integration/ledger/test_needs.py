"""What a job needs besides its handler: computed when it is claimed, and only run by who has it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from database.connection import DatabaseConnection
from services.insight.overview import Overview, Trouble
from services.insight.unhandled_jobs import count_unmet, unmet_needs
from services.job_history import JobHistory
from services.jobs import ExecutionContext, JobRegistry
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Decision
from services.ledger.needs import Abilities
from services.ledger.waiting import TakeReport
from tests.support.executions import Make, fire, rows, settle, settling_of, store_of


def registry() -> JobRegistry:
    """`noop` needs what its configuration or its scan profile names."""
    found = JobRegistry()

    def labels(job_config: Mapping[str, Any], profile: Mapping[str, Any] | None) -> list[str]:
        return [*job_config.get("labels", []), *(profile or {}).get("labels", [])]

    @found.job("noop", labels=labels)
    def _noop(context: ExecutionContext, config: dict[str, Any]) -> None:
        pass

    return found


def store_with(
    db: DatabaseConnection, *labels: str, name: str = "replica", queues: tuple[str, ...] = ("default",)
) -> ExecutionStore:
    return store_of(db, name, Abilities.of_registry(registry(), labels, queues))


def alive(db: DatabaseConnection, store: ExecutionStore, *, elder: bool = False) -> None:
    abilities = store._abilities
    said = (None, None, None) if elder else (abilities.words(), abilities.queues, 0)
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO scheduler_instances (instance_id, incarnation, alive_since, abilities, queues, free_slots)
               VALUES (%s, %s, now() - interval '1 hour', %s, %s, %s)""",
            (*store._owner.as_values().values(), *said),
        )


@contextmanager
def listening(db: DatabaseConnection) -> Iterator[Callable[[], int]]:
    """How many times the replicas were told to look for waiting rows, since the last time it was asked."""
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("LISTEN executions_pending")
        heard: Any = connection.connection.driver_connection

        def count() -> int:
            for _ in range(2):  # a session hears what was committed before it asked, at the latest with its next answer
                heard.cursor().execute("SELECT")
            found = len(heard.notifies)
            heard.notifies.clear()
            return found

        yield count


def change(db: DatabaseConnection, what: str) -> None:
    with db.transaction() as connection:
        connection.execute(text(f"UPDATE schedules SET {what}"))


def set_profile(db: DatabaseConnection, schedule_id: UUID, config: str) -> UUID:
    profile_id = uuid4()
    with db.transaction() as connection:
        connection.exec_driver_sql(
            "INSERT INTO scan_profiles (profile_id, name, config) VALUES (%s, 'p', %s)", (profile_id, config)
        )
        connection.exec_driver_sql(
            "UPDATE schedules SET profile_id = %s WHERE schedule_id = %s", (profile_id, schedule_id)
        )
    return profile_id


def test_a_fire_waits_for_a_replica_that_has_what_it_needs(db: DatabaseConnection, make: Make) -> None:
    plain, able = store_with(db), store_with(db, "gpu", name="able")
    due = fire(make(job_config={"labels": ["gpu"]}))
    assert plain.claim([due], start=1).decisions == {due: Decision.LATER}
    assert plain.waiting.take(10) == TakeReport()
    assert rows(db, "status, needs") == [("pending", ["gpu", "job:noop"])]
    assert plain.waiting.lanes() == [], "it does not look at it again"
    assert len(able.waiting.take(10, start=1).started) == 1


def test_a_profile_that_changes_while_the_row_waits_counts_when_it_is_taken(db: DatabaseConnection, make: Make) -> None:
    plain, schedule_id = store_with(db), make()
    profile_id = set_profile(db, schedule_id, "{}")
    plain.hand_back(plain.claim([fire(schedule_id)]).claims)
    settle(db, plain)
    assert rows(db, "needs") == [(["job:noop"],)]
    with db.transaction() as connection:
        connection.exec_driver_sql(
            'UPDATE scan_profiles SET config = \'{"labels": ["gpu"]}\' WHERE profile_id = %s', (profile_id,)
        )
    assert plain.waiting.take(10) == TakeReport()
    assert rows(db, "status, needs") == [("pending", ["gpu", "job:noop"])]


def test_a_claim_that_changes_into_what_this_replica_lacks_goes_back(db: DatabaseConnection, make: Make) -> None:
    plain = store_with(db)
    (claim,) = plain.claim([fire(make())]).claims
    with db.transaction() as connection:
        connection.execute(text('UPDATE schedules SET job_config = \'{"labels"\\: ["gpu"]}\''))
    assert plain.start([claim]).started == []
    assert plain.look_again(claim) is None
    assert rows(db) == [("pending", None)]


def test_while_an_older_replica_lives_nothing_is_held_for_labels(db: DatabaseConnection, make: Make) -> None:
    """It lists no abilities and would run it all the same."""
    plain, old = store_with(db), store_with(db, name="old")
    alive(db, plain)
    alive(db, old, elder=True)
    plain.waiting.take(10)
    assert len(plain.claim([fire(make(job_config={"labels": ["gpu"]}))]).claims) == 1
    with db.transaction() as connection:
        connection.execute(text("DELETE FROM scheduler_instances WHERE instance_id = 'old'"))
    plain.waiting.take(10)
    due = fire(make(job_config={"labels": ["gpu"]}))
    assert plain.claim([due]).decisions == {due: Decision.LATER}


def test_what_waited_for_a_label_is_taken_once_an_older_replica_lives(db: DatabaseConnection, make: Make) -> None:
    plain, old = store_with(db), store_with(db, name="old")
    plain.claim([fire(make(job_config={"labels": ["gpu"]}))])
    settle(db, plain)
    alive(db, old, elder=True)
    plain.waiting.lanes()
    assert len(plain.waiting.take(10).claims) == 1


def test_what_no_living_replica_has_is_told_with_how_many_wait(db: DatabaseConnection, make: Make) -> None:
    plain, schedule_id = store_with(db), make(job_config={"labels": ["gpu"]})
    alive(db, plain)
    plain.claim([fire(schedule_id)])
    settle(db, plain)
    (found,) = unmet_needs(db, 15)
    assert found.words == "1 execution waits: no live replica has gpu"
    attention = [each for each in Overview(db).attention() if each.trouble is Trouble.UNABLE]
    assert [(each.label, each.schedule_id) for each in attention] == [("gpu", schedule_id)]
    alive(db, store_with(db, "gpu", name="able"))
    assert unmet_needs(db, 15) == []


@pytest.mark.parametrize("broken", ['{"labels": 5}', '{"labels": [5]}'])
def test_a_configuration_whose_needs_cannot_be_told_needs_only_its_handler(
    db: DatabaseConnection, make: Make, broken: str
) -> None:
    """Which says what is wrong with it."""
    schedule_id = make()
    set_profile(db, schedule_id, broken)
    assert len(store_with(db).claim([fire(schedule_id)]).claims) == 1


# --- what a schedule requires itself ---


def test_what_a_schedule_requires_is_needed_besides_the_labels_of_its_job(db: DatabaseConnection, make: Make) -> None:
    plain = store_with(db, "gpu")
    due = fire(make(job_config={"labels": ["gpu"]}, requires=["eu"]))
    assert plain.claim([due]).decisions == {due: Decision.LATER}
    plain.waiting.take(10)
    assert rows(db, "status, needs") == [("pending", ["eu", "gpu", "job:noop"])]
    assert len(store_with(db, "eu", "gpu", name="able").waiting.take(10).claims) == 1


def test_requirements_that_are_dropped_let_a_waiting_row_run(db: DatabaseConnection, make: Make) -> None:
    plain = store_with(db)
    plain.claim([fire(make(requires=["eu"]))])
    settle(db, plain)
    assert plain.waiting.lanes() == []
    with closing(settling_of(db, plain)) as settling:
        settling.settle_changed()
        change(db, "requires = '{}'")
        settling.settle_changed()
    assert len(plain.waiting.take(10).claims) == 1


# --- queues ---


def test_a_fire_waits_for_a_replica_that_serves_its_queue(db: DatabaseConnection, make: Make) -> None:
    plain, server = store_with(db), store_with(db, name="server", queues=("browser", "default"))
    due = fire(make(queue="browser"))
    assert plain.claim([due], start=1).decisions == {due: Decision.LATER}
    assert plain.waiting.take(10) == TakeReport()
    assert rows(db, "status, queue") == [("pending", "browser")]
    assert plain.waiting.lanes() == [], "it does not look at it again"
    assert len(server.waiting.take(10, start=1).started) == 1


def test_a_replica_that_does_not_serve_the_default_queue_leaves_it_alone(db: DatabaseConnection, make: Make) -> None:
    only = store_with(db, queues=("browser",))
    assert only.claim([fire(make())]).claims == []
    assert len(only.claim([fire(make(queue="browser"))]).claims) == 1


def test_a_change_of_the_queue_moves_a_waiting_row_and_wakes_the_others(db: DatabaseConnection, make: Make) -> None:
    plain, server = store_with(db), store_with(db, name="server", queues=("browser",))
    plain.claim([fire(make(queue="nowhere"))])
    settle(db, plain)
    assert server.waiting.lanes() == []
    with closing(settling_of(db, plain)) as settling, listening(db) as heard:
        settling.settle_changed()
        assert heard() == 0
        change(db, "queue = 'browser'")
        settling.settle_changed()
        assert heard() == 1
    assert rows(db, "queue") == [("browser",)]
    assert plain.waiting.take(10) == TakeReport()
    assert len(server.waiting.take(10).claims) == 1


def test_a_row_whose_schedule_has_left_the_queue_is_not_taken_by_its_old_copy(
    db: DatabaseConnection, make: Make
) -> None:
    server = store_with(db, queues=("browser",))
    store_with(db, name="other").claim([fire(make(queue="browser"))])
    settle(db, server)
    change(db, "queue = NULL")
    assert server.waiting.take(10) == TakeReport()
    assert rows(db, "status, queue") == [("pending", "default")]


def test_a_claim_whose_schedule_leaves_the_queue_goes_back(db: DatabaseConnection, make: Make) -> None:
    plain = store_with(db)
    (claim,) = plain.claim([fire(make())]).claims
    change(db, "queue = 'browser'")
    assert plain.start([claim]).started == []
    assert plain.look_again(claim) is None
    assert rows(db) == [("pending", None)]


def test_while_an_older_replica_lives_every_queue_is_served(db: DatabaseConnection, make: Make) -> None:
    """It knows of no queues and would run it all the same."""
    plain, old = store_with(db), store_with(db, name="old")
    for queue in ("browser", "night"):
        plain.claim([fire(make(queue=queue))])
    settle(db, plain)
    alive(db, old, elder=True)
    assert plain.waiting.lanes() == []
    assert [lane.queue for lane in plain.waiting.lanes()] == ["browser", "night"]
    assert len(plain.waiting.take(10).claims) == 2
    assert len(plain.claim([fire(make(queue="browser"))]).claims) == 1


def test_a_queue_that_nobody_serves_ends_its_rows_after_their_grace(db: DatabaseConnection, make: Make) -> None:
    plain = store_with(db)
    alive(db, plain)
    plain.claim([fire(make(queue="browser"))])
    with db.transaction() as connection:
        connection.execute(text("UPDATE job_executions SET due_at = now() - interval '1 hour'"))
    settle(db, plain)
    said = "no living replica can run it; it needs queue:browser, job:noop"
    assert rows(db, "status, reason, error_message") == [("missed", "nobody_able", said)]


def test_a_row_that_nobody_can_run_ends_soon_after_a_look_that_could_not_tell(
    db: DatabaseConnection, make: Make
) -> None:
    """A settler that has just started cannot tell who is dead: it looks again after a heartbeat timeout."""
    plain = store_with(db)
    JobHistory(db).request_run(make(queue="browser"), actor="test")
    with db.transaction() as connection:
        connection.execute(text("UPDATE job_executions SET due_at = now() - interval '1 hour'"))
    settle(db, plain)
    assert rows(db, "status, settle_at < now() + interval '20 seconds'") == [("pending", True)]
    alive(db, plain)
    settle(db, plain)
    assert rows(db) == [("missed", "nobody_able")]


def test_a_queue_that_nobody_serves_is_told_with_how_many_wait(db: DatabaseConnection, make: Make) -> None:
    plain = store_with(db)
    alive(db, plain)
    plain.claim([fire(make(queue="browser"))])
    settle(db, plain)
    (found,) = unmet_needs(db, 15)
    assert found.words == "1 execution waits: no live replica has queue:browser"
    attention = [each for each in Overview(db).attention() if each.trouble is Trouble.UNABLE]
    assert [each.label for each in attention] == ["queue:browser"]
    alive(db, store_with(db, name="server", queues=("browser",)))
    assert unmet_needs(db, 15) == []


def test_also_the_default_queue_is_told_when_nobody_serves_it(db: DatabaseConnection, make: Make) -> None:
    only = store_with(db, queues=("browser",))
    only.claim([fire(make())])
    settle(db, only)
    assert unmet_needs(db, 15) == [], "nothing lives: that is another trouble"
    alive(db, only)
    assert [each.needs for each in unmet_needs(db, 15)] == [("queue:default", "job:noop")]


def test_the_metric_also_counts_what_waits_for_a_handler(db: DatabaseConnection, make: Make) -> None:
    plain = store_with(db)
    alive(db, plain)
    theirs = make()
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE schedules SET job_type = 'theirs'")
    plain.claim([fire(theirs), fire(make(queue="browser"))])
    settle(db, plain)
    assert count_unmet(db, 15) == {"job:theirs": 1, "queue:browser, job:noop": 1}
