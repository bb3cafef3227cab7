"""which older programs the schema excludes

Programs older than the schema go on working with it during a rolling upgrade. A migration that breaks them says so:

    op.execute("UPDATE schema_compatibility SET oldest_program = '0020'")

with its own number, or that of the first migration whose programs understand the new schema. Older ones then refuse to
start. Its downgrade sets the former number again.
"""

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE schema_compatibility (
            only_row boolean PRIMARY KEY DEFAULT true,
            oldest_program text NOT NULL,
            CONSTRAINT schema_compatibility_only_row_check CHECK (only_row)
        )
        """
    )
    op.execute("INSERT INTO schema_compatibility (oldest_program) VALUES ('0001')")


def downgrade() -> None:
    op.execute("DROP TABLE schema_compatibility")
