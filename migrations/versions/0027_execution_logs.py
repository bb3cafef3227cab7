"""what a handler logs, and how far it is, can be read while it runs

`execution_logs` only grows, one row per line. `execution_progress` has one row per run that reported anything; old
lines are found by it, so that the lines themselves need no second index.
"""

from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE execution_logs (
            execution_id uuid NOT NULL,
            fencing_token bigint NOT NULL,
            line bigint NOT NULL,
            at timestamptz NOT NULL,
            level text NOT NULL,
            text text NOT NULL,
            CONSTRAINT execution_logs_pkey PRIMARY KEY (execution_id, fencing_token, line)
        )
        """
    )
    op.execute(
        """
        CREATE TABLE execution_progress (
            execution_id uuid NOT NULL,
            fencing_token bigint NOT NULL,
            done double precision,
            total double precision,
            is_complete boolean NOT NULL DEFAULT false,
            began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            CONSTRAINT execution_progress_pkey PRIMARY KEY (execution_id, fencing_token)
        )
        """
    )
    op.execute("CREATE INDEX execution_progress_began_at_idx ON execution_progress (began_at)")


def downgrade() -> None:
    op.execute("DROP TABLE execution_progress")
    op.execute("DROP TABLE execution_logs")
