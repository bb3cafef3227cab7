"""The sync in a replica: checks periodically whether it is due, and reports the result.

Any replica may find it due. The stored state lets only one of them call the API per interval; the others read the
result.
"""

import logging
import random
import threading
from typing import Any

from config import Settings
from database.connection import DatabaseConnection
from services.api_sync.client import SyncInterrupted
from services.api_sync.items import BadItem, log_skipped
from services.api_sync.report import Kind, Outcome, SyncReport
from services.api_sync.state import StoredState, SyncState
from services.api_sync.sync import ApiSyncFailed, open_api_sync
from services.engine.loops import Loop
from services.telemetry import metrics
from services.wording.commands import as_called_here

logger = logging.getLogger(__name__)

LOOK_SECONDS = 30.0  # keeps the age current, and takes over a dead replica's sync
TICK_PATIENCE_SECONDS = 900.0  # a slow API or many items are progress, not a stall
JITTER_SHARE, LONGEST_JITTER_SECONDS = 0.1, 10.0


class ReplicaSync:
    def __init__(
        self, settings: Settings, db: DatabaseConnection, interval_seconds: float, stopping: threading.Event
    ) -> None:
        self._settings, self._db, self._interval, self._stopping = settings, db, interval_seconds, stopping
        self._seen = StoredState()
        self._restarted = True  # None until the first check
        self.loop = Loop("api-sync", self.tick, LOOK_SECONDS, TICK_PATIENCE_SECONDS)

    def sync_now(self) -> SyncReport:
        """Raises ApiSyncFailed."""
        with open_api_sync(self._settings, self._db, stopping=self._stopping) as sync:
            return _announce(sync.run())

    def tick(self) -> float:
        """Sync if it is due; returns the seconds until the next check."""
        if self._settings.api_url is None:
            logger.warning("API_URL is not set: there is nothing to sync from", extra={"event": "sync_without_url"})
            return self._interval
        try:
            with open_api_sync(self._settings, self._db, stopping=self._stopping) as sync:
                report = sync.run_if_due(self._interval, restarted=self._restarted)
            if report is not None:
                _announce(report)
        except ApiSyncFailed as error:
            metrics.synced(Outcome.FAILED, {})
            logger.error("%s; the schedules stay as they are", error, extra={"event": "sync_failed"})
        except SyncInterrupted as error:
            logger.info("%s", error, extra={"event": "sync_interrupted"})
        self._restarted = False
        return self._look()

    def facts(self) -> dict[str, Any]:
        """For probes and heartbeats, as of the last check."""
        last, applied, age = self._seen.last, self._seen.applied, self._seen.synced_seconds_ago
        return {
            "outcome": last.outcome.value if last else None,
            "age_seconds": None if age is None else round(age),
            "removals_refused": applied.count(Kind.REFUSED) if applied else 0,
            "local_edits_kept": applied.count(Kind.KEPT) if applied else 0,
        }

    def _look(self) -> float:
        """Every replica sees the same result, whichever called the API."""
        self._seen = SyncState(self._db).read()
        facts = self.facts()
        metrics.sync_seen(
            outcome=facts["outcome"],
            age_seconds=self._seen.synced_seconds_ago,
            removals_refused=facts["removals_refused"],
            local_edits_kept=facts["local_edits_kept"],
        )
        jitter = random.uniform(0, min(JITTER_SHARE * self._interval, LONGEST_JITTER_SECONDS))  # noqa: S311
        due_in = self._interval - (self._seen.started_seconds_ago or 0.0)
        return min(max(due_in, 0.0) + jitter, LOOK_SECONDS)


def _announce(report: SyncReport) -> SyncReport:
    counts = {kind.value: count for kind, count in report.counts.items() if count}
    metrics.synced(report.outcome, counts)
    if report.outcome is Outcome.NOT_MODIFIED:
        logger.info("the API has nothing new", extra={"event": "sync_not_modified"})
        return report
    log_skipped([BadItem(entry.item or 0, entry.label, entry.reasons) for entry in report.of(Kind.SKIPPED)])
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "no items"
    logger.info("synced from the API: %s", told, extra={"event": "synced", "counts": counts})
    if report.refused:
        vanished = report.count(Kind.REFUSED)
        facts = {"event": "sync_removals_refused", "schedules": vanished}
        way_out = as_called_here("manage.py sync --dry-run")
        logger.warning("no schedule was disabled: %s; see %s", report.refused, way_out, extra=facts)
    return report
