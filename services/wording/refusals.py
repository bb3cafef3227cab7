"""What Postgres says about its own state or the caller's rights, as one line with the way out."""

from sqlalchemy.exc import DBAPIError

from database.sqlstates import DEADLOCKS, LOCK_TIMEOUT, UNDEFINED_COLUMN, UNDEFINED_TABLE, sqlstate

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


def refusal(error: DBAPIError) -> str | None:
    """What Postgres says about its own state or the caller's rights, in one line; None for what must be our mistake."""
    said = str(error.orig).strip().partition("\n")[0]
    text = REFUSALS.get(sqlstate(error))
    return text and text.format(said)
