"""A local API, a table of this test's own, and a sync between the two."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from config import Settings
from database.connection import DatabaseConnection
from services.api_sync.client import BACKOFF
from services.api_sync.report import SyncReport
from services.api_sync.sync import open_api_sync
from tests.integration.api_sync.looking import Run
from tests.support.api_stand_in import ApiStandIn, many_items


@pytest.fixture
def api() -> Iterator[ApiStandIn]:
    """Has ten items."""
    with ApiStandIn(many_items(10)) as api:
        yield api


@pytest.fixture
def settings(api: ApiStandIn, database_url: str, no_pauses: None) -> Settings:
    return Settings(
        database_url=database_url,
        api_url=api.url,
        fetch_allowed_networks="127.0.0.0/8",
        instance_id="tester",
        request_timeout=20,
    )


@pytest.fixture
def run(settings: Settings, db: DatabaseConnection, only_built_in_jobs: None) -> Run:
    def run(preview: bool = False, **options: Any) -> SyncReport:
        with open_api_sync(settings, db, **options) as sync:
            return sync.preview() if preview else sync.run()

    return run


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.api_sync.client.BACKOFF", replace(BACKOFF, first_seconds=0.0))
