"""What a job needs besides its handler: computed when it is claimed, and only run by who has it."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from database.connection import DatabaseConnection
from services.insight.overview import Overview, Trouble
from services.insight.unhandled_jobs import unmet_needs
from services.jobs import ExecutionContext, JobRegistry
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Decision
from services.ledger.needs import Abilities
from services.ledger.waiting import TakeReport
from tests.support.executions import Make, fire, rows, settle, store_of


def registry() -> JobRegistry:
    """`noop` needs what its configuration or its scan profile names."""
    found = JobRegistry()

    def labels(job_config: Mapping[str, Any], profile: Mapping[str, Any] | None) -> list[str]:
        return [*job_config.get("labels", []), *(profile or {}).get("labels", [])]

    @found.job("noop", labels=labels)
    def _noop(context: ExecutionContext, config: dict[str, Any]) -> None:
        pass

    return found


def store_with(db: DatabaseConnection, *labels: str, name: str = "replica") -> ExecutionStore:
    return store_of(db, name, Abilities.of_registry(registry(), labels))


def alive(db: DatabaseConnection, store: ExecutionStore, *, elder: bool = False) -> None:
    said = None if elder else store._abilities.words()
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO scheduler_instances (instance_id, incarnation, alive_since, abilities, queues)
               VALUES (%s, %s, now() - interval '1 hour', %s, '{default}')""",
            (*store._owner.as_values().values(), said),
        )


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
    assert found.words == "1 execution waits: no live replica has all of gpu, job:noop"
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
