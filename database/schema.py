"""Does this program fit the database's schema? Asked by every program before it begins, without Alembic.

A schema older than the program is refused: statements would fail one by one. A newer one is normal while replicas are
upgraded one after the other, unless a migration has said which programs it breaks (`schema_compatibility`).
"""

from functools import cache
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from database.connection import DatabaseConnection
from database.sqlstates import UNDEFINED_TABLE, sqlstate
from services.errors import ConfigurationError

VERSIONS = Path(__file__).resolve().parent.parent / "migrations" / "versions"
RUN_MIGRATIONS = "run: python run_migrations.py"

_AT = "SELECT max(version_num) FROM alembic_version"
_OLDEST = "SELECT oldest_program FROM schema_compatibility"


@cache
def newest_revision() -> str:
    """What this program needs: the last of its own migrations, whose files begin with their numbers."""
    return max(path.name for path in VERSIONS.glob("[0-9]*.py")).partition("_")[0]


def require_schema(db: DatabaseConnection) -> None:
    """Raises ConfigurationError, in one line with the way out, unless this program can work with the database."""
    if (problem := schema_problem(db)) is not None:
        raise ConfigurationError(problem)


def schema_problem(db: DatabaseConnection) -> str | None:
    current, needed = _ask(db, _AT), newest_revision()
    if current is None:
        return f"the database has no schema; {RUN_MIGRATIONS}"
    if current < needed:
        return f"the schema is at revision {current}, this program needs {needed}; {RUN_MIGRATIONS}"
    oldest = _ask(db, _OLDEST) if current > needed else None
    if oldest is not None and oldest > needed:
        return (
            f"the schema is at revision {current}, which only programs from {oldest} on understand; "
            f"this one is of {needed}: use a newer version"
        )
    return None


def _ask(db: DatabaseConnection, sql: str) -> str | None:
    """None also when there is no such table."""
    try:
        with db.transaction() as connection:
            answer = connection.exec_driver_sql(sql).scalar_one_or_none()
    except DBAPIError as error:
        if sqlstate(error) != UNDEFINED_TABLE:
            raise
        return None
    return None if answer is None else str(answer)
