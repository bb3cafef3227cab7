"""One queue on its table: claim, finish, hand back, rescue. Every write about a claim asks for its token."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic
from uuid import uuid4

from sqlalchemy import ClauseElement, Connection, CursorResult, Table, inspect
from sqlalchemy.dialects import postgresql

from database.models import Base
from database.workflow_models import claim_order
from services.queues import queue_sql as sql
from services.queues.outcomes import Claimed, K


@dataclass(frozen=True, slots=True)
class Words:
    """What the status column says in each state."""

    queued: StrEnum
    processing: StrEnum
    completed: StrEnum
    failed: StrEnum


@dataclass(frozen=True, slots=True)
class QueueNumbers:
    """A queue as it is right now."""

    depth: int
    due: int  # of these: what may be claimed now
    oldest_seconds: float  # for how long the oldest of them has been due
    processing: int
    stale: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedFilter:
    """Which failed rows are meant."""

    keys: Sequence[str] | None = None
    error: str | None = None  # a part of it, in any case
    since: datetime | None = None
    dead: bool = False  # only those with an open dead letter
    limit: int = 1000


class QueueTable(Generic[K]):
    """Stateless; each method is one statement on the caller's connection."""

    def __init__(
        self,
        model: type[Base],
        words: Words,
        *,
        status_field_name: str,
        error_field_name: str,
        prefix: str = "",
        order_by: ClauseElement | None = None,
        one_live_per: tuple[str, ...] = (),
    ) -> None:
        table = model.__table__
        (key,) = inspect(model).primary_key
        assert isinstance(table, Table)  # noqa: S101 - a model of its own, not a join
        self._names = sql.Names(
            table=table.name,
            key=key.name,
            key_type=key.type.compile(postgresql.dialect()),  # type: ignore[no-untyped-call]
            status=table.c[status_field_name].name,
            error=table.c[error_field_name].name,
            prefix=prefix,
            order=claim_order(prefix) if order_by is None else _rendered(order_by),
            one_live_per=tuple(table.c[name].name for name in one_live_per),
        )
        self._words = {name: getattr(words, name).value for name in Words.__dataclass_fields__}
        self._claim, self._lock_held = sql.claim(self._names), sql.lock_held(self._names)
        self._wait_for_held, self._complete = sql.wait_for_held(self._names), sql.complete(self._names)

    # --- the way of an item ---

    def claim(self, connection: Connection, count: int) -> list[Claimed[K]]:
        """The next rows, now ours: at most `count`, none that somebody else has."""
        return self._take(connection, self._claim, count=count)

    def lock_held(self, connection: Connection, claims: Sequence[Claimed[K]], actor: str) -> set[Claimed[K]]:
        """Which of these are surely still ours; nobody can take their rows until the transaction ends.

        Of several, those that somebody else has locked right now are left out; a single one is waited for. What the
        transaction writes from now on is the actor's.
        """
        statement = self._lock_held if len(claims) > 1 else self._wait_for_held
        return {claims[row.place - 1] for row in self._run(connection, statement, actor=actor, **_of(claims))}

    def complete(self, connection: Connection, held: Iterable[Claimed[K]]) -> dict[K, str]:
        """After `lock_held`, in its transaction. Returns the errors of the rows that their `save` failed by itself."""
        rows = self._run(connection, self._complete, keys=[claim.key for claim in held])
        return {row.key: row.error for row in rows if row.error is not None}

    def retry(self, connection: Connection, claim: Claimed[K], error: str, delay_seconds: float) -> bool:
        """False: the row is not ours any more."""
        values = _of([claim]) | {"error": error, "delay": delay_seconds}
        return self._run(connection, sql.retry(self._names), **values).rowcount > 0

    def fail(self, connection: Connection, claim: Claimed[K], error: str) -> bool:
        values = _of([claim]) | {"error": error}
        return self._run(connection, sql.fail(self._names), **values).rowcount > 0

    def hand_back(self, connection: Connection, claim: Claimed[K]) -> None:
        self._run(connection, sql.hand_back(self._names), **_of([claim]))

    def take_stale(self, connection: Connection, stale_seconds: float, count: int) -> list[Claimed[K]]:
        """Claims of workers that vanished, now ours: they are to be retried or failed at once."""
        return self._take(connection, sql.take_stale(self._names), count=count, stale=stale_seconds)

    # --- looking ---

    def backlog(self, connection: Connection, limit: int) -> int:
        """How many wait although their turn has come; who asks for `limit` is told at most so many."""
        return int(self._run(connection, sql.backlog(self._names), limit=limit).scalar_one())

    def numbers(self, connection: Connection, stale_seconds: float) -> QueueNumbers:
        row = self._run(connection, sql.numbers(self._names), stale=stale_seconds).one()
        return QueueNumbers(**row._mapping)

    # --- an operator's second chance ---

    def count_failed(self, connection: Connection, queue: str, which: FailedFilter) -> int:
        return int(self._run(connection, sql.count_failed(self._names), **_filter(queue, which)).scalar_one())

    def requeue_failed(self, connection: Connection, queue: str, which: FailedFilter, per_second: float) -> int:
        """Returns how many; `per_second` 0 makes them due all at once. A row that may not live beside another stays."""
        values = _filter(queue, which) | {"rate": float(per_second)}
        return self._run(connection, sql.requeue_failed(self._names), **values).rowcount

    # --- inside ---

    def _take(self, connection: Connection, statement: str, **values: Any) -> list[Claimed[K]]:
        token = str(uuid4())
        rows = sorted(self._run(connection, statement, token=token, **values), key=lambda row: int(row.place))
        return [Claimed(row.key, token, row.attempts) for row in rows]

    def _run(self, connection: Connection, statement: str, **values: Any) -> CursorResult[Any]:
        return connection.exec_driver_sql(statement, self._words | values)


def _of(claims: Sequence[Claimed[Any]]) -> dict[str, Any]:
    return {"keys": [claim.key for claim in claims], "tokens": [claim.token for claim in claims]}


def _filter(queue: str, which: FailedFilter) -> dict[str, Any]:
    keys = None if which.keys is None else list(which.keys)
    return {
        "queue": queue, "keys": keys, "error": which.error, "since": which.since, "dead": which.dead,
        "limit": which.limit,
    }  # fmt: skip


def _rendered(order_by: ClauseElement) -> str:
    compiled = order_by.compile(dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True})  # type: ignore[no-untyped-call]
    return str(compiled).replace("%", "%%")
