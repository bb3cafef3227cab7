"""Schedules from another system's API into the table: `{"data": [{"domain_config_id", "data": {…}}]}`.

A bad item is skipped with its reason and never spoils the rest; an answer that cannot be read changes nothing. One
replica at a time: the others find the lock taken and leave it at that.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import requests

from database.connection import DatabaseConnection
from database.models import Source
from services import metrics
from services.errors import SchedulerError
from services.fetching import GuardedSession
from services.schedule_batch import Action, Saved
from services.schedule_repository import ScheduleRepository

logger = logging.getLogger(__name__)

LOCK_KEY = 0x73796E63  # "sync"
# What the API says about the scan itself, in the one spelling in which it is kept.
SCAN_FIELDS = {
    "description": "description",
    "allow_deep_scan": "allow_deep_scan",
    "maxPages": "max_pages",
    "scanDepth": "scan_depth",
    "maxRetries": "max_retries",
    "customPages": "custom_pages",
    "accept_selector": "accept_selector",
}


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
            skipped: list[str] = []
            summary = self._repository.save_schedules(
                _definitions(items, skipped), match="api", actor="api-sync", on_saved=_log_refused
            )
        result = {
            "created": summary.created,
            "updated": summary.updated,
            "skipped": len(summary.refused) + len(skipped),
        }
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


def _definitions(items: list[Any], skipped: list[str]) -> Iterator[dict[str, Any]]:
    for number, item in enumerate(items, 1):
        try:
            yield _definition(item)
        except (TypeError, KeyError, AttributeError) as error:
            skipped.append(str(error))
            logger.warning(
                "item %d of the API is skipped: %s", number, _why(error), extra={"event": "sync_item_skipped"}
            )


def _definition(item: Mapping[str, Any]) -> dict[str, Any]:
    data, schedule = item["data"], item["data"]["schedule"]
    return {
        "domain_config_id": item["domain_config_id"],
        "domain": data["domain"],
        "frequency": schedule["frequency"],
        "time_config": schedule["time"],
        "source": Source.API.value,
        "job_type": "cookie_scan",
        "job_config": {ours: data[theirs] for theirs, ours in SCAN_FIELDS.items() if data.get(theirs) is not None},
    }


def _why(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else "it is not of the documented form"


def _log_refused(saved: Saved) -> None:
    if saved.action is Action.REFUSED:
        reasons = "; ".join(map(str, saved.problems))
        logger.warning("%s is skipped: %s", saved.label, reasons, extra={"event": "sync_item_skipped"})
