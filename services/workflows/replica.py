"""The duties of a replica for the workflows, besides their jobs: schedules, gauges, retention."""

import logging

from config import Settings
from database.connection import DatabaseConnection
from services.engine.loops import Loop
from services.queues.former_variables import carry_over_former_variables, former_variable_warnings
from services.queues.overview import QueueOverview
from services.queues.system_schedules import install_system_schedules
from services.telemetry import metrics
from services.workflows.places.usage import forget_usage, used_today, write_usage

logger = logging.getLogger(__name__)

WATCH_SECONDS = 15.0


class ReplicaWorkflows:
    """Without WORKFLOWS_ENABLED it reads no queue: an installation for cookie scans has none."""

    def __init__(self, settings: Settings, db: DatabaseConnection) -> None:
        self._settings, self._db = settings, db
        self._has_carried_over = False
        self.loop = Loop("queues", self.watch, WATCH_SECONDS)

    def install(self) -> None:
        if self._settings.workflows_enabled:
            install_system_schedules(self._db, self._settings)
        for warning in former_variable_warnings(self._db, self._settings):
            logger.warning("%s", warning, extra={"event": "setting_moved"})

    def watch(self) -> float | None:
        if not self._has_carried_over:
            self._has_carried_over = carry_over_former_variables(self._db, self._settings)
        if self._settings.workflows_enabled:
            QueueOverview(self._db, self._settings).watch()
            write_usage(self._db)
            metrics.places_used(used_today(self._db))
        return None

    def tidy(self, days: int) -> None:
        QueueOverview(self._db, self._settings).cleanup(days)
        forget_usage(self._db, days)
