"""the audit as a fact: what one replica found about each closed hour"""

from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE audited_hours (
            since timestamptz PRIMARY KEY,
            claimed_until timestamptz NOT NULL,
            instance_id text NOT NULL,
            audited_at timestamptz,
            schedules integer NOT NULL DEFAULT 0,
            expected bigint NOT NULL DEFAULT 0,
            accounted bigint NOT NULL DEFAULT 0,
            duplicates integer NOT NULL DEFAULT 0,
            unexplained integer NOT NULL DEFAULT 0,
            extra integer NOT NULL DEFAULT 0,
            contradicted integer NOT NULL DEFAULT 0,
            seconds double precision NOT NULL DEFAULT 0
        )
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE audited_hours")
