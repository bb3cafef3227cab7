"""Deletes old scans in small batches, each its own transaction. The newest of each domain and engine always stays, and
the last complete one: the next scan is compared with it."""

from collections.abc import Callable
from datetime import UTC, datetime

from sqlalchemy import text

from database.connection import DatabaseConnection

BATCH = 50  # each takes its pages and cookies with it
LIMIT = text("SELECT clock_timestamp() - make_interval(days => :days)")

_OLD = """
    FROM scans AS s WHERE s.finished_at < :limit AND EXISTS (
        SELECT FROM scans AS newer WHERE newer.domain = s.domain AND newer.engine = s.engine
        AND (newer.finished_at, newer.scan_id) > (s.finished_at, s.scan_id)
        AND (s.summary->>'complete' = 'false' OR newer.summary->>'complete' IS DISTINCT FROM 'false')
    )
"""
COUNT = text(f"SELECT count(*) {_OLD}")
# `since` is where the batch before ended: nobody looks at its dead entries again.
DELETE = text(
    f"""
    WITH deleted AS (
        DELETE FROM scans WHERE scan_id = ANY(ARRAY(
            SELECT s.scan_id {_OLD} AND s.finished_at >= :since
            ORDER BY s.finished_at LIMIT :batch FOR UPDATE OF s SKIP LOCKED
        )) RETURNING finished_at
    )
    SELECT count(*) AS n, max(finished_at) AS place FROM deleted
    """  # noqa: S608 - made of constants
)


class ScanRetention:
    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def count_old(self, days: int) -> int:
        with self._db.transaction() as connection:
            return int(connection.execute(COUNT, {"limit": self._limit(days)}).scalar_one())

    def delete_old(self, days: int, on_progress: Callable[[int], None] = lambda _: None) -> int:
        """How many scans are gone now. `on_progress` hears the number so far."""
        values = {"limit": self._limit(days), "since": datetime.min.replace(tzinfo=UTC), "batch": BATCH}
        total = 0
        while True:
            with self._db.transaction() as connection:
                deleted = connection.execute(DELETE, values).one()
            if not deleted.n:
                return total
            total += deleted.n
            values["since"] = deleted.place
            on_progress(total)

    def _limit(self, days: int) -> datetime:
        """The instant before which a scan is old, by Postgres' clock."""
        with self._db.transaction() as connection:
            limit: datetime = connection.execute(LIMIT, {"days": days}).scalar_one()
        return limit
