"""What several tests with a database of their own share."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from uuid import UUID

import pytest

from database.connection import DatabaseConnection
from services.jobs import JobRegistry
from services.ledger.claims import ExecutionStore
from services.scanning.engines.browser_engine import BrowserEngine
from services.schedule_repository import ScheduleRepository
from tests.support.browsers import new_engine
from tests.support.executions import Make, age, store_of, this_is_now
from tests.support.ledger import Ledger
from tests.support.notifying import Notifying
from tests.support.scan_site import WebServer


@pytest.fixture
def store(db: DatabaseConnection) -> Iterator[ExecutionStore]:
    with closing(store_of(db)) as store:
        yield store


@pytest.fixture
def make(db: DatabaseConnection) -> Make:
    """Makes schedules that have been firing every second for an hour."""
    this_is_now()
    repository = ScheduleRepository(db, JobRegistry({"noop", "waits"}))

    def make(**more: Any) -> UUID:
        given = {"domain": "job", "job_type": "noop", "frequency": "interval", "time_config": {"seconds": 1}, **more}
        schedule_id = repository.create_schedule(**given)
        age(db, schedule_id, 3600)
        return schedule_id

    return make


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer() as server:
        yield server


@pytest.fixture
def browser() -> Iterator[Callable[..., BrowserEngine]]:
    """Makes browser engines of the test's own."""
    made: list[BrowserEngine] = []

    def make(*arguments: Any, **options: Any) -> BrowserEngine:
        made.append(new_engine(*arguments, **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture(scope="module")
def any_browser() -> Iterator[BrowserEngine]:
    """One for tests that do not mind what other pages have left in it."""
    engine = new_engine()
    yield engine
    engine.close()


@pytest.fixture
def notifying(db: DatabaseConnection) -> Notifying:
    """Channels and deliveries."""
    return Notifying(db)


@pytest.fixture
def receiver() -> Iterator[Ledger]:
    """A receiver of webhooks."""
    with Ledger() as ledger:
        yield ledger
