"""Compatibility of this program with the database schema, checked by every program at startup, without Alembic.

A schema older than the program is refused, because statements would fail one by one. A newer schema is normal during a
rolling upgrade, unless a migration declares which programs it breaks (`schema_compatibility`).
"""

from functools import cache

from sqlalchemy.exc import DBAPIError

from database.connection import DatabaseConnection
from database.late_indexes import VERSIONS, missing_indexes
from database.sqlstates import UNDEFINED_TABLE, sqlstate
from services.errors import ConfigurationError

RUN_MIGRATIONS = "run: python run_migrations.py"

_AT = "SELECT max(version_num) FROM alembic_version"
_OLDEST = "SELECT oldest_program FROM schema_compatibility"


@cache
def newest_revision() -> str:
    """The revision that this program needs: its last migration. File names begin with the revision."""
    return max(path.name for path in VERSIONS.glob("[0-9]*.py")).partition("_")[0]


def require_schema(db: DatabaseConnection) -> None:
    """Raises ConfigurationError, in one line with the remedy, unless this program can work with the database."""
    if (problem := schema_problem(db)) is not None:
        raise ConfigurationError(problem)


def schema_problem(db: DatabaseConnection) -> str | None:
    current, needed = _ask(db, _AT), newest_revision()
    if current is None:
        return f"the database has no schema; {RUN_MIGRATIONS}"
    if current < needed:
        return f"the database schema is at revision {current}, but this program needs {needed}; {RUN_MIGRATIONS}"
    oldest = _ask(db, _OLDEST) if current > needed else None
    if oldest is not None and oldest > needed:
        return (
            f"the database schema is at revision {current} and requires a program of revision {oldest} or newer; "
            f"this program is at {needed}: install a newer version"
        )
    with db.transaction() as connection:
        missing = missing_indexes(connection, needed)
    if missing:  # without it a statement that runs every second reads the whole table
        return f"the database has no complete index {', '.join(missing)}; {RUN_MIGRATIONS}"
    return None


def _ask(db: DatabaseConnection, sql: str) -> str | None:
    """None also when the table is missing."""
    try:
        with db.transaction() as connection:
            answer = connection.exec_driver_sql(sql).scalar_one_or_none()
    except DBAPIError as error:
        if sqlstate(error) != UNDEFINED_TABLE:
            raise
        return None
    return None if answer is None else str(answer)
