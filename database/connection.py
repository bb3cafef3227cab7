"""The door to Postgres: one engine per process, short transactions, clear errors when the server is away.

Start reading at `DatabaseConnection.transaction`.
"""

import logging
import select
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import psycopg2
from sqlalchemy import URL, Connection, Engine, Row, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from config import Settings, get_settings, masked
from services.errors import ConfigurationError, Unavailable
from services.servers import database_url

logger = logging.getLogger(__name__)

POOL_WAIT_SECONDS = 10
# A peer that vanished without a word is noticed after 10 + 3 * 5 seconds instead of the kernel's two hours.
KEEPALIVES = {"keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}


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
    ) -> None:
        self._statement_timeout_ms = statement_timeout_seconds * 1000
        session_options = (
            [] if transaction_pooler else [f"statement_timeout={self._statement_timeout_ms}", "timezone=UTC"]
        )
        connect_args: dict[str, Any] = {
            "connect_timeout": connect_timeout_seconds,
            "application_name": application_name,
            **KEEPALIVES,
        }
        address = _with_our_driver(url)
        if session_options:
            own = address.query.get("options", ())
            given = [own] if isinstance(own, str) else list(own)
            connect_args["options"] = " ".join([*given, *(f"-c {option}" for option in session_options)])
        self.engine: Engine = create_engine(
            address,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=POOL_WAIT_SECONDS,
            pool_pre_ping=True,
            pool_use_lifo=True,  # idle connections stay at the bottom, so a quiet process keeps one
            connect_args=connect_args,
        )
        if transaction_pooler:
            event.listen(self.engine, "begin", self._set_for_this_transaction)

    @classmethod
    def from_settings(cls, settings: Settings, pool_size: int | None = None) -> "DatabaseConnection":
        return cls(
            database_url(settings),
            pool_size=pool_size or settings.database_pool_size,
            connect_timeout_seconds=settings.database_connect_timeout_seconds,
            statement_timeout_seconds=settings.database_statement_timeout_seconds,
            application_name=settings.instance_id,
            transaction_pooler=settings.database_transaction_pooler,
        )

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One transaction: committed at the end of the block, rolled back by an exception."""
        with self.clear_errors(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def get_background_session(self) -> Iterator[Session]:
        """An ORM session of its own in one transaction, for work that does not belong to a request."""
        with self.clear_errors(), Session(self.engine, expire_on_commit=False) as session, session.begin():
            yield session

    def dedicated(self) -> "DedicatedConnection":
        """A connection that one thread keeps, for work that must not queue behind others."""
        return DedicatedConnection(self)

    def listener(self, *channels: str) -> "Listener":
        """A session of its own that hears notifications; not to be had through a transaction pooler."""
        return Listener(self, channels)

    def ping(self) -> bool:
        """Does Postgres answer right now?"""
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

    def _set_for_this_transaction(self, connection: Connection) -> None:
        """Behind a transaction pooler the next transaction may be on another session: set it in each one."""
        connection.exec_driver_sql(
            "SELECT set_config('statement_timeout', %s, true), set_config('timezone', 'UTC', true)",
            (str(self._statement_timeout_ms),),
        )

    @contextmanager
    def clear_errors(self) -> Iterator[None]:
        try:
            yield
        except PoolTimeout as error:
            raise Unavailable(
                "Postgres", self.where, f"all connections of this process were busy for {POOL_WAIT_SECONDS} s"
            ) from error
        except DBAPIError as error:
            if not _is_lost_connection(error):
                raise
            raise self.lost(error.orig) from error

    def lost(self, cause: object) -> Unavailable:
        return Unavailable("Postgres", self.where, (str(cause).strip() or type(cause).__name__).splitlines()[0])


class DedicatedConnection:
    """One connection in autocommit mode, opened when needed and again after it broke. For one thread.

    `run` is one round trip. In `transaction` the first statement carries BEGIN with it, so that a transaction of two
    statements is three round trips.
    """

    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db
        self._connection: Connection | None = None
        self._opening = ""  # what the next statement has to carry

    def run(self, sql: str, values: Mapping[str, Any] | None = None) -> list[Row[Any]]:
        with self._db.clear_errors():
            result = self._connect().exec_driver_sql(self._opening + sql, dict(values or {}))
            self._opening = ""
            return list(result) if result.returns_rows else []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is acknowledged is on disk, whatever the server's own setting says. Rows are found by their keys."""
        self._opening = "BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL enable_seqscan = off; "
        try:
            yield
            if not self._opening:
                self.run("COMMIT")
        except BaseException:
            self.close()  # the server rolls back; cheaper to reason about than a connection in doubt
            raise
        finally:
            self._opening = ""

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    def _connect(self) -> Connection:
        if self._connection is None or self._connection.invalidated:
            self.close()
            self._connection = self._db.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        return self._connection


class Listener:
    """Hears NOTIFY on some channels from the moment it exists. After an Unavailable it is of no use any more."""

    def __init__(self, db: DatabaseConnection, channels: Sequence[str]) -> None:
        self._db = db
        try:
            with db.clear_errors():
                pooled = db.engine.raw_connection()
            self._raw = cast(Any, pooled.driver_connection)
            pooled.detach()  # it is ours now, and never goes back into the pool
            self._raw.autocommit = True
            self._raw.cursor().execute("; ".join(f"LISTEN {channel}" for channel in channels))
        except psycopg2.OperationalError as error:  # SQLAlchemy does not wrap what happens to a raw connection
            raise db.lost(error) from error

    def wait(self, seconds: float) -> set[str]:
        """The channels on which something was said, at once or within this time."""
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


def _with_our_driver(url: str) -> URL:
    """Users write postgres:// or postgresql://; SQLAlchemy knows only the latter and would pick another driver."""
    try:
        return make_url("postgresql+psycopg2://" + url.split("://", 1)[1])
    except (ArgumentError, IndexError, ValueError):
        raise ConfigurationError(f"DATABASE_URL={masked(url)!r}: is not a URL of a Postgres server") from None


def _is_lost_connection(error: DBAPIError) -> bool:
    """True for a failed connect and for a connection that broke; false for errors about the statement itself."""
    never_connected = isinstance(error, OperationalError) and getattr(error.orig, "pgcode", None) is None
    return error.connection_invalidated or never_connected


@cache
def get_db_connection() -> DatabaseConnection:
    """The connection pool of this process."""
    return DatabaseConnection.from_settings(get_settings())
