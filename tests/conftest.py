"""Real servers for every test: one embedded Postgres and Redis per run, one database cloned per test."""

import gc
import logging
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from uuid import uuid4

import psycopg2
import pytest
from psycopg2.extensions import connection as PgConnection
from sqlalchemy.engine import make_url

from config import get_settings
from database.connection import DatabaseConnection, DedicatedConnection, get_db_connection
from run_migrations import upgrade
from services.embedded import Addresses, EmbeddedServers
from services.embedded import servers as server_addresses
from services.job_history import get_job_history
from services.jobs import BUILT_IN_JOB_TYPES, default_registry
from services.redis_client import get_redis_client
from services.scanning.profiles import get_scan_profiles
from services.scanning.store import get_scan_store
from services.schedule_repository import ScheduleRepository, get_schedule_repository
from tests.support.memory import leave_memory, servers_directory, use_memory
from tests.support.spreading import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler

PER_PROCESS = (
    get_settings,
    get_db_connection,
    get_redis_client,
    get_schedule_repository,
    get_job_history,
    get_scan_store,
    get_scan_profiles,
)


@pytest.hookimpl(tryfirst=True)  # before pytest chooses a directory
def pytest_configure(config: pytest.Config) -> None:
    """A shell that runs us in the background has our children ignore Ctrl-C, which some of them are tested with."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    use_memory(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What it imports stays: looking for garbage meanwhile would be a third of its time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    leave_memory(config)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Bytes are no name, and may differ between the workers of one run (gzip writes the time into them)."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> Iterator[Addresses]:
    """Data of tests is thrown away, so nothing waits for the disk; everything else is as in production."""
    options = {"fsync": "off", "full_page_writes": "off", "max_connections": "300"}
    with EmbeddedServers(servers_directory(pytestconfig), postgres_options=options) as embedded:
        yield embedded.start()


class Databases:
    """Makes databases, empty ones or copies of another one, and drops them."""

    def __init__(self, server_url: str, admin: PgConnection) -> None:
        self._server_url, self._admin = server_url, admin
        self._made: list[str] = []

    def make(self, template: str | None = None) -> str:
        name = f"test_{uuid4().hex}"
        copied = f' TEMPLATE "{template}" STRATEGY = FILE_COPY' if template else ""  # half the time of WAL_LOG here
        self._run(f'CREATE DATABASE "{name}"{copied}')
        self._made.append(name)
        return make_url(self._server_url).set(database=name).render_as_string(hide_password=False)

    def drop(self, url: str) -> None:
        name = str(make_url(url).database)
        self._run(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self._made.remove(name)

    def drop_all(self) -> None:
        for name in list(self._made):
            self.drop(f"postgresql:///{name}")

    def _run(self, sql: str) -> None:
        with self._admin.cursor() as cursor:
            cursor.execute(sql)


@pytest.fixture(scope="session")
def databases(servers: Addresses) -> Iterator[Databases]:
    with closing(_admin(servers.database_url)) as admin:
        databases = Databases(servers.database_url, admin)
        yield databases
        databases.drop_all()


@pytest.fixture(scope="session")
def new_database(databases: Databases) -> Callable[[str | None], str]:
    """Makes an empty database, or a copy of another one; returns its URL. All are dropped at the end of the run."""
    return databases.make


def _admin(url: str) -> PgConnection:
    connection = psycopg2.connect(make_url(url).set(drivername="postgresql").render_as_string(hide_password=False))
    connection.autocommit = True
    return connection


@pytest.fixture(scope="session")
def template(new_database: Callable[[str | None], str]) -> str:
    """The name of a migrated, empty database."""
    url = new_database(None)
    db = DatabaseConnection(url)
    upgrade(db)
    db.close()
    return str(make_url(url).database)


@pytest.fixture
def empty_database_url(databases: Databases) -> Iterator[str]:
    """A database without any table."""
    url = databases.make()
    yield url
    databases.drop(url)


@pytest.fixture
def database_url(databases: Databases, template: str) -> Iterator[str]:
    """A migrated database of this test's own, dropped right after it: thousands of them would be many gigabytes."""
    url = databases.make(template)
    yield url
    databases.drop(url)


class Tidy(DatabaseConnection):
    """Closes what was dedicated and forgotten, before the collector finds it in another test, without its database."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._dedicated: list[DedicatedConnection] = []

    def dedicated(self) -> DedicatedConnection:
        self._dedicated.append(super().dedicated())
        return self._dedicated[-1]

    def close(self) -> None:
        for connection in self._dedicated:
            connection.close()
        super().close()


@pytest.fixture
def db(database_url: str) -> Iterator[DatabaseConnection]:
    with closing(Tidy(database_url)) as connection:
        yield connection


@pytest.fixture
def only_built_in_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers that other tests have registered in this process are unknown."""
    default_registry.load_built_in()
    known = {name: job for name, job in default_registry._definitions.items() if name in BUILT_IN_JOB_TYPES}
    monkeypatch.setattr(default_registry, "_definitions", known)


@pytest.fixture
def repository(db: DatabaseConnection, only_built_in_jobs: None) -> ScheduleRepository:
    return ScheduleRepository(db)


@pytest.fixture
def own_process(
    database_url: str, servers: Addresses, only_built_in_jobs: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """This process behaves like a fresh program whose environment names the test's servers; yields that environment."""
    environment = {"DATABASE_URL": database_url, "REDIS_URL": servers.redis_url, "ENV_FILE": "", "METRICS_PORT": "0"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    _forget()
    handlers, level = logging.root.handlers[:], logging.root.level
    yield environment
    logging.root.handlers[:], logging.root.level = handlers, level  # a program's log goes to a stream of its own
    get_db_connection().close()
    get_redis_client().close()
    _forget()


def _forget() -> None:
    for made_once in PER_PROCESS:
        made_once.cache_clear()
    server_addresses.embedded_addresses.cache_clear()
