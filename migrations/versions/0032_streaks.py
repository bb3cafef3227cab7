"""streaks: how often a schedule failed in a row, and what it does then; and which URL is told of its runs

The count and the end of a backoff are bookkeeping, derived from the history: they make no revision and no line in the
log. A schedule that is switched on, or gets another timing while it is on, begins anew.
"""

from alembic import op

from migrations.concurrently import later

revision = "0032"
down_revision = "0031"

CONCURRENTLY = {
    "job_executions_failed_idx": """job_executions (completed_at, execution_id)
        WHERE coalesce(status, 'f') IN ('failed', 'timed_out', 'abandoned')""",
    "schedules_failing_idx": "schedules (schedule_id) WHERE failures_in_a_row > 0",
}
FIELDS = (
    "frequency", "time_config", "timezone", "start_at", "end_at", "enabled",
    "schedule_id", "domain_config_id", "domain", "profile_id", "name", "job_type", "job_config", "priority", "tags",
    "spread_seconds", "source", "external_id", "max_instances", "coalesce", "misfire_grace_seconds", "timeout_seconds",
    "max_retries", "retry_backoff_seconds", "catchup",
    "revision", "effective_from", "disabled_note", "requires", "queue", "limit_keys",
)  # fmt: skip
BOOKKEEPING = "next_run,last_run,last_status,invalid_reason,created_at,updated_at"
BEGINS_ANEW = """
        IF NEW.effective_from IS DISTINCT FROM OLD.effective_from THEN
            NEW.backoff_until := NULL;
            IF NEW.enabled THEN
                NEW.failures_in_a_row := 0;
                NEW.last_failed_for := NULL;
            END IF;
        END IF;"""


def upgrade() -> None:
    op.execute(
        """
        ALTER TABLE schedules
            ADD pause_after_failures integer,
            ADD backoff_after_failures integer,
            ADD ping_url text,
            ADD failures_in_a_row integer NOT NULL DEFAULT 0,
            ADD last_failed_for timestamptz,
            ADD backoff_until timestamptz,
            ADD CONSTRAINT schedules_pause_after_failures_check CHECK (pause_after_failures BETWEEN 1 AND 1000),
            ADD CONSTRAINT schedules_backoff_after_failures_check CHECK (backoff_after_failures BETWEEN 1 AND 1000),
            ADD CONSTRAINT schedules_ping_url_check CHECK (length(ping_url) <= 2000 AND ping_url ~* '^https?://')
        """
    )
    define(f"{BOOKKEEPING},failures_in_a_row,last_failed_for,backoff_until")
    stamp(BEGINS_ANEW)
    watch(*FIELDS, "pause_after_failures", "backoff_after_failures", "ping_url")
    later(CONCURRENTLY)


def downgrade() -> None:
    for name in CONCURRENTLY:
        op.execute(f"DROP INDEX IF EXISTS {name}")
    watch(*FIELDS)
    stamp("")
    define(BOOKKEEPING)
    op.execute(
        """
        ALTER TABLE schedules DROP pause_after_failures, DROP backoff_after_failures, DROP ping_url,
            DROP failures_in_a_row, DROP last_failed_for, DROP backoff_until
        """
    )


def define(bookkeeping: str) -> None:
    """What schedule_changes keeps of a row: all but the bookkeeping."""
    op.execute(
        f"""
        CREATE OR REPLACE FUNCTION schedules_definition(s schedules) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
        $$ SELECT to_jsonb(s) - '{{{bookkeeping}}}'::text[] $$
        """
    )


def stamp(begins_anew: str) -> None:
    op.execute(
        f"""
        CREATE OR REPLACE FUNCTION schedules_stamp() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = public, pg_temp AS $$
    BEGIN
        NEW.revision := nextval('schedule_revision_seq');
        NEW.updated_at := clock_timestamp();
        IF TG_OP = 'INSERT' THEN
            NEW.effective_from := NEW.updated_at;
            RETURN NEW;
        END IF;
        IF NEW.schedule_id <> OLD.schedule_id THEN
            RAISE EXCEPTION USING
                MESSAGE = 'the id of schedule ' || OLD.schedule_id || ' never changes: its history hangs on it',
                HINT = 'create a new schedule and delete this one',
                ERRCODE = 'restrict_violation';
        END IF;
        NEW.effective_from := CASE
            WHEN (NEW.frequency, NEW.time_config, NEW.timezone, NEW.start_at, NEW.end_at, NEW.enabled)
                 IS DISTINCT FROM
                 (OLD.frequency, OLD.time_config, OLD.timezone, OLD.start_at, OLD.end_at, OLD.enabled)
            THEN NEW.updated_at
            ELSE OLD.effective_from
        END;
        -- A verdict belongs to the revision that it was passed on.
        IF OLD.last_status = 'invalid' AND NEW.last_status = 'invalid' THEN
            NEW.last_status := NULL;
            NEW.invalid_reason := NULL;
        END IF;{begins_anew}
        RETURN NEW;
    END $$
        """
    )


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
