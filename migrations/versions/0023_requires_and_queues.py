"""a schedule says what it requires of a replica besides its job type, and in which queue its executions wait

Both belong to the definition: a change gets a revision and a line in schedule_changes. Neither is about time. The
checks keep what SQL writes within an index entry of job_executions, and the empty queue for rows not sorted yet.
"""

from alembic import op

revision = "0023"
down_revision = "0022"

FIELDS = (
    "frequency", "time_config", "timezone", "start_at", "end_at", "enabled",
    "schedule_id", "domain_config_id", "domain", "profile_id", "name", "job_type", "job_config", "priority", "tags",
    "spread_seconds", "source", "external_id", "max_instances", "coalesce", "misfire_grace_seconds", "timeout_seconds",
    "max_retries", "retry_backoff_seconds", "catchup",
    "revision", "effective_from", "disabled_note",
)  # fmt: skip
LABEL = "[a-z0-9][a-z0-9_.-]{0,62}"


def upgrade() -> None:
    op.execute(
        f"""
        ALTER TABLE schedules
            ADD requires text[] NOT NULL DEFAULT '{{}}',
            ADD queue text,
            ADD CONSTRAINT schedules_requires_check CHECK (
                array_ndims(requires) = 1 AND array_position(requires, NULL) IS NULL AND cardinality(requires) <= 10
                AND array_to_string(requires, ',') ~ '^({LABEL}(,{LABEL})*)?$'),
            ADD CONSTRAINT schedules_queue_check CHECK (queue ~ '^{LABEL}$')
        """
    )
    watch(*FIELDS, "requires", "queue")


def downgrade() -> None:
    watch(*FIELDS)
    op.execute("ALTER TABLE schedules DROP requires, DROP queue")


def watch(*fields: str) -> None:
    """A change of these, and of nothing else, is stamped and logged, as it was before."""
    old, new = (", ".join(f"{alias}.{field}" for field in fields) for alias in ("OLD", "NEW"))
    for statement in (
        "DROP TRIGGER schedules_stamp_update ON schedules",
        "DROP TRIGGER schedules_log_update ON schedules",
        f"""
        CREATE TRIGGER schedules_stamp_update BEFORE UPDATE OF {", ".join(fields)} ON schedules
        FOR EACH ROW WHEN (({old}) IS DISTINCT FROM ({new})) EXECUTE FUNCTION schedules_stamp()
        """,
        f"""
        CREATE TRIGGER schedules_log_update AFTER UPDATE OF {", ".join(fields)} ON schedules
        FOR EACH ROW WHEN (OLD.revision IS DISTINCT FROM NEW.revision) EXECUTE FUNCTION schedules_log()
        """,
    ):
        op.execute(statement)
