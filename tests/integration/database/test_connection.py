"""The door to Postgres: pooled, thread-safe, and clear about a server that is away."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import event, select, text
from sqlalchemy.exc import DBAPIError

import database.connection
from config import get_settings
from database.connection import DatabaseConnection, get_db_connection
from database.models import ScanProfile
from services.embedded import EmbeddedServers
from services.errors import ConfigurationError, SchedulerError, Unavailable
from services.job_history import JobHistory
from services.schedule_repository import ScheduleRepository
from tests.support.places import run_places
from tests.support.schedules import VALID
from tests.support.waiting import eventually


def test_a_transaction_is_committed_at_its_end_and_rolled_back_by_an_exception(db: DatabaseConnection) -> None:
    with db.transaction() as connection:
        connection.execute(text("INSERT INTO scan_profiles (name) VALUES ('kept')"))
    with pytest.raises(DBAPIError), db.transaction() as connection:
        connection.execute(text("INSERT INTO scan_profiles (name) VALUES ('lost'); SELECT 1 / 0"))
    with db.transaction() as connection:
        assert connection.scalars(text("SELECT name FROM scan_profiles")).all() == ["kept"]


def test_a_background_session_is_a_transaction_of_its_own(db: DatabaseConnection) -> None:
    with db.get_background_session() as session:
        session.add(ScanProfile(name="from the session"))
    with db.get_background_session() as session:
        assert session.scalars(select(ScanProfile.name)).all() == ["from the session"]


def test_many_threads_share_a_small_pool(database_url: str) -> None:
    db = DatabaseConnection(database_url, pool_size=2)

    def ask(number: int) -> int:
        with db.transaction() as connection:
            return int(connection.execute(text("SELECT :n"), {"n": number}).scalar_one())

    with ThreadPoolExecutor(20) as threads:
        assert list(threads.map(ask, range(200))) == list(range(200))
    with db.transaction() as connection:
        query = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        assert connection.execute(query).scalar_one() <= 2


def test_an_exhausted_pool_is_a_clear_error(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database.connection, "POOL_WAIT_SECONDS", 0.2)
    db = DatabaseConnection(database_url, pool_size=1)
    with (
        db.transaction(),
        pytest.raises(Unavailable, match=r"all connections of this process have been busy for 0\.2 s"),
        db.transaction(),
    ):
        pass


def test_sessions_are_named_and_in_utc(database_url: str) -> None:
    db = DatabaseConnection(database_url, application_name="replica-7")
    with db.transaction() as connection:
        row = connection.execute(text("SELECT current_setting('application_name'), current_setting('timezone')")).one()
    assert tuple(row) == ("replica-7", "UTC")


@pytest.mark.parametrize("transaction_pooler", [False, True])
def test_a_statement_that_takes_too_long_is_ended(database_url: str, transaction_pooler: bool) -> None:
    db = DatabaseConnection(database_url, statement_timeout_seconds=1, transaction_pooler=transaction_pooler)
    with pytest.raises(DBAPIError, match="statement timeout"), db.transaction() as connection:
        connection.execute(text("SELECT pg_sleep(20)"))
    assert db.ping()


def test_behind_a_transaction_pooler_nothing_is_kept_in_the_session(database_url: str) -> None:
    db = DatabaseConnection(database_url, pool_size=1, transaction_pooler=True)
    with db.engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        assert not raw.info.dsn_parameters.get("options"), "pgbouncer refuses start-up options"
    with db.transaction() as connection:
        assert connection.execute(text("SHOW statement_timeout")).scalar_one() == "30s"
        assert connection.execute(text("SHOW timezone")).scalar_one() == "UTC"
    raw_connection = db.engine.raw_connection()
    cursor = raw_connection.cursor()
    cursor.execute("SHOW statement_timeout")
    assert cursor.fetchone() == ("0",)
    raw_connection.close()


@pytest.mark.parametrize("transaction_pooler", [False, True])
def test_a_session_that_sleeps_inside_a_transaction_loses_its_locks(
    db: DatabaseConnection, database_url: str, transaction_pooler: bool
) -> None:
    """A process that is frozen there: everybody else skips the rows that it holds."""
    frozen = DatabaseConnection(database_url, idle_in_transaction_seconds=1, transaction_pooler=transaction_pooler)
    with suppress(Unavailable), frozen.transaction() as asleep:  # its session is gone when it wakes up
        asleep.execute(text("LOCK TABLE schedules"))
        with db.transaction() as somebody:
            somebody.execute(text("SET LOCAL lock_timeout = '20s'"))
            somebody.execute(text("LOCK TABLE schedules"))
    frozen.close()


@pytest.mark.parametrize("transaction_pooler", [False, True])
def test_a_dedicated_connection_waits_for_no_lock(
    db: DatabaseConnection, database_url: str, transaction_pooler: bool
) -> None:
    """The heart's single statements, too: one that waits for ever gives no sign of life."""
    engine = DatabaseConnection(database_url, statement_timeout_seconds=20, transaction_pooler=transaction_pooler)
    dedicated = engine.dedicated()
    with db.transaction() as somebody:
        somebody.execute(text("LOCK TABLE scheduler_instances"))
        with pytest.raises(DBAPIError, match="lock timeout"):
            dedicated.run("SELECT instance_id FROM scheduler_instances")
    limits = "SELECT current_setting('statement_timeout') AS statement, current_setting('timezone') AS zone"
    assert dedicated.run(limits) == [("20s", "UTC")]
    dedicated.close()
    engine.close()


def test_a_dead_server_is_reported_at_once_and_without_the_password() -> None:
    db = DatabaseConnection("postgresql://user:hunter2@127.0.0.1:1/db")
    started = time.monotonic()
    with (
        pytest.raises(Unavailable, match=r"Postgres at user:\*\*\*@127\.0\.0\.1:1/db does not answer: ") as refused,
        db.transaction(),
    ):
        pass
    assert time.monotonic() - started < 3
    assert "hunter2" not in str(refused.value)
    assert db.ping() is False


def test_who_wants_to_listen_to_a_dead_server_is_told_so() -> None:
    with pytest.raises(Unavailable, match="Postgres"):
        DatabaseConnection("postgresql://user:secret@127.0.0.1:1/none").listener("schedules_changed")


def test_a_password_among_the_parameters_is_not_shown_either() -> None:
    db = DatabaseConnection("postgresql://user@127.0.0.1:1/db?password=hunter2&sslpassword=hunter2")
    assert "hunter2" not in db.where
    assert db.where.startswith("user@127.0.0.1:1/db?password=***")


def test_the_options_of_the_address_hold_beside_ours(database_url: str) -> None:
    db = DatabaseConnection(f"{database_url}{'&' if '?' in database_url else '?'}options=-c%20work_mem%3D5MB")
    with db.transaction() as connection:
        row = connection.execute(text("SELECT current_setting('work_mem'), current_setting('timezone')")).one()
    assert tuple(row) == ("5MB", "UTC")


def test_a_server_that_accepts_but_says_nothing_is_given_up(silent_port: int) -> None:
    db = DatabaseConnection(f"postgresql://user@127.0.0.1:{silent_port}/db", connect_timeout_seconds=2)
    assert db.ping() is False


def test_an_address_that_is_none_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="is not the URL of a Postgres server"):
        DatabaseConnection("postgresql://host:port/db")


@pytest.fixture
def silent_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def own_servers(tmp_path: Path) -> Iterator[EmbeddedServers]:
    with EmbeddedServers(tmp_path / "servers", postgres_options={"fsync": "off"}, linger_seconds=0) as servers:
        yield servers


def test_calls_fail_clearly_while_postgres_is_away_and_work_when_it_is_back(own_servers: EmbeddedServers) -> None:
    db = DatabaseConnection(own_servers.start().database_url)
    assert db.ping()
    own_servers.stop_postgres("immediate")
    with pytest.raises(Unavailable), db.transaction() as connection:
        connection.execute(text("SELECT 1"))
    own_servers.start_postgres()
    with db.transaction() as connection:
        assert connection.execute(text("SELECT 1")).scalar_one() == 1
    db.close()


def test_a_transaction_that_loses_its_server_midway_is_a_clear_error(own_servers: EmbeddedServers) -> None:
    db = DatabaseConnection(own_servers.start().database_url)

    def lose_the_server_midway() -> None:
        with db.transaction() as connection:
            connection.execute(text("SELECT 1"))
            own_servers.restart_postgres("immediate")
            connection.execute(text("SELECT 1"))

    with pytest.raises(Unavailable):
        lose_the_server_midway()
    assert db.ping()
    db.close()


def test_one_connection_per_process(own_process: dict[str, str]) -> None:
    found: list[DatabaseConnection] = []
    threads = [threading.Thread(target=lambda: found.append(get_db_connection())) for _ in range(2)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(found) == 2)
    assert get_db_connection() is get_db_connection()
    assert get_db_connection().ping()


def test_the_settings_decide_the_pool(own_process: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_POOL_SIZE", "1")
    monkeypatch.setenv("INSTANCE_ID", "replica-9")
    get_settings.cache_clear()
    with get_db_connection().transaction() as connection:
        assert connection.execute(text("SHOW application_name")).scalar_one() == "replica-9"
    assert get_db_connection().engine.pool.size() == 1  # type: ignore[attr-defined]


LIBRARY_CALLS: dict[str, Callable[[DatabaseConnection], object]] = {
    "create_schedule": lambda db: ScheduleRepository(db).create_schedule(**VALID),
    "get_all_schedules": lambda db: ScheduleRepository(db).get_all_schedules(),
    "get_recent_executions": lambda db: JobHistory(db, fence_horizon_seconds=60).get_recent_executions(hours=1),
    "run_job_loop": lambda db: run_places(db, lambda key, session: None),
}


@pytest.mark.parametrize("call", LIBRARY_CALLS)
def test_a_call_without_a_schema_is_one_sentence_with_the_way_out(
    empty_database_url: str, call: str, only_built_in_jobs: None
) -> None:
    with closing(DatabaseConnection(empty_database_url)) as db, pytest.raises(SchedulerError) as refused:
        LIBRARY_CALLS[call](db)
    assert str(refused.value) == "the database schema is missing or outdated; run: python run_migrations.py"
    assert refused.value.__suppress_context__, "the traceback shows our call, not the driver's"


def test_a_table_that_was_never_ours_is_no_missing_schema(db: DatabaseConnection) -> None:
    with pytest.raises(DBAPIError, match='relation "of_a_job" does not exist') as refused, db.transaction() as own:
        own.execute(text("SELECT * FROM of_a_job"))
    assert not isinstance(refused.value, SchedulerError)


def test_a_session_that_ends_with_its_answer_costs_neither_the_answer_nor_a_place_in_the_pool(
    db: DatabaseConnection, database_url: str
) -> None:
    def end(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "last" in statement:
            with db.transaction() as connection:
                connection.exec_driver_sql(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'mortal'"
                )

    with closing(DatabaseConnection(database_url, application_name="mortal", pool_size=1)) as own:
        event.listen(own.engine, "after_cursor_execute", end)
        for _ in range(2):
            said = [own.run_alone(f"SELECT '{words}'", {})[0][0] for words in ("first words", "last words")]
            assert said == ["first words", "last words"]


def test_a_statement_that_runs_alone_leaves_no_autocommit_behind(database_url: str) -> None:
    with closing(DatabaseConnection(database_url, pool_size=1)) as own:
        own.run_alone("INSERT INTO scan_profiles (name) VALUES (%(name)s)", {"name": "alone"})
        with pytest.raises(DBAPIError), own.transaction() as connection:
            connection.execute(text("INSERT INTO scan_profiles (name) VALUES ('lost'); SELECT 1 / 0"))
        with own.transaction() as connection:
            assert connection.scalars(text("SELECT name FROM scan_profiles")).all() == ["alone"]
