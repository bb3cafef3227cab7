"""state of the API sync: its last result, its lease, and the values it last wrote into each schedule"""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE api_sync_state (
            only_row boolean NOT NULL DEFAULT true PRIMARY KEY,
            lease_token uuid,
            lease_owner text,
            lease_until timestamptz,
            started_at timestamptz,
            not_before timestamptz,
            rules text,
            etag text,
            last_modified text,
            synced_at timestamptz,
            last jsonb,
            applied jsonb,
            CONSTRAINT api_sync_state_only_row_check CHECK (only_row)
        )
        """
    )
    # No foreign key: it would forbid TRUNCATE schedules. The sync itself clears away what belongs to nobody.
    op.execute(
        """
        CREATE TABLE api_sync_items (
            schedule_id uuid NOT NULL PRIMARY KEY,
            revision bigint NOT NULL,
            digest text,
            synced jsonb,
            kept text[] NOT NULL DEFAULT '{}',
            vanished_at timestamptz,
            disabled_revision bigint
        )
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE api_sync_items")
    op.execute("DROP TABLE api_sync_state")
