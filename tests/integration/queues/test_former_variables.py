"""Variables that were settings of the queues in 0.1: used, carried into the schedules, never lost, and said."""

from typing import Any

import pytest

from config import Settings, load_settings
from database.connection import DatabaseConnection
from services.queues.former_variables import former_variable_warnings
from services.queues.system_schedules import install_system_schedules
from services.schedule_repository import ScheduleRepository
from services.workflows.domain_extraction import DOMAIN_EXTRACTION
from services.workflows.replica import ReplicaWorkflows
from tests.support.places import query

VARIABLE = "DOMAIN_EXTRACTION_SCHEDULER_CONCURRENCY"
JOB_ID = DOMAIN_EXTRACTION.job_id
WHERE = f"job_config.concurrency of the schedule {JOB_ID}"
EDIT = f"manage.py schedule edit {JOB_ID} --set job_config.concurrency="


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of an operator who tuned two numbers in 0.1."""
    return with_variables(monkeypatch, CONCURRENCY="7", MAX_ATTEMPTS="9")


def with_variables(monkeypatch: pytest.MonkeyPatch, **numbers: str) -> Settings:
    monkeypatch.setenv("WORKFLOWS_ENABLED", "true")
    for name in ("CONCURRENCY", "MAX_ATTEMPTS"):
        monkeypatch.delenv(f"DOMAIN_EXTRACTION_SCHEDULER_{name}", raising=False)
    for name, value in numbers.items():
        monkeypatch.setenv(f"DOMAIN_EXTRACTION_SCHEDULER_{name}", value)
    return load_settings()


def start(db: DatabaseConnection, settings: Settings) -> ReplicaWorkflows:
    """What a replica does at its start and a moment later."""
    replica = ReplicaWorkflows(settings, db)
    replica.install()
    replica.watch()
    return replica


def job_config(repository: ScheduleRepository) -> dict[str, Any]:
    return dict(repository.find_schedule(JOB_ID).job_config)


def older_replica(db: DatabaseConnection, age: str = "0") -> None:
    query(
        db,
        """INSERT INTO scheduler_instances (instance_id, incarnation, heartbeat_at, facts)
           VALUES ('old', gen_random_uuid(), clock_timestamp() - CAST(:age AS interval), '{"version": "0.1.0"}')""",
        age=age,
    )


def test_what_the_variables_say_is_carried_into_the_schedule(
    db: DatabaseConnection, repository: ScheduleRepository, settings: Settings
) -> None:
    start(db, settings)
    assert job_config(repository) == {"queue": "domain_extraction", "concurrency": 7, "max_attempts": 9}
    assert repository.get_changes(DOMAIN_EXTRACTION.schedule_id)[0].changed_by == "system:workflows"
    assert query(db, "SELECT count(*) FROM schedules WHERE job_config ? 'concurrency'") == [(1,)]


def test_nothing_is_lost_when_the_variables_go(
    db: DatabaseConnection, repository: ScheduleRepository, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(db, settings)
    start(db, with_variables(monkeypatch))
    assert job_config(repository) == {"queue": "domain_extraction", "concurrency": 7, "max_attempts": 9}


def test_a_variable_still_works_until_somebody_edits_the_schedule(
    db: DatabaseConnection, repository: ScheduleRepository, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(db, settings)
    start(db, with_variables(monkeypatch, CONCURRENCY="8"))
    assert job_config(repository)["concurrency"] == 8
    repository.update_schedule(
        DOMAIN_EXTRACTION.schedule_id, job_config={"queue": "domain_extraction", "concurrency": 3}
    )
    start(db, with_variables(monkeypatch, CONCURRENCY="9", MAX_ATTEMPTS="2"))
    assert job_config(repository) == {"queue": "domain_extraction", "concurrency": 3, "max_attempts": 2}


def test_an_edited_schedule_is_edited_also_after_it_got_the_numbers(
    db: DatabaseConnection, repository: ScheduleRepository, settings: Settings
) -> None:
    """Else its interval would follow the settings again."""
    install_system_schedules(db, Settings())
    repository.update_schedule(DOMAIN_EXTRACTION.schedule_id, time_config={"minutes": 30})
    start(db, settings)
    start(db, settings)
    record = repository.find_schedule(JOB_ID)
    assert (record.job_config["concurrency"], record.time_config) == (7, {"minutes": 30})


def test_every_schedule_of_the_queue_gets_them(
    db: DatabaseConnection, repository: ScheduleRepository, settings: Settings
) -> None:
    """Also one that an operator has made: in 0.1 the variables were for all of them."""
    repository.create_schedule(
        domain="mine", job_type="workflow", job_config={"queue": "domain_extraction", "max_attempts": 1},
        frequency="hourly", time_config={"minute": 0},
    )  # fmt: skip
    start(db, settings)
    expected = {"queue": "domain_extraction", "concurrency": 7, "max_attempts": 1}
    assert dict(repository.find_schedule("mine").job_config) == expected


def test_nothing_is_written_while_a_replica_is_live_that_could_not_read_it(
    db: DatabaseConnection, repository: ScheduleRepository, settings: Settings
) -> None:
    older_replica(db)
    replica = start(db, settings)
    replica.watch()
    assert job_config(repository) == {"queue": "domain_extraction"}
    query(db, "DELETE FROM scheduler_instances")
    replica.watch()
    assert job_config(repository)["concurrency"] == 7


@pytest.mark.parametrize(
    "replica",
    ["'1 hour', '{}'", """'0', '{"schema": "0018"}'""", """'0', '{"schema": "0020"}'"""],
    ids=["dead", "of this version", "newer"],
)
def test_a_dead_replica_and_one_that_can_read_it_are_no_obstacle(
    db: DatabaseConnection, repository: ScheduleRepository, settings: Settings, replica: str
) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(
            f"""INSERT INTO scheduler_instances (instance_id, incarnation, heartbeat_at, facts)
                SELECT 'other', gen_random_uuid(), clock_timestamp() - age::interval, facts::jsonb
                FROM (VALUES ({replica})) AS v (age, facts)"""
        )
    start(db, settings)
    assert job_config(repository)["concurrency"] == 7


def test_the_start_says_where_the_number_lives_now(
    db: DatabaseConnection, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    ReplicaWorkflows(settings, db).install()
    said = [record for record in caplog.records if getattr(record, "event", None) == "setting_moved"]
    assert [record.levelname for record in said] == ["WARNING", "WARNING"]
    assert said[0].getMessage() == (
        f"{VARIABLE}=7 is no longer a setting; it moved to {WHERE}; the value is used, and replicas write it "
        f"there once no older replica is live (to do it now: {EDIT}7)"
    )


def test_later_it_says_that_the_variable_can_go_or_has_no_effect(
    db: DatabaseConnection, repository: ScheduleRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = with_variables(monkeypatch, CONCURRENCY="7")
    start(db, settings)
    assert former_variable_warnings(db, settings) == [
        f"{VARIABLE}=7 is no longer a setting: {WHERE} has the value now and takes precedence; remove the variable "
        f"(to change the value: {EDIT}…)"
    ]
    repository.update_schedule(
        DOMAIN_EXTRACTION.schedule_id, job_config={"queue": "domain_extraction", "concurrency": 3}
    )
    assert former_variable_warnings(db, settings) == [
        f"{VARIABLE}=7 has no effect: {WHERE} is 3 and takes precedence; remove the variable "
        f"(to change the value: {EDIT}…)"
    ]


def test_nothing_is_said_where_no_variable_is_set(db: DatabaseConnection) -> None:
    assert former_variable_warnings(db, Settings()) == []
