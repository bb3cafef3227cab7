"""daily requests to the places API; indexes for the lists of the pipeline's rows"""

from alembic import op

revision = "0016"
down_revision = "0015"

LISTED = ("places_staging", "local_businesses", "domains", "sitemap_files", "pages")


def upgrade() -> None:
    op.execute("""
        CREATE TABLE place_requests (
            day date NOT NULL,
            api text NOT NULL,
            operation text NOT NULL,
            requests bigint NOT NULL DEFAULT 0,
            PRIMARY KEY (day, api, operation)
        )
    """)
    for table in LISTED:
        op.execute(f"CREATE INDEX {table}_created_at_idx ON {table} (created_at, id)")


def downgrade() -> None:
    for table in LISTED:
        op.execute(f"DROP INDEX {table}_created_at_idx")
    op.execute("DROP TABLE place_requests")
