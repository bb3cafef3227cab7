"""One queue on its table: claim, finish, hand back, rescue. Every write for a claim requires its token."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Generic
from uuid import uuid4

from sqlalchemy import ClauseElement, Connection, CursorResult, Table, inspect
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import DeclarativeBase

from database.workflow_models import claim_order
from services.queues import queue_sql as sql
from services.queues.outcomes import Claim, K


@dataclass(frozen=True, slots=True)
class Words:
    """The value of the status column in each state."""

    queued: Enum
    processing: Enum
    completed: Enum
    failed: Enum


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Current counts of a queue."""

    depth: int
    due: int  # of these: may be claimed now
    oldest_seconds: float  # since the oldest of them became due
    processing: int
    stale: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedFilter:
    """Selects failed rows."""

    keys: Sequence[str] | None = None
    error: str | None = None  # a substring, case-insensitive
    since: datetime | None = None
    dead: bool = False  # only those with an open dead letter
    limit: int = 1000


class QueueTable(Generic[K]):
    """Stateless; each method is one statement on the caller's connection."""

    def __init__(
        self,
        model: type[DeclarativeBase],
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
        assert isinstance(table, Table)  # noqa: S101 - a mapped table, not a join
        self._names = sql.Names(
            table=table.name,
            key=key.name,
            key_type=key.type.compile(postgresql.dialect()),  # type: ignore[no-untyped-call]
            status=table.c[status_field_name].name,
            error=table.c[error_field_name].name,
            prefix=prefix,
            order=claim_order(prefix) if order_by is None else _as_sql(order_by),
            one_live_per=tuple(table.c[name].name for name in one_live_per),
        )
        self._words = {name: getattr(words, name).value for name in Words.__dataclass_fields__}
        self._claim, self._lock_held = sql.claim(self._names), sql.lock_held(self._names)
        self._wait_for_held, self._complete = sql.wait_for_held(self._names), sql.complete(self._names)

    # --- the way of an item ---

    def claim(self, connection: Connection, count: int) -> list[Claim[K]]:
        """Claim the next rows, at most `count`; skips rows that another session has locked."""
        return self._take(connection, self._claim, count=count)

    def lock_held(self, connection: Connection, claims: Sequence[Claim[K]], actor: str) -> set[Claim[K]]:
        """Lock the rows of claims that still hold; no other session can take them until the transaction ends.

        Of several claims, rows that another session has locked are left out; for a single one this waits. The actor
        signs everything that the transaction writes from now on.
        """
        statement = self._lock_held if len(claims) > 1 else self._wait_for_held
        return {claims[row.place - 1] for row in self._run(connection, statement, actor=actor, **_of(claims))}

    def complete(self, connection: Connection, held: Iterable[Claim[K]]) -> dict[K, str]:
        """After `lock_held`, in its transaction. Returns the errors of rows that their own `save` set to failed."""
        rows = self._run(connection, self._complete, keys=[claim.key for claim in held])
        return {row.key: row.error for row in rows if row.error is not None}

    def retry(self, connection: Connection, claim: Claim[K], error: str, delay_seconds: float) -> bool:
        """False if the claim no longer holds."""
        values = _of([claim]) | {"error": error, "delay": delay_seconds}
        return self._run(connection, sql.retry(self._names), **values).rowcount > 0

    def fail(self, connection: Connection, claim: Claim[K], error: str) -> bool:
        values = _of([claim]) | {"error": error}
        return self._run(connection, sql.fail(self._names), **values).rowcount > 0

    def hand_back(self, connection: Connection, claim: Claim[K]) -> None:
        self._run(connection, sql.hand_back(self._names), **_of([claim]))

    def take_stale(self, connection: Connection, stale_seconds: float, count: int) -> list[Claim[K]]:
        """Take over the claims of workers that vanished; the caller retries or fails them at once."""
        return self._take(connection, sql.take_stale(self._names), count=count, stale=stale_seconds)

    # --- counts ---

    def backlog(self, connection: Connection, limit: int) -> int:
        """Waiting rows whose turn has come, counted up to `limit`."""
        return int(self._run(connection, sql.backlog(self._names), limit=limit).scalar_one())

    def counts(self, connection: Connection, stale_seconds: float) -> QueueCounts:
        row = self._run(connection, sql.counts(self._names), stale=stale_seconds).one()
        return QueueCounts(**row._mapping)

    # --- an operator's second chance ---

    def count_failed(self, connection: Connection, queue: str, which: FailedFilter) -> int:
        return int(self._run(connection, sql.count_failed(self._names), **_filter(queue, which)).scalar_one())

    def requeue_failed(self, connection: Connection, queue: str, which: FailedFilter, per_second: float) -> int:
        """Returns the number of rows; `per_second` 0 makes all due at once. `one_live_per` may exclude a row."""
        values = _filter(queue, which) | {"rate": float(per_second)}
        return self._run(connection, sql.requeue_failed(self._names), **values).rowcount

    # --- inside ---

    def _take(self, connection: Connection, statement: str, **values: Any) -> list[Claim[K]]:
        token = str(uuid4())
        rows = sorted(self._run(connection, statement, token=token, **values), key=lambda row: int(row.place))
        return [Claim(row.key, token, row.attempts) for row in rows]

    def _run(self, connection: Connection, statement: str, **values: Any) -> CursorResult[Any]:
        return connection.exec_driver_sql(statement, self._words | values)


def _of(claims: Sequence[Claim[Any]]) -> dict[str, Any]:
    return {"keys": [claim.key for claim in claims], "tokens": [claim.token for claim in claims]}


def _filter(queue: str, which: FailedFilter) -> dict[str, Any]:
    keys = None if which.keys is None else list(which.keys)
    return {
        "queue": queue, "keys": keys, "error": which.error, "since": which.since, "dead": which.dead,
        "limit": which.limit,
    }  # fmt: skip


def _as_sql(order_by: ClauseElement) -> str:
    compiled = order_by.compile(dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True})  # type: ignore[no-untyped-call]
    return str(compiled).replace("%", "%%")
