"""buckets of schedules: an index to load and compare a share of them, and how far the gap scan of each bucket has come

`fires_watched` keeps its one row and its meaning, which replicas of the version before rely on.
"""

from alembic import op

from migrations.concurrently import later

revision = "0020"
down_revision = "0019"

CONCURRENTLY = {
    "schedules_bucket_idx": "schedules ((uuid_hash_extended(schedule_id, 0) & 1023)) INCLUDE (schedule_id)",
}


def upgrade() -> None:
    later(CONCURRENTLY)
    # Rows are updated in place, all the time.
    op.execute(
        """
        CREATE TABLE fires_watched_by_bucket (
            bucket smallint NOT NULL PRIMARY KEY,
            since timestamptz,
            until timestamptz,
            tried_at timestamptz,
            CONSTRAINT fires_watched_by_bucket_bucket_check CHECK (bucket >= 0 AND bucket <= 1023)
        ) WITH (fillfactor = 50)
        """
    )
    op.execute(
        """
        INSERT INTO fires_watched_by_bucket (bucket, since, until)
        SELECT n, w.since, w.until FROM generate_series(0, 1023) AS n LEFT JOIN fires_watched AS w ON true
        """
    )


def downgrade() -> None:
    # What every bucket has been looked at for is true of all of them together.
    op.execute(
        """
        UPDATE fires_watched AS w SET until = greatest(w.until, b.until)
        FROM (SELECT min(until) AS until FROM fires_watched_by_bucket HAVING count(until) = 1024) AS b
        """
    )
    op.execute("DROP TABLE fires_watched_by_bucket")
    op.execute("DROP INDEX IF EXISTS schedules_bucket_idx")
