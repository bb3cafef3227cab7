"""curation status of domains, sitemap files and pages; author of domains and contacts"""

from alembic import op

revision = "0010"
down_revision = "0009"

WORDS = {
    "domains": "sitemap_curation_status",
    "sitemap_files": "sitemap_import_curation_status",
    "pages": "page_curation_status",
}
MADE_BY_MANY = ("domains", "contacts")
ACTOR = "coalesce(nullif(current_setting('scheduler.actor', true), ''), 'sql:' || session_user)"


def upgrade() -> None:
    for table, word in WORDS.items():
        op.execute(f"""
            ALTER TABLE {table} ADD COLUMN {word} varchar(16) NOT NULL DEFAULT 'New',
            ADD CONSTRAINT {table}_{word}_check CHECK ({word} IN ('New', 'Selected', 'Maybe', 'Not a Fit', 'Archived'))
        """)
    for table in MADE_BY_MANY:  # in two steps: nobody knows who made the rows that are there
        op.execute(f"ALTER TABLE {table} ADD COLUMN created_by text")
        op.execute(f"ALTER TABLE {table} ALTER COLUMN created_by SET DEFAULT {ACTOR}")


def downgrade() -> None:
    for table in MADE_BY_MANY:
        op.execute(f"ALTER TABLE {table} DROP COLUMN created_by")
    for table, word in WORDS.items():
        op.execute(f"ALTER TABLE {table} DROP COLUMN {word}")
