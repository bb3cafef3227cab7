"""Async steps of a queue: an event loop of the run, and an AsyncSession on psycopg 3 in place of the Session.

The loader and the writer stay as they are. They run in a greenlet in the event loop, on a connection of SQLAlchemy's
async driver, so the fence, what an async step writes, and the end of its item are one transaction.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar, cast

from sqlalchemy.orm import Session

from database.async_connection import async_engine
from database.connection import DatabaseConnection
from services.engine.event_loop import EventLoop
from services.engine.threads import OF_THE_SYSTEM
from services.queues.deadline import remaining_seconds
from services.queues.outcomes import ItemTimedOut, K
from services.queues.steps import WITH_SESSION, Steps, is_coroutine_function

T = TypeVar("T")

POLL_SECONDS = 0.05  # how soon an item that was given up hears of it


class Sessions(Protocol):
    """Where the steps with a session run."""

    def get_background_session(self) -> AbstractContextManager[Session]: ...
    def run(self, function: Callable[[], T]) -> T: ...


class PlainSessions:
    """Here, in the run's own thread."""

    def __init__(self, db: DatabaseConnection) -> None:
        self.get_background_session = db.get_background_session

    def run(self, function: Callable[[], T]) -> T:
        return function()


class AsyncSteps(Generic[K]):
    """The steps of one run, each as a plain function. `get_background_session` belongs inside `run`."""

    def __init__(self, db: DatabaseConnection, steps: Steps[K], concurrency: int, timeout_seconds: float) -> None:
        self._db, self._timeout_seconds = db, timeout_seconds
        needs_session = any(is_coroutine_function(getattr(steps, name)) for name in WITH_SESSION)
        self._engine = async_engine(db) if needs_session else None
        self._loop = EventLoop(OF_THE_SYSTEM, concurrency)
        plain: dict[str, Any] = {name: self._plain(name, getattr(steps, name)) for name in (*WITH_SESSION, "work")}
        self.steps = replace(steps, **plain)

    @property
    def sessions(self) -> Sessions:
        return self if self._engine is not None else PlainSessions(self._db)

    def run(self, function: Callable[[], T]) -> T:
        from sqlalchemy.util import greenlet_spawn

        return self._in_loop(greenlet_spawn(function)).result()

    @contextmanager
    def get_background_session(self) -> Iterator[Session]:
        assert self._engine is not None  # noqa: S101 - else `sessions` is another
        engine = self._engine.sync_engine
        with self._db.clear_errors(), Session(engine, expire_on_commit=False) as session, session.begin():
            yield session

    def close(self) -> None:
        if self._engine is not None:
            self._in_loop(self._engine.dispose()).result()
        self._loop.close()

    def _plain(self, name: str, step: Callable[..., Any] | None) -> Callable[..., Any] | None:
        if step is None or not is_coroutine_function(step):
            return step
        return self._awaited(step) if name == "work" else self._with_async_session(step)

    def _awaited(self, work: Callable[..., Any]) -> Callable[[Any], Any]:
        """Called in an item's thread, which waits; its coroutine gets a CancelledError when the item is given up."""

        def call(snapshot: Any) -> Any:
            future = self._in_loop(work(snapshot))
            try:
                while not wait([future], POLL_SECONDS).done:
                    remaining_seconds()
            except BaseException:
                future.cancel()
                raise
            return future.result()

        return call

    def _with_async_session(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Called in the greenlet. The async session is another face of the same one."""
        from sqlalchemy.ext.asyncio import AsyncSession
        from sqlalchemy.util import await_only

        async def within_its_time(session: Session, *arguments: Any) -> Any:
            own = AsyncSession(sync_session_class=cast(Any, lambda **_: session))
            try:
                async with asyncio.timeout(self._timeout_seconds) as limit:
                    return await step(own, *arguments)
            except TimeoutError:
                if limit.expired():
                    raise ItemTimedOut(self._timeout_seconds) from None
                raise

        return lambda session, *arguments: await_only(within_its_time(session, *arguments))

    def _in_loop(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop.loop)
