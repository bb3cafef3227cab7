"""rows that wait are sorted into lanes by queue, needs and priority, and know when they have to be looked at again

The copies on a row say where to look for it; the schedule decides. Empty ones mean that nobody has looked at it yet,
which is also what replicas of the version before write. Each index has a predicate of its own spelling: statistics of
a quiet hour would make the planner prefer job_executions_pending_idx, which it then reads from end to end.
"""

from alembic import op

from migrations.concurrently import later

revision = "0019"
down_revision = "0018"

CONCURRENTLY = {
    "job_executions_waiting_idx": """job_executions (queue, needs, priority DESC, due_at)
        WHERE coalesce(status, 'w') = 'pending' AND reason IS NULL""",
    "job_executions_settle_idx": """job_executions (coalesce(settle_at, due_at))
        WHERE coalesce(status, 's') = 'pending'""",
    "job_executions_standing_idx": "job_executions (schedule_id) WHERE coalesce(status, 't') = 'pending'",
}


def upgrade() -> None:
    op.execute(
        """
        ALTER TABLE job_executions
            ADD COLUMN queue text NOT NULL DEFAULT '',
            ADD COLUMN needs text[] NOT NULL DEFAULT '{}',
            ADD COLUMN priority integer NOT NULL DEFAULT 0,
            ADD COLUMN settle_at timestamptz
        """
    )
    later(CONCURRENTLY)


def downgrade() -> None:
    for name in CONCURRENTLY:
        op.execute(f"DROP INDEX IF EXISTS {name}")
    op.execute(
        "ALTER TABLE job_executions DROP COLUMN queue, DROP COLUMN needs, DROP COLUMN priority, DROP COLUMN settle_at"
    )
