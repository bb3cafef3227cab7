"""progress of the gap scan, so that a restart continues there"""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE fires_watched (
            only_row boolean NOT NULL DEFAULT true PRIMARY KEY,
            since timestamptz NOT NULL,
            until timestamptz NOT NULL,
            CONSTRAINT fires_watched_only_row_check CHECK (only_row)
        )
        """
    )
    # A summary row accounts for many fires: the scan looks it up for every fire that has no row of its own.
    op.execute(
        """
        CREATE INDEX job_executions_summary_idx ON job_executions (schedule_id, scheduled_for)
        WHERE reason = 'catchup_cap'
        """
    )


def downgrade() -> None:
    op.execute("DROP INDEX job_executions_summary_idx")
    op.execute("DROP TABLE fires_watched")
