"""What a replica does beside its engine: API sync, workflows, the hourly audit, streaks, pings, retention, finding and
sending notifications, and the announcement of waiting rows to Celery workers.
"""

from collections.abc import Collection
from threading import Event
from typing import Any
from uuid import UUID

from config import Settings
from database.connection import DatabaseConnection
from enhanced_scheduler.extras import how_to_install, is_installed
from services.api_sync.replica import ReplicaSync
from services.engine.housekeeping import Housekeeping
from services.engine.loops import Loop
from services.engine.shares.shares import Shares
from services.engine.streaks import Streaks
from services.errors import ConfigurationError
from services.fleet import publisher_for
from services.fleet.pings import Pings
from services.insight.fleet_ping import FleetPing
from services.insight.hourly_audit import HourlyAudit
from services.insight.limits import LimitUses
from services.insight.unhandled_jobs import count_unmet
from services.notifications.deliveries import Deliveries
from services.notifications.notifier import Notifier
from services.notifications.sender import Sender
from services.scanning.retention import ScanRetention
from services.schedules.limits import Limits

if is_installed("workflows"):
    from services.workflows.replica import ReplicaWorkflows


class Features:
    """`syncs`: whether this replica asks the external API for schedules."""

    def __init__(
        self, settings: Settings, db: DatabaseConnection, stopping: Event, *, syncs: bool, sync_interval: int
    ) -> None:
        self.api_sync = ReplicaSync(settings, db, sync_interval, stopping)
        self._syncs = syncs
        self._workflows = _workflows(settings, db)
        self._audit = HourlyAudit(settings, db, stopping)
        self._streaks = Streaks(db)
        self._notifier, self._sender = Notifier(settings, db), Sender(settings, db)
        self._publisher = publisher_for(settings, db)
        self.pings = Pings(settings)
        self._ping = None if settings.fleet_ping_url is None else FleetPing(settings, db, settings.fleet_ping_url)
        queues = {} if self._workflows is None else {"queues": self._workflows.tidy}
        self._housekeeping = Housekeeping(
            db,
            settings.history_retention_days,
            settings.fence_horizon_seconds,
            features={
                "scans": ScanRetention(db).delete_old,
                "limit_changes": Limits(db).forget_changes,
                "notifications": Deliveries(db).delete_old,
                "incidents": self._notifier.tidy,
                **queues,
            },
            unmet=lambda: count_unmet(db, settings.heartbeat_timeout_seconds),
            limits=LimitUses(db).figures,
        )

    def install(self) -> None:
        """Before the engine starts."""
        if self._workflows is not None:
            self._workflows.install()

    def loops(self, shares: Shares) -> list[Loop]:
        self._streaks.look_if(lambda: shares.is_first_to_count)
        found = [
            self._audit.loop,
            self._streaks.loop,
            self._notifier.loop,
            self._sender.loop,
            *self._housekeeping.loops,
        ]
        if self._ping is not None:
            self._ping.send_if(lambda: 0 in shares.first_in())
            found.append(self._ping.loop)
        if self._workflows is not None:
            found.append(self._workflows.loop)
        if self._syncs:
            found.append(self.api_sync.loop)
        if self._publisher is not None:
            found.append(self._publisher.loop)
        return found

    def rows_wait(self) -> None:
        """Called when a row waits that this replica may have no use for."""
        if self._publisher is not None:
            self._publisher.loop.wake()

    def room_is_made(self, schedule_ids: Collection[UUID], limit_keys: Collection[str]) -> None:
        """Called when places of these schedules and limits are free again. Waits for nothing."""
        if self._publisher is not None:
            self._publisher.room_is_made(schedule_ids, limit_keys)

    def close(self) -> None:
        for part in (self._notifier, self._sender, self._ping, self._publisher, self.pings):
            if part is not None:
                part.close()

    def facts(self) -> dict[str, Any]:
        return {"api_sync": self.api_sync.facts()} if self._syncs else {}


def _workflows(settings: Settings, db: DatabaseConnection) -> "ReplicaWorkflows | None":
    if is_installed("workflows"):
        return ReplicaWorkflows(settings, db)
    if settings.workflows_enabled:
        raise ConfigurationError(f"WORKFLOWS_ENABLED=true needs {how_to_install('workflows')}")
    return None
