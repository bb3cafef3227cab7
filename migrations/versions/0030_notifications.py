"""notifications: channels, what is to be sent through them, and every attempt to send it

A delivery is written by whoever has something to tell; any replica sends it. While a replica is sending, `next_at` is
when its claim expires, so one index finds all that is due. History has no foreign key to channels: it outlives them.
"""

from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE notification_channels (
            channel_id uuid NOT NULL DEFAULT gen_random_uuid(),
            name text NOT NULL,
            kind text NOT NULL,
            config jsonb NOT NULL,
            enabled boolean NOT NULL DEFAULT true,
            note text,
            created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            created_by text NOT NULL DEFAULT session_user,
            updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            updated_by text NOT NULL DEFAULT session_user,
            failures integer NOT NULL DEFAULT 0,
            failing_since timestamptz,
            resume_at timestamptz,
            last_error text,
            last_sent_at timestamptz,
            CONSTRAINT notification_channels_pkey PRIMARY KEY (channel_id),
            CONSTRAINT notification_channels_name_key UNIQUE (name),
            CONSTRAINT notification_channels_name_check CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$'),
            CONSTRAINT notification_channels_kind_check CHECK (kind IN ('webhook', 'email', 'apprise')),
            CONSTRAINT notification_channels_config_check CHECK (
                jsonb_typeof(config) = 'object' AND pg_column_size(config) <= 65536)
        )
        """
    )
    op.execute(
        """
        CREATE TABLE notification_deliveries (
            delivery_id uuid NOT NULL DEFAULT gen_random_uuid(),
            channel_id uuid NOT NULL,
            rule_id uuid,
            event text NOT NULL,
            subject text NOT NULL,
            message jsonb NOT NULL,
            created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            state text NOT NULL DEFAULT 'waiting',
            attempts integer NOT NULL DEFAULT 0,
            failures integer NOT NULL DEFAULT 0,
            tried_since timestamptz,
            next_at timestamptz,
            claim_token uuid,
            claim_owner text,
            ended_at timestamptz,
            last_error text,
            repeated_by text,
            CONSTRAINT notification_deliveries_pkey PRIMARY KEY (delivery_id),
            CONSTRAINT notification_deliveries_rule_id_event_subject_key UNIQUE (rule_id, event, subject),
            CONSTRAINT notification_deliveries_message_check CHECK (jsonb_typeof(message) = 'object'),
            CONSTRAINT notification_deliveries_state_check CHECK (state IN ('waiting', 'sent', 'failed', 'cancelled'))
        )
        """
    )
    op.execute(
        """
        CREATE INDEX notification_deliveries_due_idx ON notification_deliveries
            (channel_id, coalesce(next_at, due_at)) WHERE state = 'waiting'
        """
    )
    op.execute(
        """
        CREATE INDEX notification_deliveries_failed_idx ON notification_deliveries (ended_at) WHERE state = 'failed'
        """
    )
    op.execute(
        "CREATE INDEX notification_deliveries_created_at_idx ON notification_deliveries (created_at, delivery_id)"
    )
    op.execute(
        """
        CREATE INDEX notification_deliveries_channel_id_idx ON notification_deliveries
            (channel_id, created_at, delivery_id)
        """
    )
    op.execute(
        """
        CREATE TABLE notification_attempts (
            delivery_id uuid NOT NULL,
            number integer NOT NULL,
            claim_token uuid NOT NULL,
            instance_id text NOT NULL,
            started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            ended_at timestamptz,
            outcome text,
            answer text,
            CONSTRAINT notification_attempts_pkey PRIMARY KEY (delivery_id, number),
            CONSTRAINT notification_attempts_delivery_id_fkey FOREIGN KEY (delivery_id)
                REFERENCES notification_deliveries ON DELETE CASCADE,
            CONSTRAINT notification_attempts_outcome_check CHECK (outcome IN ('sent', 'failed', 'lost'))
        )
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE notification_attempts")
    op.execute("DROP TABLE notification_deliveries")
    op.execute("DROP TABLE notification_channels")
