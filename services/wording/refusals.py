"""Errors from Postgres about its state or the login's privileges, as one line with the remedy."""

from sqlalchemy.exc import DBAPIError

from database.sqlstates import DEADLOCKS, LOCK_TIMEOUT, UNDEFINED_COLUMN, UNDEFINED_TABLE, sqlstate
from services.errors import Unavailable

OLD_SCHEMA = "the database schema is missing or outdated; run: python run_migrations.py"
REFUSALS = {
    UNDEFINED_TABLE: OLD_SCHEMA,
    UNDEFINED_COLUMN: OLD_SCHEMA,
    "42501": "the database login lacks a privilege: {}; grant it, or use another login in DATABASE_URL",
    "25006": "the database is read-only: {}",
    "57014": "Postgres took too long: {}; check DATABASE_STATEMENT_TIMEOUT_SECONDS and which session holds a lock",
    LOCK_TIMEOUT: "another session holds the lock: {}",
    **dict.fromkeys(DEADLOCKS, "another session changed the same rows at the same time: {}; try again"),
    "53100": "Postgres is out of disk space: {}",
    "53200": "Postgres is out of memory: {}",
}
# Transient errors: a lock, a timeout, a deadlock, too many connections, a server that starts or stops.
BUSY = ("55P03", "57014", "40P01", "40001", "53300", "57P01", "57P02", "57P03")
# A refused connection has no SQLSTATE in psycopg2, only the server's message, which is English by default.
BUSY_WORDS = ("the database system is", "too many clients", "too many connections", "connection slots are reserved")


def is_busy(error: DBAPIError | Unavailable) -> bool:
    """Whether the server is up and the same call may succeed a moment later."""
    if isinstance(error, DBAPIError):
        return sqlstate(error) in BUSY
    return any(words in str(error) for words in BUSY_WORDS)


def refusal(error: DBAPIError) -> str | None:
    """The error in one line if it concerns Postgres' state or privileges; None for what must be our own mistake."""
    text = REFUSALS.get(sqlstate(error))
    return text and text.format(first_line(error))


def first_line(error: DBAPIError | Unavailable) -> str:
    """The server's message, without the statement and the position in it."""
    return str(error.orig if isinstance(error, DBAPIError) else error).strip().partition("\n")[0]
