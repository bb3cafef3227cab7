"""For migrations that add an index to a table which may be large and in use: `CONCURRENTLY = {name: "table (…) …"}`.

CREATE INDEX locks out every writer until it is done, and CONCURRENTLY cannot run inside the upgrade's transaction. So
the upgrade builds the index only where the table has no rows; else run_migrations.py does so after it
(database/late_indexes.py, which reads the literal from the migration's file).
"""

from collections.abc import Mapping

from alembic import context, op
from sqlalchemy import text


def later(indexes: Mapping[str, str]) -> None:
    for name, definition in indexes.items():
        table = definition.partition(" ")[0]
        if context.is_offline_mode() or _is_empty(table):
            op.execute(f"CREATE INDEX {name} ON {definition}")


def _is_empty(table: str) -> bool:
    return op.get_bind().scalar(text(f"SELECT NOT EXISTS (SELECT FROM {table})")) is True
