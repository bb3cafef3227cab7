"""All access to Postgres: one engine per process, short transactions, clear errors when the server is down.

Start reading at `DatabaseConnection.transaction`.
"""

import logging
import re
import select
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from typing import Any, cast

import psycopg2
from sqlalchemy import URL, Connection, Engine, Row, create_engine, event, make_url, text
from sqlalchemy.engine import result_tuple
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from config import Settings, get_settings, masked
from database.forks import keep_from_copies
from database.models import Base
from database.prepared import BY_KEY, Prepared
from database.sqlstates import UNDEFINED_COLUMN, UNDEFINED_TABLE, sqlstate
from database.uuids import read_uuids
from services.embedded.servers import database_url
from services.errors import ConfigurationError, SchedulerError, Unavailable

logger = logging.getLogger(__name__)

POOL_WAIT_SECONDS = 10
# A server that vanished silently is noticed after 10 + 3 * 5 seconds instead of the kernel's two hours, and after ten
# seconds when data was sent to it.
KEEPALIVES = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
# The server notices a vanished client just as early and ends the session with its locks.
SERVER_KEEPALIVES = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
# A process frozen inside a transaction keeps its row locks, and all other sessions skip those rows: the server ends
# such a session. The engine's own transactions never wait for anything but Postgres.
IDLE_IN_TRANSACTION_SECONDS = 60
ENGINE_IDLE_IN_TRANSACTION_SECONDS = 5
# The longest time that a dedicated connection waits for a row or table locked by another session.
LOCK_TIMEOUT_SECONDS = 2


class SchemaMissing(SchedulerError, ProgrammingError):
    """One of our own tables is missing. Also a ProgrammingError, so that callers can read its SQLSTATE."""

    def __init__(self, error: ProgrammingError) -> None:
        ProgrammingError.__init__(self, error.statement, error.params, cast(Exception, error.orig))

    def __str__(self) -> str:
        return "the database schema is missing or outdated; run: python run_migrations.py"


class DatabaseConnection:
    """A pool of 1 to `pool_size` connections. Safe to share between threads."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 10,
        connect_timeout_seconds: int = 3,
        statement_timeout_seconds: int = 30,
        application_name: str = "enhanced-scheduler",
        transaction_pooler: bool = False,
        idle_in_transaction_seconds: int = IDLE_IN_TRANSACTION_SECONDS,
    ) -> None:
        self.transaction_pooler = transaction_pooler
        self.keeps_plans = not transaction_pooler  # of dedicated connections; behind a pooler no session is ours
        self._limits = {
            "statement_timeout": str(statement_timeout_seconds * 1000),
            "idle_in_transaction_session_timeout": str(idle_in_transaction_seconds * 1000),
            "timezone": "UTC",
        }
        session_options = [] if transaction_pooler else [*self._limits.items(), *SERVER_KEEPALIVES.items()]
        self.connect_args: dict[str, Any] = {
            "connect_timeout": connect_timeout_seconds,
            "application_name": application_name,
            **KEEPALIVES,
        }
        address = _with_our_driver(url)
        if session_options:
            own = address.query.get("options", ())
            given = [own] if isinstance(own, str) else list(own)
            self.connect_args["options"] = " ".join(
                [*given, *(f"-c {name}={value}" for name, value in session_options)]
            )
        self.engine: Engine = create_engine(
            address,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=POOL_WAIT_SECONDS,
            pool_pre_ping=True,
            pool_use_lifo=True,  # idle connections stay at the bottom, so an idle process keeps only one
            connect_args=self.connect_args,
        )
        event.listen(self.engine, "connect", lambda opened, _record: _prepare_connection(opened))
        if transaction_pooler:
            event.listen(self.engine, "begin", self.set_for_this_transaction)

    @classmethod
    def from_settings(cls, settings: Settings, **special: Any) -> "DatabaseConnection":
        """`special` overrides arguments that come from the settings, such as `pool_size`."""
        ordinary = {
            "pool_size": settings.database_pool_size,
            "connect_timeout_seconds": settings.database_connect_timeout_seconds,
            "statement_timeout_seconds": settings.database_statement_timeout_seconds,
            "application_name": settings.instance_id,
            "transaction_pooler": settings.database_transaction_pooler,
        }
        return cls(database_url(settings), **{**ordinary, **special})

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One transaction: committed at the end of the block, rolled back by an exception."""
        with self.clear_errors(), self.engine.begin() as connection:
            yield connection

    def run_alone(self, sql: str, values: Mapping[str, Any]) -> list[Row[Any]]:
        """One statement with its own commit: its locks end with it, even if this process freezes right after it."""
        with self.clear_errors(), self.engine.connect() as connection, _autocommit(connection):
            limits = f"{self.limits_of_a_transaction}; " if self.transaction_pooler else ""
            result = connection.exec_driver_sql(limits + sql, dict(values))
            return list(result) if result.returns_rows else []

    @contextmanager
    def get_background_session(self) -> Iterator[Session]:
        """A separate ORM session in one transaction, for work outside a request."""
        with self.clear_errors(), Session(self.engine, expire_on_commit=False) as session, session.begin():
            yield session

    def dedicated(self) -> "DedicatedConnection":
        """A connection reserved for one thread, for work that must not wait for the pool."""
        return DedicatedConnection(self)

    def listener(self, *channels: str) -> "Listener":
        """A separate session that receives notifications; not possible through a transaction pooler."""
        return Listener(self, channels)

    def ping(self) -> bool:
        """Whether Postgres answers now."""
        try:
            with self.transaction() as connection:
                return bool(connection.execute(text("SELECT true")).scalar_one())
        except Unavailable as error:
            logger.warning("%s", error, extra={"event": "postgres_unreachable"})
            return False

    def close(self) -> None:
        self.engine.dispose()

    @property
    def where(self) -> str:
        """The server's address without the password."""
        return masked(self.engine.url.render_as_string(hide_password=True)).split("://", 1)[1]

    def set_for_this_transaction(self, connection: Connection) -> None:
        """Behind a transaction pooler each transaction may run on another session, so each one sets the limits."""
        connection.exec_driver_sql(self.limits_of_a_transaction)

    @property
    def limits_of_a_transaction(self) -> str:
        return "; ".join(f"SET LOCAL {name} = '{value}'" for name, value in self._limits.items())

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        try:
            yield
        except PoolTimeout as error:
            raise Unavailable(
                "Postgres", self.where, f"all connections of this process have been busy for {POOL_WAIT_SECONDS} s"
            ) from error
        except DBAPIError as error:
            if isinstance(error, ProgrammingError) and _is_about_our_tables(error):
                raise SchemaMissing(error) from None
            if not _is_lost_connection(error):
                raise
            raise self.lost(error.orig) from error

    def lost(self, cause: object) -> Unavailable:
        return Unavailable("Postgres", self.where, (str(cause).strip() or type(cause).__name__).splitlines()[0])


@contextmanager
def _autocommit(connection: Connection) -> Iterator[None]:
    """Commits each statement by itself.

    Not by SQLAlchemy's isolation level: that is reset when the connection returns to the pool, with a round trip. If
    the server ends the session in that moment, the reset fails, and the pool never gets its place back.
    """
    driver = cast(Any, connection.connection.driver_connection)
    try:
        driver.autocommit = True
        yield
    finally:
        try:
            driver.autocommit = False
        except psycopg2.Error:  # closed; what the statement returned, or raised, stands
            connection.invalidate()


class DedicatedConnection:
    """One connection in autocommit mode, opened on demand and reopened after it broke. For one thread.

    `run` is one round trip. In `transaction` the first statement includes BEGIN, so a transaction of two statements
    takes three round trips. No statement waits long for a lock.
    """

    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db
        self._connection: Connection | None = None
        self._prepared: Prepared | None = None
        self._alone = ""  # prefix of a statement outside a transaction
        if db.transaction_pooler:
            self._alone = f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'; {db.limits_of_a_transaction}; "
        self._begin = f"BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL enable_seqscan = off; {self._alone}"
        self._opening: str | None = None  # prefix of a transaction's next statement; None: outside a transaction

    def run(self, sql: str, values: Mapping[str, Any] | None = None) -> list[Row[Any]]:
        with self._db.clear_errors():
            connection = self._connect()
            opening = self._alone if self._opening is None else self._opening
            try:
                rows = _fetched(connection, self._text_of(opening, sql), dict(values or {}))
            except BaseException:
                if self._prepared is not None:
                    self.close()  # nobody knows what it has prepared, and each attempt would leave a statement behind
                raise
            if self._opening is not None:
                self._opening = ""
            return rows

    def _text_of(self, opening: str, sql: str) -> str:
        if self._prepared is None:
            return opening + sql
        is_alone, sent = self._opening is None, self._prepared.sent_for(sql)
        if opening or is_alone:
            opening += self._prepared.opening()
        return f"{opening}{BY_KEY if is_alone and sent is not sql else ''}{sent}"

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A commit is on disk once acknowledged, whatever the server's setting. Rows are found by their keys."""
        self._opening = self._begin
        try:
            yield
            if not self._opening:
                self.run("COMMIT")
        except BaseException:
            self.close()  # the server rolls back; easier to reason about than a connection in an unknown state
            raise
        finally:
            self._opening = None

    def close(self) -> None:
        connection, self._connection, self._prepared = self._connection, None, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    def _connect(self) -> Connection:
        if self._connection is None or self._connection.invalidated:
            self.close()
            self._connection = self._db.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            settings = [] if self._db.transaction_pooler else [f"SET lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'"]
            if self._db.keeps_plans:
                settings.append("SET plan_cache_mode = force_generic_plan")
                self._prepared = Prepared()
            if settings:
                self._connection.exec_driver_sql("; ".join(settings))
        return self._connection


def _fetched(connection: Connection, statement: str, values: dict[str, Any]) -> list[Row[Any]]:
    """As `exec_driver_sql`, which looks at each column of each result anew: most of what a small statement cost us."""
    if _has_listeners(connection):
        result = connection.exec_driver_sql(statement, values)
        return list(result.all()) if result.returns_rows else []
    opened = connection.connection
    try:
        with closing(opened.cursor()) as cursor:
            cursor.execute(statement, values)
            if cursor.description is None:
                return []
            row_of = _row_of(tuple(column[0] for column in cursor.description))
            return [row_of(each) for each in cursor.fetchall()]
    except psycopg2.Error as error:
        dialect = connection.dialect
        is_lost = dialect.is_disconnect(cast(Any, error), opened, None)
        if is_lost:
            connection.invalidate(error)
        wrapped = DBAPIError.instance(
            statement, values, error, psycopg2.Error, connection_invalidated=is_lost, dialect=dialect
        )
        raise cast(DBAPIError, wrapped) from error


def _has_listeners(connection: Connection) -> bool:
    """Tests that act between two statements, or a program that traces those of its libraries."""
    heard = cast(Any, connection.dispatch)
    return bool(
        heard.before_cursor_execute or heard.after_cursor_execute or cast(Any, connection.dialect).dispatch.handle_error
    )


@cache
def _row_of(names: tuple[str, ...]) -> Callable[[Iterable[Any]], Row[Any]]:
    return result_tuple(names)


class Listener:
    """Receives NOTIFY on its channels from its creation on. Discard it after an Unavailable."""

    def __init__(self, db: DatabaseConnection, channels: Sequence[str]) -> None:
        self._db = db
        try:
            with db.clear_errors():
                pooled = db.engine.raw_connection()
            self._raw = cast(Any, pooled.driver_connection)
            pooled.detach()  # now ours; it never returns to the pool
            self._raw.autocommit = True
            self._raw.cursor().execute("; ".join(f"LISTEN {channel}" for channel in channels))
        except psycopg2.OperationalError as error:  # SQLAlchemy does not wrap what happens to a raw connection
            raise db.lost(error) from error

    def wait(self, seconds: float) -> set[str]:
        """The channels that received a notification, already or within this time."""
        try:
            select.select([self._raw], [], [], seconds)
            self._raw.poll()
        except (psycopg2.Error, OSError, ValueError) as error:
            raise self._db.lost(error) from error
        heard = {notification.channel for notification in self._raw.notifies}
        self._raw.notifies.clear()
        return heard

    def close(self) -> None:
        self._raw.close()


def _prepare_connection(opened: Any) -> None:
    keep_from_copies(opened)
    read_uuids(opened)


def _with_our_driver(url: str) -> URL:
    """Users write postgres:// or postgresql://; SQLAlchemy accepts only the latter and would pick another driver."""
    try:
        return make_url("postgresql+psycopg2://" + url.split("://", 1)[1])
    except (ArgumentError, IndexError, ValueError):
        raise ConfigurationError(f"DATABASE_URL={masked(url)!r}: is not the URL of a Postgres server") from None


def _is_lost_connection(error: DBAPIError) -> bool:
    """True for a failed connect and for a connection that broke; false for errors about the statement itself."""
    never_connected = isinstance(error, OperationalError) and not sqlstate(error)
    return error.connection_invalidated or never_connected


def _is_about_our_tables(error: ProgrammingError) -> bool:
    """A job may have tables of its own: those are not in our schema, whatever its version."""
    if sqlstate(error) not in (UNDEFINED_TABLE, UNDEFINED_COLUMN):
        return False
    named = re.search(r'relation "(?:\w+\.)?(\w+)" does not exist', str(error.orig))
    return named is not None and named[1] in Base.metadata.tables


@cache
def get_db_connection() -> DatabaseConnection:
    """The connection pool of this process."""
    return DatabaseConnection.from_settings(get_settings())
