"""a place that is kept for an execution which has waited long for several limits at once

On the stripe of its key, which every claim of the key locks anyway: to see that nothing is kept costs a claim nothing.
"""

from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    op.execute("ALTER TABLE limit_stripes ADD kept jsonb")


def downgrade() -> None:
    op.execute("ALTER TABLE limit_stripes DROP kept")
