"""a note on a disabled schedule: why it was disabled"""

from alembic import op

revision = "0013"
down_revision = "0012"

FIELDS = (
    "frequency", "time_config", "timezone", "start_at", "end_at", "enabled",
    "schedule_id", "domain_config_id", "domain", "profile_id", "name", "job_type", "job_config", "priority", "tags",
    "spread_seconds", "source", "external_id", "max_instances", "coalesce", "misfire_grace_seconds", "timeout_seconds",
    "max_retries", "retry_backoff_seconds", "catchup",
    "revision", "effective_from",
)  # fmt: skip


def upgrade() -> None:
    op.execute(
        """
        ALTER TABLE schedules
            ADD disabled_note text,
            ADD CONSTRAINT schedules_disabled_note_check CHECK (length(disabled_note) <= 500),
            ADD CONSTRAINT schedules_disabled_note_while_on_check CHECK (disabled_note IS NULL OR NOT enabled)
        """
    )
    watch(*FIELDS, "disabled_note")
    op.execute(
        """
        CREATE FUNCTION schedules_clear_note() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            NEW.disabled_note := NULL;
            RETURN NEW;
        END $$
        """
    )
    op.execute(
        """
        CREATE TRIGGER schedules_clear_note BEFORE UPDATE OF enabled ON schedules
        FOR EACH ROW WHEN (NEW.enabled AND NOT OLD.enabled) EXECUTE FUNCTION schedules_clear_note()
        """
    )


def downgrade() -> None:
    op.execute("DROP TRIGGER schedules_clear_note ON schedules")
    op.execute("DROP FUNCTION schedules_clear_note()")
    watch(*FIELDS)
    op.execute("ALTER TABLE schedules DROP disabled_note")


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
