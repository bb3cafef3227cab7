"""Indexes that are built while replicas run: complete or built again, and no writer waits for them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, text

from config import PROJECT_ROOT
from database import late_indexes
from database.connection import DatabaseConnection
from database.schema import newest_revision, schema_problem
from run_migrations import upgrade
from tests.support.waiting import eventually

NAME = "schedules_of_a_test_idx"
BUILDERS = "SELECT pid FROM pg_stat_progress_create_index WHERE datname = current_database()"
INVALID = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = CAST(:name AS regclass)"
INSERT = """INSERT INTO schedules (domain_config_id, domain, frequency, time_config)
            VALUES (gen_random_uuid(), 'a.example', 'daily', '{"hour": 1, "minute": 0}')"""


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest revision names an index that its migration did not build."""
    index = {NAME: (newest_revision(), "schedules (domain, updated_at)")}
    monkeypatch.setattr(late_indexes, "late_indexes", lambda: index)


def is_complete(db: DatabaseConnection) -> bool:
    with db.transaction() as connection:
        return not late_indexes.missing_indexes(connection, newest_revision())


@contextmanager
def open_transaction(db: DatabaseConnection) -> Iterator[Connection]:
    """A writer whose end every build has to wait for."""
    with db.engine.begin() as connection:
        connection.execute(text(INSERT))
        yield connection


@pytest.mark.usefixtures("late")
def test_a_missing_index_is_built_once(db: DatabaseConnection) -> None:
    assert upgrade(db) == [f"built index {NAME}"]
    assert is_complete(db)
    assert upgrade(db) == []


@pytest.mark.usefixtures("late")
def test_what_a_killed_build_has_left_is_built_again(db: DatabaseConnection) -> None:
    upgrade(db)
    with db.transaction() as connection:
        connection.execute(text(INVALID), {"name": NAME})
    assert not is_complete(db)
    assert upgrade(db) == [f"built index {NAME}"]
    assert is_complete(db)


@pytest.mark.usefixtures("late")
def test_writers_go_on_while_it_is_built_and_a_second_run_waits(db: DatabaseConnection) -> None:
    with ThreadPoolExecutor(2) as pool:
        with open_transaction(db):
            runs = [pool.submit(upgrade, db) for _ in range(2)]
            eventually(lambda: _is_building(db))
            with db.transaction() as other:
                other.execute(text("SET LOCAL lock_timeout = '1s'"))
                other.execute(text(INSERT))
        lines = [line for run in runs for line in run.result(timeout=30)]
    assert lines == [f"built index {NAME}", "analyzed schedules"]
    assert is_complete(db)


def test_the_expression_of_a_new_index_has_statistics_at_once(
    db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = {NAME: (newest_revision(), "schedules (lower(domain))")}
    monkeypatch.setattr(late_indexes, "late_indexes", lambda: index)
    with db.transaction() as connection:
        connection.execute(text(INSERT))
    assert upgrade(db) == [f"built index {NAME}", "analyzed schedules"]
    with db.transaction() as connection:
        assert connection.scalar(text("SELECT count(*) FROM pg_stats WHERE tablename = :name"), {"name": NAME}) == 1


def _is_building(db: DatabaseConnection) -> bool:
    with db.transaction() as connection:
        return bool(connection.scalars(text(BUILDERS)).all())


@pytest.mark.usefixtures("late")
def test_a_session_that_ends_in_the_middle_leaves_the_rest_to_the_next_run(db: DatabaseConnection) -> None:
    with ThreadPoolExecutor(1) as pool:
        with open_transaction(db):
            run = pool.submit(upgrade, db)
            eventually(lambda: _is_building(db))
            with db.transaction() as connection:
                connection.execute(text(f"SELECT pg_terminate_backend(pid) FROM ({BUILDERS}) AS builders"))
            with pytest.raises(Exception, match="an index is not built"):
                run.result(timeout=30)
        assert schema_problem(db) == (f"the database has no complete index {NAME}; run: python run_migrations.py"), (
            "a program refuses to start without it"
        )
        assert upgrade(db) == [f"built index {NAME}", "analyzed schedules"]
    assert schema_problem(db) is None


def test_every_index_that_a_migration_leaves_for_later_is_a_literal_that_is_read() -> None:
    texts = {path.name[:4]: path.read_text() for path in (PROJECT_ROOT / "migrations/versions").glob("[0-9]*.py")}
    naming = {revision for revision, source in texts.items() if "later(CONCURRENTLY)" in source}
    assert {revision for revision, _ in late_indexes.late_indexes().values()} == naming
