"""what a replica's heartbeat says about its share: host, the buckets that it holds, whether it has duty

A replica of the version before leaves `holds` NULL: it holds every schedule.
"""

from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.execute(
        """
        ALTER TABLE scheduler_instances
            ADD host text,
            ADD holds bytea,
            ADD on_duty boolean NOT NULL DEFAULT false
        """
    )


def downgrade() -> None:
    op.execute("ALTER TABLE scheduler_instances DROP host, DROP holds, DROP on_duty")
