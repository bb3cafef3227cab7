"""notification rules, what the notifier remembers for each, and how far it has walked

`notifier` is one row: the lease of the replica that walks, with a token that every write of the walk locks and
compares, and the position: Postgres snapshots, so that no late commit is missed. Ended executions are found by an index
of their end; an execution that has not ended is not in it.
"""

from alembic import op

from migrations.concurrently import later

revision = "0031"
down_revision = "0030"

CONCURRENTLY = {
    "job_executions_ended_idx": "job_executions (completed_at, execution_id) WHERE completed_at IS NOT NULL",
}
EVENTS = """ARRAY['failed', 'failing', 'recovered', 'late', 'slow', 'no_success', 'missed', 'parked', 'nobody_able',
    'replica_lost', 'queue_open', 'scan_changed']"""


def upgrade() -> None:
    op.execute(
        f"""
        CREATE TABLE notification_rules (
            rule_id uuid NOT NULL DEFAULT gen_random_uuid(),
            name text NOT NULL,
            channel_ids uuid[] NOT NULL,
            events text[] NOT NULL,
            schedule_ids uuid[] NOT NULL DEFAULT '{{}}',
            tags text[] NOT NULL DEFAULT '{{}}',
            job_types text[] NOT NULL DEFAULT '{{}}',
            queues text[] NOT NULL DEFAULT '{{}}',
            after_failures integer,
            late_seconds integer,
            slower_than_seconds integer,
            slower_than_usual double precision,
            no_success_seconds integer,
            quiet_from text,
            quiet_to text,
            quiet_timezone text NOT NULL DEFAULT 'UTC',
            quiet_errors_pass boolean NOT NULL DEFAULT false,
            digest text NOT NULL DEFAULT 'none',
            digest_at text NOT NULL DEFAULT '08:00',
            digest_day text NOT NULL DEFAULT 'monday',
            digest_timezone text NOT NULL DEFAULT 'UTC',
            enabled boolean NOT NULL DEFAULT true,
            note text,
            created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            created_by text NOT NULL DEFAULT session_user,
            updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            updated_by text NOT NULL DEFAULT session_user,
            CONSTRAINT notification_rules_pkey PRIMARY KEY (rule_id),
            CONSTRAINT notification_rules_name_key UNIQUE (name),
            CONSTRAINT notification_rules_name_check CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{{0,62}}$'),
            CONSTRAINT notification_rules_channel_ids_check CHECK (cardinality(channel_ids) BETWEEN 1 AND 10),
            CONSTRAINT notification_rules_events_check CHECK (cardinality(events) >= 1 AND events <@ {EVENTS}),
            CONSTRAINT notification_rules_digest_check CHECK (digest IN ('none', 'daily', 'weekly')),
            CONSTRAINT notification_rules_quiet_check CHECK ((quiet_from IS NULL) = (quiet_to IS NULL)),
            CONSTRAINT notification_rules_note_check CHECK (length(note) <= 500)
        )
        """
    )
    op.execute(
        """
        CREATE TABLE notification_incidents (
            rule_id uuid NOT NULL,
            event text NOT NULL,
            subject text NOT NULL,
            phase text NOT NULL,
            began_at timestamptz NOT NULL,
            key text NOT NULL,
            pattern text NOT NULL DEFAULT '',
            streak integer NOT NULL DEFAULT 1,
            fire_at timestamptz,
            attempt integer,
            flush_at timestamptz,
            storm text,
            content jsonb NOT NULL DEFAULT '{}',
            updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            CONSTRAINT notification_incidents_pkey PRIMARY KEY (rule_id, event, subject),
            CONSTRAINT notification_incidents_rule_id_fkey FOREIGN KEY (rule_id)
                REFERENCES notification_rules ON DELETE CASCADE,
            CONSTRAINT notification_incidents_phase_check CHECK (
                phase IN ('counting', 'gathering', 'told', 'ending', 'over'))
        )
        """
    )
    op.execute("CREATE INDEX notification_incidents_subject_idx ON notification_incidents (subject)")
    op.execute(
        "CREATE INDEX notification_incidents_flush_idx ON notification_incidents (flush_at) WHERE flush_at IS NOT NULL"
    )
    op.execute(
        """
        CREATE INDEX notification_incidents_storm_idx ON notification_incidents (rule_id, storm)
            WHERE storm IS NOT NULL
        """
    )
    op.execute(
        "CREATE INDEX notification_incidents_over_idx ON notification_incidents (updated_at) WHERE phase = 'over'"
    )
    op.execute(
        "CREATE INDEX notification_incidents_open_idx ON notification_incidents (event, subject) WHERE phase <> 'over'"
    )
    op.execute(
        """
        CREATE TABLE notifier (
            only_row boolean NOT NULL DEFAULT true,
            token bigint NOT NULL DEFAULT 0,
            holder text,
            held_until timestamptz NOT NULL DEFAULT '-infinity',
            position jsonb NOT NULL DEFAULT '{}',
            walked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            CONSTRAINT notifier_pkey PRIMARY KEY (only_row),
            CONSTRAINT notifier_only_row_check CHECK (only_row)
        )
        """
    )
    op.execute("INSERT INTO notifier DEFAULT VALUES")
    later(CONCURRENTLY)


def downgrade() -> None:
    for name in CONCURRENTLY:
        op.execute(f"DROP INDEX IF EXISTS {name}")
    op.execute("DROP TABLE notifier")
    op.execute("DROP TABLE notification_incidents")
    op.execute("DROP TABLE notification_rules")
