"""The numbers of a queue's runs live in its schedule: a change of the row is the next run's, and everybody sees it."""

import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from config import Settings
from database.connection import DatabaseConnection
from services.checks.queue_numbers import QueueNumbers
from services.queues.overview import QueueOverview
from services.queues.queue import Queue, always
from services.queues.queue_table import Words
from services.queues.system_schedules import install_system_schedules
from services.schedule_repository import ScheduleRepository
from services.workflows import queues
from services.workflows.deep_scan import DEEP_SCAN
from tests.support.contexts import a_context
from tests.support.places import add_places, places, query, working

NUMBERS = {"concurrency": 3, "run_budget_seconds": 20, "item_timeout_seconds": 600, "max_attempts": 1}


@pytest.fixture
def together() -> Iterator[threading.Barrier]:
    """Three items get by at once, or none."""
    barrier = threading.Barrier(3)
    yield barrier
    barrier.abort()


def says(repository: ScheduleRepository, **numbers: Any) -> None:
    repository.update_schedule(DEEP_SCAN.schedule_id, job_config={"queue": "deep_scan", **numbers})


def deep_scan(work: Any) -> Queue[Any]:
    """The queue of this name and schedule, with work of ours and one item at a time."""
    return Queue(
        name=DEEP_SCAN.name,
        job_id=DEEP_SCAN.job_id,
        display_name="x",
        settings=DEEP_SCAN.settings,
        model=DEEP_SCAN.model,
        words=Words(*(getattr(DEEP_SCAN.words, state) for state in ("queued", "processing", "completed", "failed"))),
        status_field_name=DEEP_SCAN.status_field_name,
        error_field_name=DEEP_SCAN.error_field_name,
        steps=always(working(work)),
    )


@pytest.fixture
def installed(db: DatabaseConnection) -> DatabaseConnection:
    install_system_schedules(db, Settings())
    return db


def test_a_run_that_no_schedule_began_has_the_numbers_of_the_queue_s_schedule(
    installed: DatabaseConnection, repository: ScheduleRepository, together: threading.Barrier
) -> None:
    add_places(installed, 3)
    says(repository, concurrency=3, item_timeout_seconds=20)
    queue = deep_scan(lambda key: together.wait(10))
    assert queue.run(settings=Settings(), db=installed).succeeded == 3


def test_a_run_has_the_numbers_of_the_schedule_that_began_it(
    installed: DatabaseConnection, repository: ScheduleRepository
) -> None:
    add_places(installed, 1)
    says(repository, max_attempts=5)

    def fail(key: int) -> None:
        raise ZeroDivisionError

    queue = deep_scan(fail)
    assert queue.run(settings=Settings(), db=installed, numbers=QueueNumbers(max_attempts=1)).dead == 1


def stale(db: DatabaseConnection) -> int:
    (view,) = [view for view in QueueOverview(db, Settings()).look() if view.name == "deep_scan"]
    return view.stale


def claimed_for(db: DatabaseConnection, seconds: int) -> None:
    add_places(db, 1, deep_scan_status="Processing")
    query(db, f"UPDATE places_staging SET claimed_at = now() - interval '{seconds} s'")


def test_what_is_stale_follows_the_schedule_for_the_overview_and_for_the_rescue(
    installed: DatabaseConnection, repository: ScheduleRepository
) -> None:
    claimed_for(installed, 300)
    says(repository, item_timeout_seconds=600)
    assert stale(installed) == 0
    deep_scan(str).run(settings=Settings(), db=installed)
    assert places(installed) == ["Processing"]
    says(repository)
    assert stale(installed) == 1
    deep_scan(str).run(settings=Settings(), db=installed)
    assert places(installed) == ["Completed"]  # rescued, and worked on


def test_an_item_of_a_patient_schedule_is_not_taken_away_by_a_run_of_another_one(
    installed: DatabaseConnection, repository: ScheduleRepository
) -> None:
    claimed_for(installed, 300)
    repository.create_schedule(
        domain="nightly, slow", job_type="workflow", frequency="hourly", time_config={"minute": 0},
        job_config={"queue": "deep_scan", "item_timeout_seconds": 600},
    )  # fmt: skip
    assert stale(installed) == 0
    deep_scan(str).run(settings=Settings(), db=installed, numbers=QueueNumbers(item_timeout_seconds=5))
    assert places(installed) == ["Processing"]


def test_the_overview_shows_the_numbers_that_hold(
    installed: DatabaseConnection, repository: ScheduleRepository
) -> None:
    says(repository, **NUMBERS)
    view = QueueOverview(installed, Settings()).look_at(DEEP_SCAN)
    assert {name: getattr(view, name) for name in NUMBERS} == NUMBERS


def test_a_schedule_that_somebody_broke_by_sql_breaks_nothing_else(installed: DatabaseConnection) -> None:
    query(
        installed,
        """UPDATE schedules SET job_config = jsonb_build_object('queue', 'deep_scan', 'concurrency', 'x')
           WHERE name = 'process_deep_scan_queue'""",
    )
    views = QueueOverview(installed, Settings()).look()
    assert {view.name: view.concurrency for view in views}["deep_scan"] == 5
    assert len(views) == len(queues.all())


@pytest.mark.parametrize(("timeout_seconds", "said"), [(100, True), (110, False)])
def test_a_run_says_that_its_schedule_s_timeout_is_too_short_for_its_numbers(
    installed: DatabaseConnection, timeout_seconds: float, said: bool
) -> None:
    context = a_context(timeout_seconds=timeout_seconds, schedule_id=UUID(int=1))
    deep_scan(str).run(context, Settings(), installed, numbers=QueueNumbers(run_budget_seconds=50))
    lines = context.trace().get("log", [])
    assert any("timeout_seconds is too short: the run times out in 100 s" in line for line in lines) is said


def test_the_query_for_the_numbers_does_not_read_all_schedules(installed: DatabaseConnection) -> None:
    with installed.transaction() as connection:
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        plan = connection.exec_driver_sql(
            "EXPLAIN SELECT schedule_id, job_config FROM schedules WHERE job_type = 'workflow'"
        ).scalars()
        assert "schedules_workflow_idx" in "".join(plan)
