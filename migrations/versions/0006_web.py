"""API tokens, stored responses of idempotent POST requests, and an index for lists of failures"""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE api_tokens (
            token_id varchar(16) NOT NULL PRIMARY KEY,
            name varchar(100) NOT NULL,
            role varchar(16) NOT NULL,
            digest bytea NOT NULL,
            created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            created_by text NOT NULL,
            expires_at timestamptz,
            revoked_at timestamptz,
            revoked_by text,
            last_used_at timestamptz,
            CONSTRAINT api_tokens_role_check CHECK (role IN ('viewer', 'operator', 'admin')),
            CONSTRAINT api_tokens_digest_check CHECK (octet_length(digest) = 32)
        )
        """
    )
    # The audit trail names a token by its name: two that work at the same time must not share one.
    op.execute("CREATE UNIQUE INDEX api_tokens_name_key ON api_tokens (name) WHERE revoked_at IS NULL")
    op.execute(
        """
        CREATE TABLE idempotency_keys (
            caller text NOT NULL,
            key varchar(255) NOT NULL,
            digest bytea NOT NULL,
            started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            status_code integer,
            headers jsonb,
            body bytea,
            PRIMARY KEY (caller, key)
        )
        """
    )
    op.execute("CREATE INDEX idempotency_keys_started_at_idx ON idempotency_keys (started_at)")
    # Most executions succeed, and the index on created_at finds those. What a person filters for is rare; a partial
    # index costs the way claimed -> running -> success nothing.
    op.execute(
        """
        CREATE INDEX job_executions_troubled_idx ON job_executions (status, created_at)
        WHERE status IN ('failed', 'timed_out', 'cancelled', 'abandoned', 'skipped', 'missed')
        """
    )


def downgrade() -> None:
    op.execute("DROP INDEX job_executions_troubled_idx")
    op.execute("DROP TABLE idempotency_keys")
    op.execute("DROP TABLE api_tokens")
