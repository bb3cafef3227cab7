"""indexes for frequent lists: contacts by age, manual runs, parked schedules, the newest revision"""

from alembic import op

revision = "0009"
down_revision = "0008"

# None of them has an entry for an ordinary fire, nor a column that bookkeeping changes: updates of next_run stay HOT.
INDEXES = {
    "job_executions_cause_idx": "job_executions (cause, created_at) WHERE cause <> 'schedule'",
    "schedules_revision_idx": "schedules (revision)",
    "schedules_parked_idx": "schedules (updated_at) WHERE invalid_reason IS NOT NULL",
    "contacts_created_at_idx": "contacts (created_at, id)",
}


def upgrade() -> None:
    for name, definition in INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON {definition}")


def downgrade() -> None:
    for name in INDEXES:
        op.execute(f"DROP INDEX {name}")
