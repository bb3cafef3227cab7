"""indexes for troubleshooting: failures by domain and schedule, deletions, scans by schedule"""

from alembic import op

revision = "0012"
down_revision = "0011"

# Partial, so that neither an ordinary fire (claimed -> running -> success) nor an ordinary change has an entry.
WENT_WRONG = "status IN ('failed', 'timed_out', 'cancelled', 'abandoned', 'skipped', 'missed')"
INDEXES = {
    "job_executions_troubled_at_idx": f"job_executions (created_at, status) WHERE {WENT_WRONG}",
    "job_executions_troubled_domain_idx": f"job_executions (domain, created_at) WHERE {WENT_WRONG}",
    "job_executions_troubled_fire_idx": f"job_executions (schedule_id, scheduled_for, attempt) WHERE {WENT_WRONG}",
    "schedule_changes_deleted_name_idx": "schedule_changes ((old ->> 'name'), change_id) WHERE operation = 'delete'",
    "schedule_changes_deleted_domain_idx": (
        "schedule_changes ((old ->> 'domain'), change_id) WHERE operation = 'delete'"
    ),
    "scans_schedule_id_idx": "scans (schedule_id, finished_at)",
    "scans_execution_id_idx": "scans (execution_id)",
}


def upgrade() -> None:
    for name, definition in INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON {definition}")


def downgrade() -> None:
    for name in INDEXES:
        op.execute(f"DROP INDEX {name}")
