"""How far the clock is ahead of the real one: a sequence of Postgres, which is read past all snapshots, and a file."""

import mmap
import os
import struct
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import text

from database.clock import DatabaseClock
from database.connection import DatabaseConnection
from run_migrations import upgrade

NUMBER = struct.Struct("<q")  # microseconds
MICROSECOND = timedelta(microseconds=1)
# Before the migrations: defaults and conditions of triggers are bound to functions when they are made.
SCHEMA = """
CREATE SCHEMA virtual;
CREATE UNLOGGED SEQUENCE virtual.ahead MINVALUE 0;
SELECT setval('virtual.ahead', 0);
CREATE FUNCTION virtual.ahead_by() RETURNS interval LANGUAGE sql STABLE AS
$$ SELECT pg_catalog.pg_sequence_last_value('virtual.ahead'::regclass) * interval '1 microsecond' $$;
CREATE FUNCTION virtual.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
$$ SELECT pg_catalog.clock_timestamp() + virtual.ahead_by() $$;
CREATE FUNCTION virtual.now() RETURNS timestamptz LANGUAGE sql STABLE AS
$$ SELECT pg_catalog.now() + virtual.ahead_by() $$;
CREATE FUNCTION virtual.transaction_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS
$$ SELECT pg_catalog.now() + virtual.ahead_by() $$;
CREATE FUNCTION virtual.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS
$$ SELECT pg_catalog.statement_timestamp() + virtual.ahead_by() $$;
DO $$ BEGIN
    EXECUTE 'ALTER DATABASE ' || quote_ident(current_database()) || ' SET search_path = public, virtual, pg_catalog';
END $$
"""
AFTER_MIGRATIONS = """
DO $$ DECLARE f regprocedure; BEGIN
    FOR f IN SELECT oid FROM pg_proc
             WHERE pronamespace = 'public'::regnamespace AND strpos(proconfig::text, 'search_path') > 0
    LOOP EXECUTE 'ALTER FUNCTION ' || f || ' SET search_path = public, virtual, pg_catalog, pg_temp'; END LOOP;
END $$
"""
# Heartbeats go along: nobody was silent meanwhile.
JUMP = """
UPDATE scheduler_instances SET heartbeat_at = heartbeat_at + :jump * interval '1 microsecond';
SELECT setval('virtual.ahead', :ahead)
"""


class VirtualClock:
    """The side that moves it. There is one."""

    def __init__(self, file: Path, db: DatabaseConnection) -> None:
        self._db, self._ahead = db, timedelta(0)
        self._file = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(self._file, NUMBER.pack(0), 0)

    def install(self) -> None:
        """Into an empty database, whose connections have to be made after this."""
        with self._db.transaction() as connection:
            connection.exec_driver_sql(SCHEMA)
        self._db.engine.dispose()
        upgrade(self._db)
        with self._db.transaction() as connection:
            connection.exec_driver_sql(AFTER_MIGRATIONS)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def jump_to(self, instant: datetime) -> None:
        """Forward only."""
        ahead = instant - datetime.now(UTC)
        if ahead <= self._ahead:
            return
        numbers = {"jump": (ahead - self._ahead) // MICROSECOND, "ahead": ahead // MICROSECOND}
        with self._db.transaction() as connection:
            for statement in JUMP.split(";"):
                connection.execute(text(statement), numbers)
        self._ahead = ahead
        os.pwrite(self._file, NUMBER.pack(ahead // MICROSECOND), 0)


class ReplicaClock(DatabaseClock):
    """The side that follows. Its Postgres is on the same machine, so there is no skew to measure."""

    def __init__(self, max_skew_seconds: float, local: Callable[[], float]) -> None:
        super().__init__(max_skew_seconds, local)

    def measure(self, ask: Callable[[], float]) -> None:
        ask()


def local_time(file: Path) -> Callable[[], float]:
    """time.time() plus what the file says."""
    with file.open("rb") as opened:
        shared = mmap.mmap(opened.fileno(), NUMBER.size, access=mmap.ACCESS_READ)
    return lambda: time.time() + NUMBER.unpack_from(shared)[0] / 1e6
