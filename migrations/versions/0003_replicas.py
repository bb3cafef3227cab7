"""replicas with heartbeats, fencing tokens, and indexes for the engine's hot path"""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute("CREATE SEQUENCE fencing_token_seq")
    op.execute(
        """
        CREATE TABLE scheduler_instances (
            instance_id varchar(63) NOT NULL,
            incarnation uuid NOT NULL,
            started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            revision bigint NOT NULL DEFAULT 0,
            schedules integer NOT NULL DEFAULT 0,
            running integer NOT NULL DEFAULT 0,
            clock_skew_seconds double precision NOT NULL DEFAULT 0,
            claiming boolean NOT NULL DEFAULT true,
            facts jsonb NOT NULL DEFAULT '{}',
            PRIMARY KEY (instance_id, incarnation)
        )
        """
    )
    # The watcher asks which changes were committed since it last looked; a transaction id answers that exactly, a
    # revision does not: a lower one may be committed later.
    op.execute("ALTER TABLE schedule_changes ADD txid xid8 NOT NULL DEFAULT pg_current_xact_id()")
    op.execute("CREATE INDEX schedule_changes_txid_idx ON schedule_changes (txid)")
    op.execute("DROP INDEX job_executions_live_idx")
    op.execute(
        """
        CREATE INDEX job_executions_live_idx ON job_executions (schedule_id)
        WHERE status IN ('claimed', 'running')
        """
    )
    op.execute("CREATE INDEX job_executions_pending_idx ON job_executions (due_at) WHERE status = 'pending'")


def downgrade() -> None:
    op.execute("DROP INDEX job_executions_pending_idx")
    op.execute("DROP INDEX job_executions_live_idx")
    op.execute(
        """
        CREATE INDEX job_executions_live_idx ON job_executions (status, due_at)
        WHERE status IN ('pending', 'claimed', 'running')
        """
    )
    op.execute("ALTER TABLE schedule_changes DROP txid")
    op.execute("DROP TABLE scheduler_instances")
    op.execute("DROP SEQUENCE fencing_token_seq")
