"""Deletes old scans in small batches, each its own transaction. The newest and the last complete scan of each domain
and engine stay, because the next scan is compared with them.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from database.connection import DatabaseConnection
from database.writing import delete_in_batches

BATCH = 50  # each includes its pages and cookies
LIMIT = "SELECT clock_timestamp() - make_interval(days => %(days)s)"

_OLD = """
    FROM scans AS s WHERE s.finished_at < %(limit)s AND EXISTS (
        SELECT FROM scans AS newer WHERE newer.domain = s.domain AND newer.engine = s.engine
        AND (newer.finished_at, newer.scan_id) > (s.finished_at, s.scan_id)
        AND (s.summary->>'complete' = 'false' OR newer.summary->>'complete' IS DISTINCT FROM 'false')
    )
"""
COUNT = f"SELECT count(*) {_OLD}"
DELETE = f"""
WITH deleted AS (
    DELETE FROM scans WHERE scan_id = ANY(ARRAY(
        SELECT s.scan_id {_OLD} AND s.finished_at >= %(since)s
        ORDER BY s.finished_at LIMIT %(batch)s FOR UPDATE OF s SKIP LOCKED
    )) RETURNING finished_at
)
SELECT count(*) AS n, max(finished_at) AS place FROM deleted
"""  # noqa: S608 - made of constants


class ScanRetention:
    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def count_old(self, days: int) -> int:
        with self._db.transaction() as connection:
            return int(connection.exec_driver_sql(COUNT, {"limit": self._limit(days)}).scalar_one())

    def delete_old(self, days: int, on_progress: Callable[[int], None] = lambda _: None) -> int:
        """The number of deleted scans. `on_progress` receives the number so far."""
        values = {"limit": self._limit(days), "since": datetime.min.replace(tzinfo=UTC), "batch": BATCH}
        return delete_in_batches(self._db, DELETE, values, on_progress)

    def _limit(self, days: int) -> datetime:
        """The instant before which a scan is old, by Postgres' clock."""
        with self._db.transaction() as connection:
            limit: datetime = connection.exec_driver_sql(LIMIT, {"days": days}).scalar_one()
        return limit
