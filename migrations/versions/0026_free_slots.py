"""what a replica's heartbeat says about its room: workers that nothing waits for

A replica without room gives fires away to those that have some. One of the version before leaves it NULL: none.
"""

from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.execute("ALTER TABLE scheduler_instances ADD free_slots integer")


def downgrade() -> None:
    op.execute("ALTER TABLE scheduler_instances DROP free_slots")
