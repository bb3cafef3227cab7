"""cookie scans: findings, pages, and changes since the previous scan"""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    # execution_id, schedule_id and previous_scan_id are plain values: each history has a retention of its own.
    op.execute(
        """
        CREATE TABLE scans (
            scan_id uuid NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
            execution_id uuid,
            schedule_id uuid,
            domain varchar(255) NOT NULL,
            engine varchar(16) NOT NULL,
            started_at timestamptz NOT NULL,
            finished_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            previous_scan_id uuid,
            config jsonb NOT NULL DEFAULT '{}',
            summary jsonb NOT NULL DEFAULT '{}',
            changes jsonb NOT NULL DEFAULT '[]',
            CONSTRAINT scans_engine_check CHECK (engine IN ('http', 'browser'))
        )
        """
    )
    op.execute("CREATE INDEX scans_domain_idx ON scans (domain, engine, finished_at)")
    op.execute("CREATE INDEX scans_finished_at_idx ON scans (finished_at)")
    op.execute(
        """
        CREATE TABLE scan_pages (
            scan_id uuid NOT NULL REFERENCES scans (scan_id) ON DELETE CASCADE,
            number integer NOT NULL,
            url text NOT NULL,
            final_url text,
            depth integer NOT NULL,
            attempts integer NOT NULL,
            status_code integer,
            error text,
            elapsed_ms integer NOT NULL DEFAULT 0,
            notes text[] NOT NULL DEFAULT '{}',
            PRIMARY KEY (scan_id, number)
        )
        """
    )
    op.execute(
        """
        CREATE TABLE scan_cookies (
            scan_id uuid NOT NULL REFERENCES scans (scan_id) ON DELETE CASCADE,
            number integer NOT NULL,
            name text NOT NULL,
            domain text NOT NULL,
            path text NOT NULL,
            storage varchar(16) NOT NULL,
            host_only boolean NOT NULL,
            expires_at timestamptz,
            lifetime_seconds bigint,
            secure boolean NOT NULL,
            http_only boolean NOT NULL,
            same_site varchar(16),
            party varchar(8) NOT NULL,
            consent varchar(8) NOT NULL,
            category varchar(16) NOT NULL,
            category_rule text,
            page_url text NOT NULL,
            request_url text NOT NULL,
            pages_seen integer NOT NULL DEFAULT 1,
            PRIMARY KEY (scan_id, number)
        )
        """
    )

    for statement in NAMES_BECOME_UNIQUE:
        op.execute(statement)


# An adopted database may hold a name twice: the oldest profile keeps it, the others get their id behind it.
NAMES_BECOME_UNIQUE = [
    """
    UPDATE scan_profiles SET name = left(name, 255 - 39) || ' (' || profile_id || ')'
    WHERE profile_id IN (
        SELECT profile_id FROM (
            SELECT profile_id, row_number() OVER (PARTITION BY name ORDER BY created_at, profile_id) AS place
            FROM scan_profiles WHERE name IS NOT NULL
        ) AS numbered
        WHERE place > 1
    )
    """,
    "CREATE UNIQUE INDEX scan_profiles_one_per_name_key ON scan_profiles (name) WHERE name IS NOT NULL",
]
NAMES_AS_THEY_WERE = [
    "DROP INDEX scan_profiles_one_per_name_key",
    "UPDATE scan_profiles SET name = left(name, -39) WHERE right(name, 39) = ' (' || profile_id || ')'",
]


def downgrade() -> None:
    for statement in NAMES_AS_THEY_WERE:
        op.execute(statement)
    op.execute("DROP TABLE scan_cookies")
    op.execute("DROP TABLE scan_pages")
    op.execute("DROP TABLE scans")
