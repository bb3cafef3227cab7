"""The steps of one item: load -> work -> save. Only `work` may be slow, and it gets no session.

Each may be a coroutine function; those with a session then get an AsyncSession (async_steps.py calls them).
"""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, cast

from sqlalchemy.orm import Session

from services.errors import ConfigurationError
from services.queues.outcomes import K

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

Load = Callable[[Session, K], Any] | Callable[["AsyncSession", K], Awaitable[Any]]
Work = Callable[[Any], Any]
Save = Callable[[Session, K, Any], None] | Callable[["AsyncSession", K, Any], Awaitable[None]]
Process = Callable[[K, Session], object] | Callable[[K, "AsyncSession"], Awaitable[object]]
OnFailed = Callable[[Session, K, str], None] | Callable[["AsyncSession", K, str], Awaitable[None]]
WITH_SESSION = ("load", "save", "on_failed")


@dataclass(frozen=True, kw_only=True)  # without slots: Python 3.11 could not make a Steps[int](…)
class Steps(Generic[K]):
    """`load` and `save` may be called again for the same item after a rollback: they must only use the session.

    load(session, key) -> snapshot      what `work` needs, as plain values
    work(snapshot) -> result            in its own thread, under the item timeout, without a session
    save(session, key, result)          in the transaction that also ends the item; without `work`, gets the snapshot
    on_failed(session, key, error)      in the transaction that fails the item permanently
    own_sites                           each item calls its own site: its failure does not count for the circuit breaker
    """

    save: Save[K]
    load: Load[K] | None = None
    work: Work | None = None
    on_failed: OnFailed[K] | None = None
    own_sites: bool = False

    def __post_init__(self) -> None:
        for name in ("load", "work", "save", "on_failed"):
            require_no_generator(name, getattr(self, name))

    @property
    def is_async(self) -> bool:
        """Do they need an event loop?"""
        return any(is_coroutine_function(getattr(self, name)) for name in (*WITH_SESSION, "work"))

    @classmethod
    def plain(cls, process: Process[K], on_failed: OnFailed[K] | None = None) -> "Steps[K]":
        """For work without slow I/O: everything happens in the one transaction that also ends the item."""

        if is_coroutine_function(process):

            async def save_async(session: "AsyncSession", key: K, _result: None) -> None:
                await cast(Any, process)(key, session)

            return cls(save=save_async, on_failed=on_failed)

        def save(session: Session, key: K, _result: None) -> None:
            cast(Any, process)(key, session)

        return cls(save=save, on_failed=on_failed)

    @classmethod
    def own_session(cls, process: Process[K]) -> "Steps[K]":
        """For a function that may call `begin`, `commit` and `rollback`, as if the session were its own.

        They work on savepoints of the transaction that ends the item: the claim stays fenced, and nothing that the
        function committed survives its failure.
        """
        require_no_generator("processing_function", process)
        if is_coroutine_function(process):
            return cls(save=_save_with_own_async_session(process))

        def save(session: Session, key: K, _result: None) -> None:
            with Session(session.connection(), expire_on_commit=False, join_transaction_mode="create_savepoint") as own:
                _require_no_awaitable(cast(Any, process)(key, own))
                own.commit()

        return cls(save=save)


def is_coroutine_function(function: Callable[..., Any] | None) -> bool:
    """Also of an object whose call is one."""
    return any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None))))  # noqa: B004


def require_no_generator(name: str, function: Callable[..., Any] | None) -> None:
    """Raises TypeError for a generator function: a plain call would not run its body."""
    for candidate in (function, getattr(function, "__call__", None)):  # noqa: B004 - an object whose call is one
        if inspect.isgeneratorfunction(candidate) or inspect.isasyncgenfunction(candidate):
            called = getattr(function, "__qualname__", repr(function))
            raise TypeError(
                f"{name} {called} is a generator function, and the job loop would never run its body: "
                "write it without `yield`"
            )


def _save_with_own_async_session(process: Process[K]) -> Callable[["AsyncSession", K, Any], Awaitable[None]]:
    async def save(session: "AsyncSession", key: K, _result: None) -> None:
        from sqlalchemy.ext.asyncio import AsyncSession

        connection = await session.connection()
        mode: Any = "create_savepoint"
        async with AsyncSession(connection, expire_on_commit=False, join_transaction_mode=mode) as own:
            await cast(Any, process)(key, own)
            await own.commit()

    return save


def _require_no_awaitable(result: object) -> None:
    if not inspect.isawaitable(result):
        return
    if inspect.iscoroutine(result):
        result.close()  # otherwise Python warns that it was never awaited
    raise ConfigurationError(
        "the processing function returned a coroutine, but is no coroutine function itself: write it with `async def`"
    )
