"""limits across schedules: how many executions of one key run at once; schedules and executions list their keys

A limit names a key (`customer:42`) or, with a `*` at its end, all keys that begin so. Claims decide a key under the
lock of its stripe, which nothing else touches; the row of a limit is only read. What waits for a limit has an index of
its own: `reason` is `limit:<key>`, and within it the rows are sorted into lanes as all waiting rows are.
"""

from alembic import op

from migrations.concurrently import later

revision = "0024"
down_revision = "0023"

CONCURRENTLY = {
    "job_executions_limited_idx": """job_executions (reason, queue, needs, priority DESC, due_at)
        WHERE coalesce(status, 'l') = 'pending' AND reason IS NOT NULL""",
}
FIELDS = (
    "frequency", "time_config", "timezone", "start_at", "end_at", "enabled",
    "schedule_id", "domain_config_id", "domain", "profile_id", "name", "job_type", "job_config", "priority", "tags",
    "spread_seconds", "source", "external_id", "max_instances", "coalesce", "misfire_grace_seconds", "timeout_seconds",
    "max_retries", "retry_backoff_seconds", "catchup",
    "revision", "effective_from", "disabled_note", "requires", "queue",
)  # fmt: skip
KEY_CHARACTER = "[^[:space:][:cntrl:],*]"


def upgrade() -> None:
    op.execute(
        f"""
        CREATE TABLE limits (
            name text NOT NULL PRIMARY KEY,
            max_running integer NOT NULL,
            enabled boolean NOT NULL DEFAULT true,
            note text,
            created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            CONSTRAINT limits_name_check CHECK (name ~ '^({KEY_CHARACTER}{{1,200}}|{KEY_CHARACTER}{{0,199}}[*])$'),
            CONSTRAINT limits_max_running_check CHECK (max_running BETWEEN 0 AND 100000)
        )
        """
    )
    op.execute("CREATE INDEX limits_patterns_idx ON limits (name) WHERE \"right\"(name, 1) = '*'")
    op.execute("CREATE TABLE limit_stripes (stripe smallint NOT NULL PRIMARY KEY)")
    op.execute("INSERT INTO limit_stripes SELECT generate_series(0, 1023)")
    op.execute(
        """
        CREATE FUNCTION limits_stamp() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                NEW.updated_at := clock_timestamp();
                RETURN NEW;
            END $$
        """
    )
    op.execute(
        """
        CREATE TRIGGER limits_stamp_update BEFORE UPDATE ON limits
        FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION limits_stamp()
        """
    )
    op.execute(
        """
        CREATE FUNCTION limits_tell() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                PERFORM pg_notify('executions_pending', '');
                RETURN NULL;
            END $$
        """
    )
    op.execute(
        """
        CREATE TRIGGER limits_tell AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON limits
        FOR EACH STATEMENT EXECUTE FUNCTION limits_tell()
        """
    )
    op.execute(
        f"""
        ALTER TABLE schedules
            ADD limit_keys text[] NOT NULL DEFAULT '{{}}',
            ADD CONSTRAINT schedules_limit_keys_check CHECK (
                array_ndims(limit_keys) = 1 AND array_position(limit_keys, NULL) IS NULL
                AND cardinality(limit_keys) <= 8
                AND cardinality(limit_keys) = cardinality(string_to_array(array_to_string(limit_keys, ','), ','))
                AND array_to_string(limit_keys, ',') ~ '^({KEY_CHARACTER}{{1,200}}(,{KEY_CHARACTER}{{1,200}})*)?$')
        """
    )
    op.execute("ALTER TABLE job_executions ADD limit_keys text[] NOT NULL DEFAULT '{}'")
    later(CONCURRENTLY)
    watch(*FIELDS, "limit_keys")


def downgrade() -> None:
    watch(*FIELDS)
    # What waits for a limit waits like everything else again.
    op.execute("UPDATE job_executions SET reason = NULL WHERE status = 'pending' AND starts_with(reason, 'limit:')")
    op.execute("DROP INDEX IF EXISTS job_executions_limited_idx")
    op.execute("ALTER TABLE job_executions DROP limit_keys")
    op.execute("ALTER TABLE schedules DROP limit_keys")
    op.execute("DROP TABLE limits")
    op.execute("DROP TABLE limit_stripes")
    op.execute("DROP FUNCTION limits_stamp()")
    op.execute("DROP FUNCTION limits_tell()")


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
