"""execution counts by hour: statistics over a million executions in milliseconds"""

from alembic import op

revision = "0011"
down_revision = "0010"

LOCK = 7_236_411_902  # services/ledger/tallies_sql.py takes it alone; whoever changes a counted hour shares it
LIVE = "('pending', 'claimed', 'running')"


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE execution_hours (
            hour timestamptz NOT NULL PRIMARY KEY,
            outcomes jsonb NOT NULL DEFAULT '{}',
            duration_count bigint NOT NULL DEFAULT 0,
            duration_sum double precision NOT NULL DEFAULT 0,
            duration_min double precision,
            duration_max double precision,
            duration_places integer[] NOT NULL DEFAULT '{}',
            duration_counts integer[] NOT NULL DEFAULT '{}',
            lateness_places integer[] NOT NULL DEFAULT '{}',
            lateness_counts integer[] NOT NULL DEFAULT '{}',
            counted_at timestamptz NOT NULL DEFAULT now(),
            horizon xid8 NOT NULL DEFAULT pg_current_xact_id()
        )
        """
    )
    op.execute(
        f"""
        CREATE FUNCTION execution_hours_forget() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_advisory_xact_lock_shared({LOCK});
            IF TG_OP = 'TRUNCATE' THEN
                DELETE FROM execution_hours;
            ELSIF TG_LEVEL = 'STATEMENT' THEN
                DELETE FROM execution_hours WHERE hour IN (SELECT date_trunc('hour', created_at, 'UTC') FROM gone);
            ELSE
                DELETE FROM execution_hours WHERE hour IN (
                    date_trunc('hour', NEW.created_at, 'UTC'),
                    CASE WHEN TG_OP = 'UPDATE' THEN date_trunc('hour', OLD.created_at, 'UTC') END);
            END IF;
            RETURN NULL;
        END $$
        """
    )
    # For a replica's own writes the conditions are false, and that is all that they cost.
    op.execute(
        """
        CREATE TRIGGER job_executions_inserted_late AFTER INSERT ON job_executions FOR EACH ROW
        WHEN (NEW.created_at < clock_timestamp() - interval '1 hour') EXECUTE FUNCTION execution_hours_forget()
        """
    )
    op.execute(
        f"""
        CREATE TRIGGER job_executions_changed_late AFTER UPDATE ON job_executions FOR EACH ROW
        WHEN (OLD.status NOT IN {LIVE} OR NEW.created_at <> OLD.created_at) EXECUTE FUNCTION execution_hours_forget()
        """
    )
    op.execute(
        """
        CREATE TRIGGER job_executions_deleted AFTER DELETE ON job_executions REFERENCING OLD TABLE AS gone
        FOR EACH STATEMENT EXECUTE FUNCTION execution_hours_forget()
        """
    )
    op.execute(
        """
        CREATE TRIGGER job_executions_truncated AFTER TRUNCATE ON job_executions
        FOR EACH STATEMENT EXECUTE FUNCTION execution_hours_forget()
        """
    )


def downgrade() -> None:
    for name in ("inserted_late", "changed_late", "deleted", "truncated"):
        op.execute(f"DROP TRIGGER job_executions_{name} ON job_executions")
    op.execute("DROP FUNCTION execution_hours_forget")
    op.execute("DROP TABLE execution_hours")
