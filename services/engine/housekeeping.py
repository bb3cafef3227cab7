"""Housekeeping: deletes old history and counts what remains. No fire waits for it."""

import logging
from collections.abc import Callable, Mapping

from database.connection import LOCK_TIMEOUT_SECONDS, DatabaseConnection
from services.engine.loops import Loop
from services.ledger.retention import HistoryRetention
from services.telemetry import metrics

logger = logging.getLogger(__name__)

TIDY_SECONDS = 3600.0
CENSUS_SECONDS = 60.0
HISTORY_SIZE = """SELECT greatest(reltuples, 0)::bigint, pg_total_relation_size(oid) FROM pg_class
                  WHERE oid = 'job_executions'::regclass"""
FORGET_REPLICAS = "DELETE FROM scheduler_instances WHERE heartbeat_at < clock_timestamp() - interval '1 day'"

Tidy = Callable[[int], int | None]  # the days that are kept -> how many rows were deleted


class Housekeeping:
    """`features` have their own history to clean up, each under its name in the log.

    `unmet` counts the executions that wait for what no living replica has, by what they need; `limits` tells by limit
    what runs, what waits, and for how many seconds.
    """

    def __init__(
        self,
        db: DatabaseConnection,
        retention_days: int,
        fence_horizon_seconds: int,
        features: Mapping[str, Tidy],
        unmet: Callable[[], Mapping[str, int]] = dict,
        limits: Callable[[], Mapping[str, tuple[int, int, float]]] = dict,
    ) -> None:
        self._db, self._days, self._features = db, retention_days, features
        self._unmet, self._limits = unmet, limits
        self._retention = HistoryRetention(db, fence_horizon_seconds)
        self.loops = [Loop("tidy", self.tidy, TIDY_SECONDS), Loop("census", self.count_history, CENSUS_SECONDS)]

    def tidy(self) -> float | None:
        deleted = {
            "log_lines": self._retention.delete_logs(self._days),
            "executions": self._retention.delete_executions(self._days),
            "changes": self._retention.delete_changes(self._days),
            **{name: tidy(self._days) or 0 for name, tidy in self._features.items()},
        }
        with self._db.transaction() as connection:  # of replicas that crashed long ago
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
            connection.exec_driver_sql(FORGET_REPLICAS)
        if any(deleted.values()):
            logger.info("deleted old history", extra={"event": "tidied", **deleted})
        return None

    def count_history(self) -> float | None:
        with self._db.transaction() as connection:
            rows, size_bytes = connection.exec_driver_sql(HISTORY_SIZE).one()
        metrics.observe_history(rows=rows, size_bytes=size_bytes)
        metrics.observe_unmet(self._unmet())
        metrics.observe_limits(self._limits())
        return None
