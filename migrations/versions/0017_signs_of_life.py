"""detection of dead replicas: uninterrupted heartbeats and session names"""

from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.execute(
        """
        ALTER TABLE scheduler_instances
            ADD alive_since timestamptz NOT NULL DEFAULT clock_timestamp(),
            ADD heartbeat_interval_seconds double precision,
            ADD session_name text
        """
    )


def downgrade() -> None:
    op.execute("ALTER TABLE scheduler_instances DROP alive_since, DROP heartbeat_interval_seconds, DROP session_name")
