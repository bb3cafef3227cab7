"""SQLAlchemy's async engine on psycopg 3 (extra `async`), for steps that take an AsyncSession."""

from typing import TYPE_CHECKING, Any

from sqlalchemy import event

from database.connection import DatabaseConnection
from database.forks import keep_from_copies
from enhanced_scheduler.extras import how_to_install, is_installed
from services.errors import ConfigurationError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine


def async_engine(db: DatabaseConnection, pool_size: int = 1) -> "AsyncEngine":
    """For one event loop, which also has to dispose of it. Sessions have the limits of `db`."""
    if not is_installed("async"):
        raise ConfigurationError(f"async steps with a session need {how_to_install('async')}")
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(
        db.engine.url.set(drivername="postgresql+psycopg"),
        pool_size=pool_size,
        max_overflow=0,
        pool_pre_ping=True,
        # Values are written into the statement, as by psycopg2: the same SQL means the same with both drivers, and
        # nothing is prepared in a session behind a transaction pooler.
        connect_args={**db.connect_args, "cursor_factory": _cursor_like_psycopg2(), "prepare_threshold": None},
    )
    event.listen(engine.sync_engine, "connect", lambda opened, _record: keep_from_copies(opened.driver_connection))
    if db.transaction_pooler:
        event.listen(engine.sync_engine, "begin", db.set_for_this_transaction)
    return engine


def _cursor_like_psycopg2() -> type[Any]:
    """Of several statements in one string the last one's result counts."""
    from psycopg import AsyncClientCursor

    class LastResult(AsyncClientCursor[Any]):
        async def execute(self, *arguments: Any, **options: Any) -> "LastResult":
            await super().execute(*arguments, **options)
            while self.nextset():
                pass
            return self

    return LastResult
