"""Starting a replica: once, and without leaving anything behind when it cannot."""

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from config import load_settings
from database.connection import DatabaseConnection
from services.engine.loops import Loop
from services.engine.start_patience import StartInterrupted, StartPatience
from services.engine.timer import Timer
from services.enhanced_scheduler import EnhancedScheduler
from services.errors import ConfigurationError, SchedulerError, Unavailable
from services.jobs import ExecutionContext, default_registry
from services.schedule_repository import ScheduleRepository
from tests.support.executions import rows
from tests.support.waiting import eventually

Make = Callable[..., EnhancedScheduler]


# Of this test: others of this file may run at the same time, in databases of their own.
SESSIONS = """SELECT count(*) FROM pg_stat_activity
              WHERE application_name LIKE 'under-test#%%' AND datname = current_database()"""


@pytest.fixture
def replica(own_process: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes schedulers with the given settings; all are stopped after the test."""
    made = []

    def make(**environment: str) -> EnhancedScheduler:
        with monkeypatch.context() as this_one:
            for name, value in {"INSTANCE_ID": "under-test", **environment}.items():
                this_one.setenv(name, value)
            made.append(EnhancedScheduler(settings=load_settings(), enable_api_sync=False))
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.stop()


@pytest.fixture
def nothing_is_left(db: DatabaseConnection) -> Callable[[], bool]:
    """True when there are no more threads than before the test, and Postgres knows nobody of our name."""
    before = set(threading.enumerate())

    def check() -> bool:
        with db.transaction() as connection:
            registered = "SELECT count(*) FROM scheduler_instances"
            found = [connection.exec_driver_sql(sql).scalar_one() for sql in (SESSIONS, registered)]
        return found == [0, 0] and set(threading.enumerate()) <= before

    return check


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_scheduler_is_started_once(replica: Make, nothing_is_left: Callable[[], bool]) -> None:
    scheduler = replica()
    scheduler.start()
    with pytest.raises(SchedulerError, match="started already; make a new EnhancedScheduler"):
        scheduler.start()
    eventually(lambda: scheduler.readiness() == [])  # the first start still holds
    scheduler.stop()
    with pytest.raises(SchedulerError, match="started already"):
        scheduler.start()
    eventually(nothing_is_left)


def test_a_replica_that_has_started_says_that_it_claims_and_runs_what_is_due(
    replica: Make, db: DatabaseConnection
) -> None:
    @default_registry.job("noop")
    def _noop(context: ExecutionContext, config: dict[str, Any]) -> None:
        """Does nothing."""

    scheduler = replica()
    scheduler.start()
    ScheduleRepository(db).create_schedule(
        domain="job", job_type="noop", frequency="interval", time_config={"seconds": 1}
    )
    eventually(lambda: ("success",) in rows(db, "status"), 30)
    assert scheduler.engine.condition.claiming
    with db.transaction() as connection:
        assert connection.exec_driver_sql("SELECT claiming FROM scheduler_instances").all() == [(True,)]


def test_a_setting_that_cannot_be_obeyed_is_warned_about_at_the_start(
    replica: Make, caplog: pytest.LogCaptureFixture
) -> None:
    replica(JOB_REPLACE_EXISTING_INSTANCE="false").start()
    (warned,) = [record for record in caplog.records if vars(record).get("event") == "setting_without_effect"]
    assert warned.levelname == "WARNING"
    assert "JOB_REPLACE_EXISTING_INSTANCE=false has no effect" in warned.getMessage()


def test_a_port_in_use_leaves_nothing_behind(
    replica: Make, taken_port: int, nothing_is_left: Callable[[], bool]
) -> None:
    with pytest.raises(ConfigurationError, match=f"METRICS_PORT={taken_port} is not available"):
        replica(METRICS_HOST="127.0.0.1", METRICS_PORT=str(taken_port)).start()
    eventually(nothing_is_left)


def test_without_postgres_the_port_is_given_back(replica: Make, nothing_is_left: Callable[[], bool]) -> None:
    port = free_port()
    nobody = f"postgresql://nobody@127.0.0.1:{free_port()}/nothing"
    with pytest.raises(Unavailable, match="Postgres at"):
        replica(METRICS_HOST="127.0.0.1", METRICS_PORT=str(port), DATABASE_URL=nobody).start()
    with socket.create_server(("127.0.0.1", port)):
        eventually(nothing_is_left)


def test_an_unusable_address_of_redis_leaves_nothing_behind(replica: Make, nothing_is_left: Callable[[], bool]) -> None:
    with pytest.raises(ConfigurationError, match="REDIS_URL="):
        replica(REDIS_URL="redis://127.0.0.1:port/0").start()
    eventually(nothing_is_left)


def test_a_start_that_fails_after_the_first_heartbeat_takes_it_back(
    replica: Make, nothing_is_left: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Loop.start

    def no_more_threads(loop: Loop) -> None:
        if loop.name == "rescuer":
            raise RuntimeError("can't start new thread")
        start(loop)

    monkeypatch.setattr(Loop, "start", no_more_threads)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        replica().start()
    eventually(nothing_is_left)


def test_after_a_failed_start_it_can_be_tried_again(replica: Make, nothing_is_left: Callable[[], bool]) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        scheduler = replica(METRICS_HOST="127.0.0.1", METRICS_PORT=str(port))
        with pytest.raises(ConfigurationError):
            scheduler.start()
    scheduler.start()
    eventually(lambda: scheduler.readiness() == [])
    scheduler.stop()
    eventually(nothing_is_left)


# --- a database that is only busy ---


@contextmanager
def locked(db: DatabaseConnection, table: str) -> Iterator[Callable[[], None]]:
    """Somebody's migration, until the block ends or what it gives is called."""
    with db.engine.connect() as session:
        session.exec_driver_sql(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield session.rollback


@pytest.mark.parametrize("table", ["scheduler_instances", "job_executions", "schedules"])
def test_a_start_waits_for_a_table_that_is_locked(
    replica: Make, db: DatabaseConnection, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    scheduler = replica(WORKFLOWS_ENABLED="true")
    with locked(db, table) as release, ThreadPoolExecutor(1) as beside:
        starting = beside.submit(scheduler.start)
        eventually(lambda: events(caplog).count("start_waits") == 1)
        assert scheduler.readiness()[0] == "starting"
        release()
        starting.result(60)
    eventually(lambda: scheduler.readiness() == [])  # its share is loaded
    assert (events(caplog).count("start_waits"), events(caplog).count("started")) == (1, 1)


def test_a_start_does_not_wait_for_ever(
    replica: Make, db: DatabaseConnection, nothing_is_left: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.engine.start_patience.START_PATIENCE_SECONDS", 0.0)
    with locked(db, "scheduler_instances"), pytest.raises(DBAPIError, match="lock timeout"):
        replica().start()
    eventually(nothing_is_left)


def test_a_start_that_waits_can_be_stopped(
    replica: Make, db: DatabaseConnection, nothing_is_left: Callable[[], bool], caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = replica()
    with locked(db, "scheduler_instances"), ThreadPoolExecutor(1) as beside:
        starting = beside.submit(scheduler.start)
        eventually(lambda: "start_waits" in events(caplog))
        scheduler.stop()
        with pytest.raises(StartInterrupted, match="stopped before it had started"):
            starting.result(60)
    eventually(nothing_is_left)


def test_a_replica_that_is_stopped_while_a_table_is_locked_leaves_no_session(
    replica: Make, db: DatabaseConnection
) -> None:
    scheduler = replica()
    scheduler.start()

    def sessions() -> int:
        with db.transaction() as connection:
            return int(connection.exec_driver_sql(SESSIONS).scalar_one())

    assert sessions() > 0
    with locked(db, "scheduler_instances"):
        scheduler.stop()
        eventually(lambda: sessions() == 0)


def test_a_start_waits_neither_for_a_schema_nor_for_a_newer_one(
    replica: Make, db: DatabaseConnection, caplog: pytest.LogCaptureFixture
) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
    with pytest.raises(ConfigurationError, match="the database schema is at revision 0001"):
        replica().start()
    with db.transaction() as connection:
        connection.exec_driver_sql("DROP TABLE alembic_version")
    with pytest.raises(ConfigurationError, match="the database has no schema"):
        replica().start()
    assert "start_waits" not in events(caplog)


@pytest.mark.parametrize(
    ("said", "is_waited_for"),
    [
        ("FATAL:  the database system is starting up", True),
        ("FATAL:  sorry, too many clients already", True),
        ('FATAL:  password authentication failed for user "app"', False),
        ('FATAL:  database "nothing" does not exist', False),
        ("Connection refused", False),
    ],
)
def test_what_a_server_says_decides_whether_a_start_waits_for_it(said: str, is_waited_for: bool) -> None:
    answers: list[Exception | None] = [Unavailable("Postgres", "here", said), None]
    patiently = StartPatience(lambda seconds: False)

    def step() -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    with nullcontext() if is_waited_for else pytest.raises(Unavailable):
        patiently(step)
    assert len(answers) == (0 if is_waited_for else 1)


def test_a_server_that_goes_away_in_the_middle_of_a_start_is_waited_for() -> None:
    answers: list[Exception | None] = [None, Unavailable("Postgres", "here", "Connection refused"), None]
    patiently = StartPatience(lambda seconds: False)

    def step() -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    patiently(step)
    patiently(step)
    assert answers == []


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [vars(record).get("event", "") for record in caplog.records]


def test_liveness_names_the_loops_and_the_timer_when_they_stand_still(
    replica: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = replica()
    scheduler.start()
    assert scheduler.liveness() == {}
    monkeypatch.setattr(Loop, "is_live", False)
    monkeypatch.setattr(Timer, "is_live", False)
    assert {"timer", "dispatcher", "finisher", "watcher", "heart", "rescuer", "gap-scan"} <= scheduler.liveness().keys()


def test_replicas_that_crashed_long_ago_are_forgotten(replica: Make, db: DatabaseConnection) -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO scheduler_instances (instance_id, incarnation, heartbeat_at)
               VALUES ('long ago', gen_random_uuid(), now() - interval '25 hours'),
                      ('lately', gen_random_uuid(), now() - interval '23 hours')"""
        )

    def known() -> list[Any]:
        with db.transaction() as connection:
            return [
                name for (name,) in connection.exec_driver_sql("SELECT instance_id FROM scheduler_instances ORDER BY 1")
            ]

    replica().start()
    eventually(lambda: known() == ["lately", "under-test"])
