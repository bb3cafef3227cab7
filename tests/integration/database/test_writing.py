"""Transactions that lost a race are repeated, and others are not."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from database.connection import DatabaseConnection
from database.sqlstates import DEADLOCKS, LOCK_TIMEOUT, UNIQUE_VIOLATION, sqlstate
from database.writing import ATTEMPTS, again_if_lost, write_as


def test_the_victim_of_a_deadlock_does_it_again(db: DatabaseConnection) -> None:
    both_hold_one = threading.Barrier(2, timeout=30)
    attempts: list[int] = []

    def cross(first: int) -> str:
        def work(connection: Connection) -> str:
            attempts.append(first)
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (first,))
            if attempts.count(first) == 1:
                both_hold_one.wait()
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (3 - first,))
            return str(connection.exec_driver_sql("SELECT current_setting('scheduler.actor')").scalar_one())

        return write_as(db, f"thread {first}", work)

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(cross, (1, 2))) == ["thread 1", "thread 2"]
    assert len(attempts) == 3


@pytest.mark.parametrize(
    ("sql", "code", "attempts"),
    [
        ("INSERT INTO schema_compatibility (oldest_program) VALUES ('0001')", UNIQUE_VIOLATION, ATTEMPTS),
        ("DO $$ BEGIN RAISE lock_not_available; END $$", LOCK_TIMEOUT, ATTEMPTS),
        ("DO $$ BEGIN RAISE serialization_failure; END $$", "40001", ATTEMPTS),
        ("SELECT 1 / 0", "22012", 1),
    ],
)
def test_a_lost_race_has_so_many_chances_and_any_other_error_one(
    db: DatabaseConnection, sql: str, code: str, attempts: int
) -> None:
    tried: list[str] = []

    def work(connection: Connection) -> None:
        tried.append(sql)
        connection.exec_driver_sql(sql)

    with pytest.raises(DBAPIError) as raised:
        write_as(db, "test", work)
    assert (sqlstate(raised.value), len(tried)) == (code, attempts)


def test_only_the_races_that_were_named_are_run_again(db: DatabaseConnection) -> None:
    tried: list[int] = []

    def work() -> None:
        tried.append(1)
        with db.transaction() as connection:
            connection.exec_driver_sql("DO $$ BEGIN RAISE lock_not_available; END $$")

    with pytest.raises(DBAPIError):
        again_if_lost(work, DEADLOCKS)
    assert len(tried) == 1
