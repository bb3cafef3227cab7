"""schedules with revisions, policies and an audit trail; executions keyed by fire"""

from alembic import op

revision = "0002"
down_revision = "0001"

TERMINAL = "('success', 'failed', 'timed_out', 'cancelled', 'abandoned', 'skipped', 'missed')"

# What makes a schedule another schedule. Bookkeeping (next_run, last_run, last_status, invalid_reason) is not in it.
TIMING = ("frequency", "time_config", "timezone", "start_at", "end_at", "enabled")
DEFINITION = (
    *TIMING,
    "schedule_id", "domain_config_id", "domain", "profile_id", "name", "job_type", "job_config", "priority", "tags",
    "spread_seconds", "source", "external_id", "max_instances", "coalesce", "misfire_grace_seconds", "timeout_seconds",
    "max_retries", "retry_backoff_seconds", "catchup",
    "revision", "effective_from",  # written by hand, they would lie: the trigger writes them anew
)  # fmt: skip


def upgrade() -> None:
    for table in ("schedules", "job_executions"):
        op.execute(timestamps_become_utc(table))
    for statement in (*PROFILES, *SCHEDULES, *EXECUTIONS, *CHANGES, *TRIGGERS):
        op.execute(statement)


def timestamps_become_utc(table: str) -> str:
    return f"""
    DO $$
    DECLARE col text;
    BEGIN
        FOR col IN
            SELECT attname FROM pg_attribute
            WHERE attrelid = '{table}'::regclass AND atttypid = 'timestamp'::regtype AND NOT attisdropped
        LOOP
            EXECUTE 'ALTER TABLE {table} ALTER ' || quote_ident(col)
                || ' TYPE timestamptz USING ' || quote_ident(col) || ' AT TIME ZONE ''UTC''';
        END LOOP;
    END $$
    """


# One row that a program cannot read would hide all the others from it: what Python cannot hold is refused here.
NEGATIVE = '$.* ? (@.type() == "number" && @ < 0)'


def readable(column: str, depth: int, limit: str) -> str:
    """JSON that every reader can take: of bounded size (Postgres' form is up to six times the text), depth, numbers."""
    return (
        f"pg_column_size({column}) <= 524288 AND NOT jsonb_path_exists({column}, '$.**{{{depth + 1}}}') AND NOT "
        f"jsonb_path_exists({column}, '$.** ? (@.type() == \"number\" && (@ >= {limit} || @ <= -{limit}))')"
    )


def in_our_era(column: str) -> str:
    return f"{column} >= '1970-01-01 00:00+00' AND {column} < '10000-01-01 00:00+00'"


PROFILES = [
    """
    ALTER TABLE scan_profiles
        ALTER profile_id SET DEFAULT gen_random_uuid(),
        ADD COLUMN IF NOT EXISTS name varchar(255),
        ADD COLUMN IF NOT EXISTS config jsonb NOT NULL DEFAULT '{}',
        ADD COLUMN IF NOT EXISTS created_at timestamptz NOT NULL DEFAULT now(),
        ADD COLUMN IF NOT EXISTS updated_at timestamptz NOT NULL DEFAULT now()
    """,
]

SCHEDULES = [
    "CREATE SEQUENCE schedule_revision_seq",
    """
    ALTER TABLE schedules
        ALTER schedule_id SET DEFAULT gen_random_uuid(),
        ADD name varchar(255),
        ADD timezone varchar(64) NOT NULL DEFAULT 'UTC',
        ADD job_type varchar(64) NOT NULL DEFAULT 'cookie_scan',
        ADD job_config jsonb NOT NULL DEFAULT '{}',
        ADD priority integer NOT NULL DEFAULT 0,
        ADD tags text[] NOT NULL DEFAULT '{}',
        ADD start_at timestamptz,
        ADD end_at timestamptz,
        ADD spread_seconds integer NOT NULL DEFAULT 0,
        ADD source varchar(16) NOT NULL DEFAULT 'manual',
        ADD external_id varchar(255),
        ADD invalid_reason text,
        ADD max_instances integer,
        ADD coalesce boolean,
        ADD misfire_grace_seconds integer,
        ADD timeout_seconds integer,
        ADD max_retries integer,
        ADD retry_backoff_seconds integer,
        ADD catchup varchar(16),
        ADD revision bigint NOT NULL DEFAULT nextval('schedule_revision_seq'),
        ADD effective_from timestamptz NOT NULL DEFAULT clock_timestamp()
    """,
    # An adopted row that breaks the rules below is kept as text, but parked (one beyond all measure: its beginning).
    f"""
    UPDATE schedules
    SET enabled = false, last_status = 'invalid',
        time_config = CASE WHEN octet_length(time_config::text) <= 65536
                           THEN jsonb_build_object('adopted', time_config::text) ELSE '{{}}' END,
        invalid_reason = 'time_config: was ' || left(time_config::text, 1000) || ' when this database was adopted'
    WHERE jsonb_typeof(time_config) <> 'object'
       OR jsonb_path_exists(time_config, '{NEGATIVE}')
       OR NOT ({readable("time_config", 8, "1e12")})
       OR octet_length(time_config::text) > 65536
    """,
    f"UPDATE schedules SET next_run = NULL WHERE NOT ({in_our_era('next_run')})",
    f"UPDATE schedules SET last_run = NULL WHERE NOT ({in_our_era('last_run')})",
    # NULL never counted as enabled: `WHERE enabled = TRUE` did not find it.
    "UPDATE schedules SET enabled = coalesce(enabled, false)",
    f"""
    UPDATE schedules
    SET created_at = CASE WHEN {in_our_era("created_at")} THEN created_at ELSE now() END,
        updated_at = CASE WHEN {in_our_era("updated_at")} THEN updated_at ELSE now() END
    """,
    f"""
    ALTER TABLE schedules
        ALTER revision SET DEFAULT 0,  -- the trigger draws it, so that a writer needs no right to the sequence
        ALTER enabled SET NOT NULL,
        ALTER created_at SET NOT NULL,
        ALTER updated_at SET NOT NULL,
        ADD CONSTRAINT schedules_time_config_object_check CHECK (jsonb_typeof(time_config) = 'object'),
        ADD CONSTRAINT schedules_job_config_object_check CHECK (jsonb_typeof(job_config) = 'object'),
        ADD CONSTRAINT schedules_time_config_not_negative_check
            CHECK (NOT jsonb_path_exists(time_config, '{NEGATIVE}')),
        ADD CONSTRAINT schedules_time_config_readable_check CHECK ({readable("time_config", 8, "1e12")}),
        ADD CONSTRAINT schedules_job_config_readable_check CHECK ({readable("job_config", 64, "1e309")}),
        ADD CONSTRAINT schedules_tags_check CHECK (array_ndims(tags) = 1 AND array_position(tags, NULL) IS NULL),
        ADD CONSTRAINT schedules_start_at_check CHECK ({in_our_era("start_at")}),
        ADD CONSTRAINT schedules_end_at_check CHECK ({in_our_era("end_at")}),
        ADD CONSTRAINT schedules_next_run_check CHECK ({in_our_era("next_run")}),
        ADD CONSTRAINT schedules_last_run_check CHECK ({in_our_era("last_run")}),
        ADD CONSTRAINT schedules_created_at_check CHECK ({in_our_era("created_at")}),
        ADD CONSTRAINT schedules_updated_at_check CHECK ({in_our_era("updated_at")}),
        ADD CONSTRAINT schedules_ends_after_start_check CHECK (end_at > start_at),
        ADD CONSTRAINT schedules_spread_seconds_check CHECK (spread_seconds BETWEEN 0 AND 86400),
        ADD CONSTRAINT schedules_max_instances_check CHECK (max_instances >= 1),
        ADD CONSTRAINT schedules_misfire_grace_seconds_check CHECK (misfire_grace_seconds >= 1),
        ADD CONSTRAINT schedules_timeout_seconds_check CHECK (timeout_seconds >= 1),
        ADD CONSTRAINT schedules_max_retries_check CHECK (max_retries BETWEEN 0 AND 100),
        ADD CONSTRAINT schedules_retry_backoff_seconds_check CHECK (retry_backoff_seconds >= 0),
        ADD CONSTRAINT schedules_catchup_check CHECK (catchup IN ('none', 'one', 'all')),
        ADD CONSTRAINT schedules_source_check CHECK (source IN ('manual', 'api', 'system'))
    """,
    "CREATE UNIQUE INDEX schedules_api_domain_config_id_key ON schedules (domain_config_id) WHERE source = 'api'",
    "CREATE UNIQUE INDEX schedules_name_key ON schedules (name) WHERE name IS NOT NULL",
    "CREATE INDEX schedules_domain_idx ON schedules (domain)",
    "CREATE INDEX schedules_domain_config_id_idx ON schedules (domain_config_id)",
]

EXECUTIONS = [
    # With a foreign key one DELETE of a schedule would rewrite or forbid its history.
    "ALTER TABLE job_executions DROP CONSTRAINT IF EXISTS job_executions_schedule_id_fkey",
    """
    ALTER TABLE job_executions
        ALTER execution_id SET DEFAULT gen_random_uuid(),
        ALTER started_at DROP NOT NULL,
        ADD scheduled_for timestamptz NOT NULL DEFAULT clock_timestamp(),
        ADD attempt integer NOT NULL DEFAULT 1,
        ADD cause varchar(16) NOT NULL DEFAULT 'schedule',
        ADD due_at timestamptz,
        ADD claimed_at timestamptz,
        ADD instance_id varchar(63),
        ADD incarnation uuid,
        ADD fencing_token bigint,
        ADD cancel_requested_at timestamptz,
        ADD reason text
    """,
    # Adopted history had no fire time: its start stands for it, and rows that share one are told apart by attempt.
    """
    UPDATE job_executions AS e
    SET scheduled_for = coalesce(started_at, created_at, now()), attempt = ranked.n,
        created_at = coalesce(created_at, started_at, now())
    FROM (
        SELECT execution_id, row_number() OVER (
            PARTITION BY schedule_id, coalesce(started_at, created_at) ORDER BY created_at, execution_id
        ) AS n
        FROM job_executions
    ) AS ranked
    WHERE ranked.execution_id = e.execution_id
    """,
    # Other systems' words are translated; the word itself stays in metadata.
    f"""
    UPDATE job_executions AS e
    SET metadata = coalesce(e.metadata, '{{}}') || jsonb_build_object('adopted_status', e.status),
        reason = CASE WHEN known.status IS NULL THEN 'adopted with status ' || e.status END,
        status = coalesce(known.status, 'abandoned')
    FROM job_executions AS old
    LEFT JOIN LATERAL (SELECT CASE
        WHEN lower(btrim(old.status)) IN {TERMINAL} THEN lower(btrim(old.status))
        WHEN lower(btrim(old.status)) IN ('completed', 'complete', 'succeeded', 'ok', 'done') THEN 'success'
        WHEN lower(btrim(old.status)) IN ('error', 'failure') THEN 'failed'
        WHEN lower(btrim(old.status)) IN ('timeout', 'timedout', 'timed out', 'timed-out') THEN 'timed_out'
        WHEN lower(btrim(old.status)) = 'canceled' THEN 'cancelled'
    END AS status) AS known ON true
    WHERE old.execution_id = e.execution_id AND e.status NOT IN {TERMINAL}
    """,
    """
    ALTER TABLE job_executions
        ALTER created_at SET NOT NULL,
        ADD CONSTRAINT job_executions_schedule_id_scheduled_for_attempt_key
            UNIQUE (schedule_id, scheduled_for, attempt),
        ADD CONSTRAINT job_executions_status_check CHECK (status IN (
            'pending', 'claimed', 'running',
            'success', 'failed', 'timed_out', 'cancelled', 'abandoned', 'skipped', 'missed')),
        ADD CONSTRAINT job_executions_cause_check CHECK (cause IN ('schedule', 'manual', 'catchup', 'backfill')),
        ADD CONSTRAINT job_executions_attempt_check CHECK (attempt >= 1)
    """,
    "CREATE INDEX job_executions_created_at_idx ON job_executions (created_at)",
    "CREATE INDEX job_executions_domain_idx ON job_executions (domain, created_at)",
    """
    CREATE INDEX job_executions_live_idx ON job_executions (status, due_at)
    WHERE status IN ('pending', 'claimed', 'running')
    """,
]

CHANGES = [
    """
    CREATE TABLE schedule_changes (
        change_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        schedule_id uuid,
        revision bigint,
        operation varchar(8) NOT NULL,
        changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        changed_by text NOT NULL,
        old jsonb,
        new jsonb
    )
    """,
    "CREATE INDEX schedule_changes_schedule_id_idx ON schedule_changes (schedule_id, change_id)",
    "CREATE INDEX schedule_changes_changed_at_idx ON schedule_changes (changed_at)",
]


def row_of(alias: str, columns: tuple[str, ...]) -> str:
    return "(" + ", ".join(f"{alias}.{column}" for column in columns) + ")"


def works_for_everybody(function: str) -> str:
    """Whoever may write schedules has them stamped and logged, whatever else they may do and wherever they look."""
    return f"""
    DO $$
    BEGIN
        EXECUTE 'ALTER FUNCTION {function}() SECURITY DEFINER SET search_path = '
            || quote_ident(current_schema()) || ', pg_temp';
    END $$
    """


TRIGGERS = [
    # The actor is set per transaction by our own programs; everybody else is known by the login.
    """
    CREATE FUNCTION schedules_actor() RETURNS text LANGUAGE sql STABLE AS
    $$ SELECT coalesce(nullif(current_setting('scheduler.actor', true), ''), 'sql:' || session_user) $$
    """,
    """
    CREATE FUNCTION schedules_definition(s schedules) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
    $$ SELECT to_jsonb(s) - '{next_run,last_run,last_status,invalid_reason,created_at,updated_at}'::text[] $$
    """,
    f"""
    CREATE FUNCTION schedules_stamp() RETURNS trigger LANGUAGE plpgsql AS $$
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
            WHEN {row_of("NEW", TIMING)} IS DISTINCT FROM {row_of("OLD", TIMING)} THEN NEW.updated_at
            ELSE OLD.effective_from
        END;
        -- A verdict belongs to the revision that it was passed on.
        IF OLD.last_status = 'invalid' AND NEW.last_status = 'invalid' THEN
            NEW.last_status := NULL;
            NEW.invalid_reason := NULL;
        END IF;
        RETURN NEW;
    END $$
    """,
    works_for_everybody("schedules_stamp"),
    "CREATE TRIGGER schedules_stamp_insert BEFORE INSERT ON schedules FOR EACH ROW EXECUTE FUNCTION schedules_stamp()",
    f"""
    CREATE TRIGGER schedules_stamp_update BEFORE UPDATE OF {", ".join(DEFINITION)} ON schedules
    FOR EACH ROW WHEN ({row_of("OLD", DEFINITION)} IS DISTINCT FROM {row_of("NEW", DEFINITION)})
    EXECUTE FUNCTION schedules_stamp()
    """,
    # Inserts and deletes are logged per statement (bulk loads), updates per row (bookkeeping must not be collected).
    """
    CREATE FUNCTION schedules_log() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        CASE TG_OP
            WHEN 'INSERT' THEN
                INSERT INTO schedule_changes (schedule_id, revision, operation, changed_by, new)
                SELECT n.schedule_id, n.revision, 'insert', schedules_actor(), schedules_definition(n::schedules)
                FROM new_rows AS n;
            WHEN 'DELETE' THEN
                INSERT INTO schedule_changes (schedule_id, revision, operation, changed_by, old)
                SELECT o.schedule_id, nextval('schedule_revision_seq'), 'delete', schedules_actor(),
                       schedules_definition(o::schedules)
                FROM old_rows AS o;
            WHEN 'UPDATE' THEN
                INSERT INTO schedule_changes (schedule_id, revision, operation, changed_by, old, new)
                VALUES (NEW.schedule_id, NEW.revision, 'update', schedules_actor(),
                        schedules_definition(OLD), schedules_definition(NEW));
            ELSE
                INSERT INTO schedule_changes (revision, operation, changed_by)
                VALUES (nextval('schedule_revision_seq'), 'truncate', schedules_actor());
        END CASE;
        IF FOUND THEN
            PERFORM pg_notify('schedules_changed', '');
        END IF;
        RETURN NULL;
    END $$
    """,
    works_for_everybody("schedules_log"),
    """
    CREATE TRIGGER schedules_log_insert AFTER INSERT ON schedules REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION schedules_log()
    """,
    """
    CREATE TRIGGER schedules_log_delete AFTER DELETE ON schedules REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION schedules_log()
    """,
    f"""
    CREATE TRIGGER schedules_log_update AFTER UPDATE OF {", ".join(DEFINITION)} ON schedules
    FOR EACH ROW WHEN (OLD.revision IS DISTINCT FROM NEW.revision) EXECUTE FUNCTION schedules_log()
    """,
    """
    CREATE TRIGGER schedules_log_truncate AFTER TRUNCATE ON schedules
    FOR EACH STATEMENT EXECUTE FUNCTION schedules_log()
    """,
    """
    CREATE FUNCTION job_executions_keep_end() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION USING
            MESSAGE = 'execution ' || OLD.execution_id || ' ended as ' || OLD.status
                      || ': a terminal status never changes',
            ERRCODE = 'restrict_violation';
    END $$
    """,
    f"""
    CREATE TRIGGER job_executions_keep_end BEFORE UPDATE OF status ON job_executions
    FOR EACH ROW WHEN (OLD.status IN {TERMINAL} AND NEW.status IS DISTINCT FROM OLD.status)
    EXECUTE FUNCTION job_executions_keep_end()
    """,
]


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)


DOWN = [
    "DROP TRIGGER job_executions_keep_end ON job_executions",
    "DROP FUNCTION job_executions_keep_end()",
    "DROP TRIGGER schedules_stamp_insert ON schedules",
    "DROP TRIGGER schedules_stamp_update ON schedules",
    "DROP TRIGGER schedules_log_insert ON schedules",
    "DROP TRIGGER schedules_log_delete ON schedules",
    "DROP TRIGGER schedules_log_update ON schedules",
    "DROP TRIGGER schedules_log_truncate ON schedules",
    "DROP FUNCTION schedules_stamp()",
    "DROP FUNCTION schedules_log()",
    "DROP FUNCTION schedules_definition(schedules)",
    "DROP FUNCTION schedules_actor()",
    "DROP TABLE schedule_changes",
    "UPDATE job_executions SET started_at = coalesce(claimed_at, scheduled_for) WHERE started_at IS NULL",
    """
    ALTER TABLE job_executions
        DROP CONSTRAINT job_executions_schedule_id_scheduled_for_attempt_key,
        DROP CONSTRAINT job_executions_status_check,
        DROP scheduled_for, DROP attempt, DROP cause, DROP due_at, DROP claimed_at, DROP instance_id, DROP incarnation,
        DROP fencing_token, DROP cancel_requested_at, DROP reason,
        ALTER execution_id DROP DEFAULT,
        ALTER started_at SET NOT NULL,
        ALTER created_at DROP NOT NULL,
        ALTER started_at TYPE timestamp USING started_at AT TIME ZONE 'UTC',
        ALTER completed_at TYPE timestamp USING completed_at AT TIME ZONE 'UTC',
        ALTER created_at TYPE timestamp USING created_at AT TIME ZONE 'UTC'
    """,
    "DROP INDEX job_executions_created_at_idx",
    "DROP INDEX job_executions_domain_idx",
    # NOT VALID: history of deleted schedules stays.
    """
    ALTER TABLE job_executions ADD CONSTRAINT job_executions_schedule_id_fkey
        FOREIGN KEY (schedule_id) REFERENCES schedules (schedule_id) NOT VALID
    """,
    "DROP INDEX schedules_domain_idx",
    "DROP INDEX schedules_domain_config_id_idx",
    """
    ALTER TABLE schedules
        DROP CONSTRAINT schedules_time_config_object_check,
        DROP CONSTRAINT schedules_time_config_not_negative_check,
        DROP CONSTRAINT schedules_time_config_readable_check,
        DROP CONSTRAINT schedules_next_run_check,
        DROP CONSTRAINT schedules_last_run_check,
        DROP CONSTRAINT schedules_created_at_check,
        DROP CONSTRAINT schedules_updated_at_check,
        DROP name, DROP timezone, DROP job_type, DROP job_config, DROP priority, DROP tags, DROP start_at, DROP end_at,
        DROP spread_seconds, DROP source, DROP external_id, DROP invalid_reason, DROP max_instances, DROP coalesce,
        DROP misfire_grace_seconds, DROP timeout_seconds, DROP max_retries, DROP retry_backoff_seconds, DROP catchup,
        DROP revision, DROP effective_from,
        ALTER schedule_id DROP DEFAULT,
        ALTER enabled DROP NOT NULL,
        ALTER created_at DROP NOT NULL,
        ALTER updated_at DROP NOT NULL,
        ALTER next_run TYPE timestamp USING next_run AT TIME ZONE 'UTC',
        ALTER last_run TYPE timestamp USING last_run AT TIME ZONE 'UTC',
        ALTER created_at TYPE timestamp USING created_at AT TIME ZONE 'UTC',
        ALTER updated_at TYPE timestamp USING updated_at AT TIME ZONE 'UTC'
    """,
    "DROP SEQUENCE schedule_revision_seq",
    # scan_profiles keeps its columns: they may have been there before this revision.
    """
    DO $$
    DECLARE parked record;
    BEGIN
        FOR parked IN
            SELECT schedule_id, time_config->>'adopted' AS was FROM schedules WHERE time_config->>'adopted' IS NOT NULL
        LOOP
            BEGIN
                UPDATE schedules SET time_config = parked.was::jsonb WHERE schedule_id = parked.schedule_id;
            EXCEPTION WHEN invalid_text_representation THEN
                NULL;  -- somebody else's word, not ours
            END;
        END LOOP;
    END $$
    """,
]
