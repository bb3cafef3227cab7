"""rows that wait for the fleet: when their queue was last announced to the broker, and when it is announced next

Only rows that were sorted into a queue are in the index. Its predicate has a spelling of its own, as in 0019.
"""

from alembic import op

from migrations.concurrently import later

revision = "0028"
down_revision = "0027"

CONCURRENTLY = {
    "job_executions_outbox_idx": """job_executions (queue, coalesce(publish_at, due_at))
        WHERE coalesce(status, 'o') = 'pending' AND queue <> ''""",
}


def upgrade() -> None:
    op.execute("ALTER TABLE job_executions ADD published_at timestamptz, ADD publish_at timestamptz")
    later(CONCURRENTLY)


def downgrade() -> None:
    for name in CONCURRENTLY:
        op.execute(f"DROP INDEX IF EXISTS {name}")
    op.execute("ALTER TABLE job_executions DROP published_at, DROP publish_at")
