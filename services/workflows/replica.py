"""What a replica does for the workflows besides running their jobs: their schedules, their gauges, their retention."""

from config import Settings
from database.connection import DatabaseConnection
from services.engine.loops import Loop
from services.queues.overview import QueueOverview
from services.queues.system_schedules import install_system_schedules
from services.telemetry import metrics
from services.workflows.places.usage import forget_usage, used_today, write_usage

WATCH_SECONDS = 15.0


class ReplicaWorkflows:
    """Without WORKFLOWS_ENABLED it does nothing: who only scans cookies has no queues to look at."""

    def __init__(self, settings: Settings, db: DatabaseConnection) -> None:
        self._settings, self._db = settings, db
        self.loop = Loop("queues", self.watch, WATCH_SECONDS)

    def install(self) -> None:
        if self._settings.workflows_enabled:
            install_system_schedules(self._db, self._settings)

    def watch(self) -> float | None:
        if self._settings.workflows_enabled:
            QueueOverview(self._db, self._settings).watch()
            write_usage(self._db)
            metrics.places_used(used_today(self._db))
        return None

    def tidy(self, days: int) -> None:
        QueueOverview(self._db, self._settings).cleanup(days)
        forget_usage(self._db, days)
