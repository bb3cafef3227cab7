"""a heartbeat says what its replica can run: job types, labels, queues

A replica of the version before says nothing (NULL). While one is alive, nothing is held back for what a job needs.
"""

from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.execute(
        """
        ALTER TABLE scheduler_instances
            ADD COLUMN kind varchar(16) NOT NULL DEFAULT 'replica',
            ADD COLUMN abilities text[],
            ADD COLUMN queues text[],
            ADD CONSTRAINT scheduler_instances_kind_check CHECK (kind IN ('replica', 'worker'))
        """
    )


def downgrade() -> None:
    op.execute("ALTER TABLE scheduler_instances DROP COLUMN kind, DROP COLUMN abilities, DROP COLUMN queues")
