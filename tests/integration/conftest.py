"""What several tests with a database of their own share."""

from typing import Any
from uuid import UUID

import pytest

from database.connection import DatabaseConnection
from services.execution_store import ExecutionStore
from services.jobs import JobRegistry
from services.schedule_repository import ScheduleRepository
from tests.executions import Make, age, store_of, this_is_now


@pytest.fixture
def store(db: DatabaseConnection) -> ExecutionStore:
    return store_of(db)


@pytest.fixture
def make(db: DatabaseConnection) -> Make:
    """Makes schedules that have been firing every second for an hour."""
    this_is_now()
    repository = ScheduleRepository(db, JobRegistry({"noop"}))

    def make(**more: Any) -> UUID:
        given = {"domain": "job", "job_type": "noop", "frequency": "interval", "time_config": {"seconds": 1}, **more}
        schedule_id = repository.create_schedule(**given)
        age(db, schedule_id, 3600)
        return schedule_id

    return make
