"""SQLSTATEs: Postgres' error codes. https://www.postgresql.org/docs/current/errcodes-appendix.html"""

from sqlalchemy.exc import DBAPIError

UNDEFINED_TABLE, UNDEFINED_COLUMN = "42P01", "42703"
UNIQUE_VIOLATION = "23505"
LOCK_TIMEOUT = "55P03"
DEADLOCKS = ("40P01", "40001")  # the victim wrote nothing, so a retry is safe
LOST_RACES = (*DEADLOCKS, LOCK_TIMEOUT, UNIQUE_VIOLATION)
VALUE_ERRORS = ("22", "23", "54")  # classes: data, constraints, limits


def sqlstate(error: BaseException) -> str:
    """Empty for an error that no statement caused, such as a broken connection."""
    if not isinstance(error, DBAPIError):
        return ""
    return getattr(error.orig, "pgcode", None) or getattr(error.orig, "sqlstate", None) or ""  # psycopg 2 and 3
