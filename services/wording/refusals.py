"""What Postgres says about its own state or the caller's rights, as one line with the way out."""

from sqlalchemy.exc import DBAPIError

from database.sqlstates import DEADLOCKS, LOCK_TIMEOUT, UNDEFINED_COLUMN, UNDEFINED_TABLE, sqlstate
from services.errors import Unavailable

OLD_SCHEMA = "the database has no (or an old) schema; run: python run_migrations.py"
REFUSALS = {
    UNDEFINED_TABLE: OLD_SCHEMA,
    UNDEFINED_COLUMN: OLD_SCHEMA,
    "42501": "this login may not do that: {}; grant it, or use another login in DATABASE_URL",
    "25006": "this database is read-only: {}",
    "57014": "Postgres took too long: {}; see DATABASE_STATEMENT_TIMEOUT_SECONDS, or who holds the lock",
    LOCK_TIMEOUT: "somebody else holds the lock: {}",
    **dict.fromkeys(DEADLOCKS, "somebody else changed the same rows at the same time: {}; do it again"),
    "53100": "Postgres is out of disk space: {}",
    "53200": "Postgres is out of memory: {}",
}
# What passes by itself: a lock, a timeout, a deadlock, too many connections, a server that starts or stops.
BUSY = ("55P03", "57014", "40P01", "40001", "53300", "57P01", "57P02", "57P03")
# A refused connection has no SQLSTATE in psycopg2, only what the server says, in English unless somebody changed that.
BUSY_WORDS = ("the database system is", "too many clients", "too many connections", "connection slots are reserved")


def is_busy(error: DBAPIError | Unavailable) -> bool:
    """Is the server there, and may the same call work a moment later?"""
    if isinstance(error, DBAPIError):
        return sqlstate(error) in BUSY
    return any(words in str(error) for words in BUSY_WORDS)


def refusal(error: DBAPIError) -> str | None:
    """What Postgres says about its own state or the caller's rights, in one line; None for what must be our mistake."""
    text = REFUSALS.get(sqlstate(error))
    return text and text.format(first_line(error))


def first_line(error: DBAPIError | Unavailable) -> str:
    """What the server said, without the statement and its place in it."""
    return str(error.orig if isinstance(error, DBAPIError) else error).strip().partition("\n")[0]
