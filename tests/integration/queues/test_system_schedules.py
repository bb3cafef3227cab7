"""Every queue has its schedule: inserted once, following the settings until somebody edits it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from config import Settings
from database.connection import DatabaseConnection
from services.queues.system_schedules import install_system_schedules
from services.schedule_repository import ScheduleRepository
from services.schedules.batch import ScheduleRecord
from services.workflows import queues
from services.workflows.domain_extraction import DOMAIN_EXTRACTION
from tests.support.places import query

JOB_ID = "process_domain_extraction_queue"


def install(db: DatabaseConnection, **settings: Any) -> None:
    install_system_schedules(db, Settings(**settings))


def schedule(repository: ScheduleRepository) -> ScheduleRecord:
    return repository.find_schedule(JOB_ID)


def test_a_queue_gets_an_ordinary_schedule_from_the_settings(
    db: DatabaseConnection, repository: ScheduleRepository
) -> None:
    install(db)
    record = schedule(repository)
    assert record.schedule_id == DOMAIN_EXTRACTION.schedule_id
    assert (record.source, record.job_type, record.job_config) == (
        "system", "workflow", {"queue": "domain_extraction"},
    )  # fmt: skip
    assert (record.frequency, record.time_config) == ("interval", {"minutes": 2})
    assert (record.max_instances, record.misfire_grace_seconds, record.coalesce) == (1, 60, True)
    assert record.domain == "WF3 - Domain Extraction Queue Processor"
    assert record.timeout_seconds == 50 + 60 + 60


def test_a_second_start_changes_nothing(db: DatabaseConnection, repository: ScheduleRepository) -> None:
    install(db)
    before = schedule(repository)
    install(db)
    assert schedule(repository) == before


def test_replicas_that_start_together_insert_each_one_once(
    db: DatabaseConnection, repository: ScheduleRepository
) -> None:
    together = threading.Barrier(4)

    def start(_: int) -> None:
        together.wait()
        install(db)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, range(4)))
    assert repository.count_schedules() == len(queues.all())
    assert len(repository.get_changes(DOMAIN_EXTRACTION.schedule_id)) == 1


def test_what_nobody_has_touched_follows_the_settings(db: DatabaseConnection, repository: ScheduleRepository) -> None:
    install(db)
    install(db, domain_extraction_scheduler_interval_minutes=7, domain_extraction_scheduler_max_instances=4)
    record = schedule(repository)
    assert (record.time_config, record.max_instances) == ({"minutes": 7}, 4)


def test_the_timeout_leaves_room_for_the_numbers_that_the_schedule_says(
    db: DatabaseConnection, repository: ScheduleRepository
) -> None:
    """A carried-over number stays where it is when its variable goes: the timeout must not go without it."""
    install(db)
    with db.transaction() as connection:
        connection.exec_driver_sql("SELECT set_config('scheduler.actor', 'system:workflows', true)")
        connection.exec_driver_sql(
            """UPDATE schedules SET job_config = job_config || '{"item_timeout_seconds": 600}'"""
        )
    install(db)
    record = schedule(repository)
    assert (record.job_config["item_timeout_seconds"], record.timeout_seconds) == (600, 50 + 600 + 60)


@pytest.mark.parametrize("edit", [{"enabled": False}, {"time_config": {"minutes": 30}}, {"priority": 5}])
def test_what_an_operator_has_edited_or_paused_is_never_overwritten(
    db: DatabaseConnection, repository: ScheduleRepository, edit: dict[str, Any]
) -> None:
    install(db)
    repository.update_schedule(DOMAIN_EXTRACTION.schedule_id, **edit)
    before = schedule(repository)
    install(db, domain_extraction_scheduler_interval_minutes=7)
    assert schedule(repository) == before


def test_an_edit_by_plain_sql_counts_too(db: DatabaseConnection, repository: ScheduleRepository) -> None:
    install(db)
    query(db, "UPDATE schedules SET enabled = false")
    install(db, domain_extraction_scheduler_interval_minutes=7)
    record = schedule(repository)
    assert (record.enabled, record.time_config) == (False, {"minutes": 2})


def test_a_name_that_is_taken_is_left_to_its_owner_and_said(
    db: DatabaseConnection, repository: ScheduleRepository, caplog: pytest.LogCaptureFixture
) -> None:
    repository.create_schedule(
        domain="mine", name=JOB_ID, job_type="http_request", job_config={"url": "https://example.com"},
        frequency="hourly", time_config={"minute": 0},
    )  # fmt: skip
    install(db)
    assert schedule(repository).domain == "mine"
    assert "its name is used by another schedule" in caplog.text
