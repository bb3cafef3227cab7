"""Deletes old history in small batches, each in its own transaction, so that no other session waits for it.

Executions fence their fires, so none is deleted while its fire could still be claimed. The newest expired change of a
schedule is kept: it holds the definition in effect at the start of the retained history.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from config import SECONDS_PER_DAY
from database.connection import DatabaseConnection
from database.writing import delete_in_batches
from services.errors import InvalidInput, Problem
from services.ledger import history_sql as sql
from services.ledger.logs import ExecutionLogs

BATCH, MAX_BATCH = 5000, 100_000
MAX_DAYS = 36_500

Progress = Callable[[int], None]


class HistoryRetention:
    def __init__(self, db: DatabaseConnection, fence_horizon_seconds: int) -> None:
        self._db, self._horizon_seconds = db, fence_horizon_seconds
        self._logs = ExecutionLogs(db)

    def count_executions(self, days: int) -> int:
        return self._count(sql.COUNT_EXECUTIONS, days)

    def count_changes(self, days: int) -> int:
        return self._count(sql.COUNT_CHANGES, days)

    def delete_executions(self, days: int, batch_size: int = BATCH, on_progress: Progress | None = None) -> int:
        """Only ended executions, oldest first; rows that another session locks are left for the next cleanup."""
        beginning = datetime.min.replace(tzinfo=UTC)
        return self._delete(sql.DELETE_EXECUTIONS, beginning, days, batch_size, on_progress)

    def delete_changes(self, days: int, batch_size: int = BATCH, on_progress: Progress | None = None) -> int:
        return self._delete(sql.DELETE_CHANGES, 0, days, batch_size, on_progress)

    def delete_logs(self, days: int) -> int:
        """The live logs of executions; returns how many lines."""
        return self._logs.delete_older(self._limit(days))

    def _count(self, statement: str, days: int) -> int:
        limit = self._limit(days)
        with self._db.transaction() as connection:
            return int(connection.exec_driver_sql(statement, {"limit": limit}).scalar_one())

    def _delete(self, statement: str, since: Any, days: int, batch_size: int, on_progress: Progress | None) -> int:
        if not 1 <= batch_size <= MAX_BATCH:
            raise InvalidInput(Problem("batch_size", f"must be between 1 and {MAX_BATCH}, got {batch_size}"))
        values = {"limit": self._limit(days), "batch_size": batch_size, "since": since}
        return delete_in_batches(self._db, statement, values, on_progress)

    def _limit(self, days: int) -> datetime:
        """The instant before which history is old, by Postgres' clock."""
        if not 1 <= days <= MAX_DAYS:
            raise InvalidInput(Problem("days", f"must be between 1 and {MAX_DAYS}, got {days}"))
        if days * SECONDS_PER_DAY <= self._horizon_seconds:
            raise InvalidInput(
                Problem(
                    "days",
                    f"must be longer than FENCE_HORIZON_SECONDS={self._horizon_seconds}, got {days}: "
                    "without its row a fire that young could run again",
                )
            )
        with self._db.transaction() as connection:
            limit: datetime = connection.exec_driver_sql(sql.LIMIT, {"days": days}).scalar_one()
        return limit
