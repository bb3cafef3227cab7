"""Indexes that run_migrations.py builds after its transaction, while replicas run: CREATE INDEX CONCURRENTLY.

A migration names them as a literal, `CONCURRENTLY = {name: "table (…) …"}` (migrations/concurrently.py). A build that
was killed leaves an invalid index behind; the next run drops it and starts again.
"""

import ast
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import cast

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from database.connection import DatabaseConnection
from services.errors import SchedulerError

VERSIONS = Path(__file__).resolve().parent.parent / "migrations" / "versions"
LOOK_AGAIN_SECONDS = 0.2

_VALID = """
SELECT c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
WHERE i.indisvalid AND c.relname = ANY(:names) AND pg_table_is_visible(c.oid)
"""
_EXISTS = "SELECT to_regclass(:name) IS NOT NULL"
# By its table: a build is listed before its index has a name that others see. Another role's build shows no table.
_IN_PROGRESS = """
SELECT EXISTS (SELECT FROM pg_stat_progress_create_index
               WHERE datname = current_database() AND (relid IS NULL OR relid = to_regclass(:table)))
"""


@cache
def late_indexes() -> dict[str, tuple[str, str]]:
    """By name: the revision that adds it, and its definition."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(VERSIONS.glob("[0-9]*.py")):
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "CONCURRENTLY":
                named = cast(dict[str, str], ast.literal_eval(statement.value))
                found |= {name: (path.name.partition("_")[0], definition) for name, definition in named.items()}
    return found


def missing_indexes(connection: Connection, revision: str) -> dict[str, str]:
    """Those that a schema of this revision needs and that are not there, or not complete; with their definitions."""
    needed = {name: definition for name, (since, definition) in late_indexes().items() if since <= revision}
    valid = set(connection.execute(text(_VALID), {"names": list(needed)}).scalars()) if needed else set()
    return {name: definition for name, definition in needed.items() if name not in valid}


def build_indexes(db: DatabaseConnection, revision: str, lock_key: int) -> list[str]:
    """Build what is missing; returns a line for each. Whoever comes second waits for the first."""
    lines = []
    with db.clear_errors(), db.engine.connect() as opened:
        connection = opened.execution_options(isolation_level="AUTOCOMMIT")
        missing = missing_indexes(connection, revision)
        if not missing:
            return []
        connection.execute(text("SET statement_timeout = 0"))
        try:
            with _alone(connection, lock_key, pooler=db.transaction_pooler):
                built = {
                    name: definition
                    for name, definition in missing.items()
                    if _build(connection, revision, name, definition)
                }
                lines += [f"built index {name}" for name in built]
                lines += _analyze(connection, dict.fromkeys(table_of(each) for each in built.values()))
        except DBAPIError as error:
            raise SchedulerError(
                f"the schema is upgraded, but an index is not built: {error.orig}; run it again"
            ) from None
        finally:
            opened.invalidate()  # its settings and its lock end with it
    return lines


def _build(connection: Connection, revision: str, name: str, definition: str) -> bool:
    """False: somebody else has built it meanwhile."""
    table, by_us = table_of(definition), False
    while name in missing_indexes(connection, revision):
        if connection.scalar(text(_IN_PROGRESS), {"table": table}):
            time.sleep(LOOK_AGAIN_SECONDS)
            continue
        if connection.scalar(text(_EXISTS), {"name": name}):  # what a killed build has left
            connection.execute(text(f"DROP INDEX CONCURRENTLY IF EXISTS {name}"))
        connection.execute(text(f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {definition}"))
        by_us = True
    return by_us


def table_of(definition: str) -> str:
    return definition.partition(" ")[0]


def _analyze(connection: Connection, tables: Iterable[str]) -> Iterator[str]:
    """The expression of a new index has no statistics before, and the planner guesses. An empty table says nothing."""
    for table in tables:
        if connection.scalar(text(f"SELECT EXISTS (SELECT FROM {table})")):  # noqa: S608 - a name of ours
            connection.execute(text(f"ANALYZE {table}"))
            yield f"analyzed {table}"


@contextmanager
def _alone(connection: Connection, lock_key: int, *, pooler: bool) -> Iterator[None]:
    """Asked for again and again: a session that waits for the lock holds a snapshot, and the build would wait for it.

    A transaction pooler gives no session to hold it. There the check for a build in progress has to suffice.
    """
    asking = text("SELECT pg_try_advisory_lock(:key)")
    while not pooler and not connection.scalar(asking, {"key": lock_key}):
        time.sleep(LOOK_AGAIN_SECONDS)
    yield
