"""The steps of one item: load -> work -> save. Only `work` may be slow, and it gets no session."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

from sqlalchemy.orm import Session

from services.errors import ConfigurationError
from services.queues.outcomes import K

Load = Callable[[Session, K], Any]
Work = Callable[[Any], Any]
Save = Callable[[Session, K, Any], None]
Process = Callable[[K, Session], object]
OnFailed = Callable[[Session, K, str], None]


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
            require_plain_function(name, getattr(self, name))

    @classmethod
    def plain(cls, process: Process[K], on_failed: OnFailed[K] | None = None) -> "Steps[K]":
        """For work without slow I/O: everything happens in the one transaction that also ends the item."""

        def save(session: Session, key: K, _result: None) -> None:
            process(key, session)

        return cls(save=save, on_failed=on_failed)

    @classmethod
    def own_session(cls, process: Process[K]) -> "Steps[K]":
        """For a function that may call `begin`, `commit` and `rollback`, as if the session were its own.

        They work on savepoints of the transaction that ends the item: the claim stays fenced, and nothing that the
        function committed survives its failure.
        """
        require_plain_function("processing_function", process)

        def save(session: Session, key: K, _result: None) -> None:
            with Session(session.connection(), expire_on_commit=False, join_transaction_mode="create_savepoint") as own:
                _require_no_awaitable(process(key, own))
                own.commit()

        return cls(save=save)


def require_plain_function(name: str, function: Callable[..., Any] | None) -> None:
    """Raises TypeError for a coroutine or generator function: a plain call would not run its body."""
    for candidate in (function, getattr(function, "__call__", None)):  # noqa: B004 - an object whose call is one
        if inspect.iscoroutinefunction(candidate):
            raise TypeError(
                _refusal(name, function, "coroutine", "write it as a plain `def` with a synchronous Session")
            )
        if inspect.isgeneratorfunction(candidate) or inspect.isasyncgenfunction(candidate):
            raise TypeError(_refusal(name, function, "generator", "write it without `yield`"))


def _refusal(name: str, function: Any, kind: str, instead: str) -> str:
    called = getattr(function, "__qualname__", repr(function))
    return f"{name} {called} is a {kind} function, and the job loop would never run its body: {instead}"


def _require_no_awaitable(result: object) -> None:
    if not inspect.isawaitable(result):
        return
    if inspect.iscoroutine(result):
        result.close()  # otherwise Python warns that it was never awaited
    raise ConfigurationError(
        "the processing function returned a coroutine, but the job loop is synchronous: write it as a plain `def`"
    )
