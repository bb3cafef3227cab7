"""Schedules from another system's API into the table: `{"data": [{"domain_config_id", "data": {…}}]}`.

A bad item is skipped with its reason and never spoils the rest; an answer that cannot be read changes nothing. One
replica at a time: the others find the lock taken and leave it at that.
"""

import logging
from typing import Any

import requests

from database.connection import DatabaseConnection
from services import metrics
from services.errors import SchedulerError
from services.fetching import GuardedSession
from services.schedule_repository import ScheduleRepository

logger = logging.getLogger(__name__)

LOCK_KEY = 0x73796E63  # "sync"


class ApiSyncFailed(SchedulerError):
    """The API gave no usable answer; the last good schedules stay."""


class ApiSync:
    def __init__(
        self,
        db: DatabaseConnection,
        repository: ScheduleRepository,
        session: GuardedSession,
        url: str,
        timeout_seconds: int,
    ) -> None:
        self._db, self._repository, self._session = db, repository, session
        self._url, self._timeout = url, timeout_seconds

    def run(self) -> dict[str, int]:
        """Fetch and apply; returns how many schedules were created, updated and skipped."""
        items = self._fetch()  # before the lock: no transaction is held while the other system takes its time
        with self._db.transaction() as connection:
            if not connection.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock({LOCK_KEY})").scalar_one():
                logger.info("another replica is syncing", extra={"event": "sync_elsewhere"})
                return {"created": 0, "updated": 0, "skipped": 0}
            result = self._repository.sync_from_api(items)
        metrics.synced(**result)
        logger.info("synced from the API: %s", result, extra={"event": "synced", **result})
        return result

    def _fetch(self) -> list[Any]:
        try:
            response = self._session.get(self._url, timeout=self._timeout, headers={"Accept": "application/json"})
            response.raise_for_status()
            answer = response.json()
        except (requests.RequestException, SchedulerError, ValueError) as error:
            raise ApiSyncFailed(f"the API at {self._url} gave no usable answer: {error}") from error
        items = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(items, list):
            raise ApiSyncFailed(f'the API at {self._url} answered without a list under "data"')
        return items
