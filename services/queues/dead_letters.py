"""Dead letters: items whose last attempt failed, with the error. A database trigger closes the letter when its row is
queued again, whichever program requeues it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, func, select

from database.connection import DatabaseConnection
from database.pages import checked_limit
from database.workflow_models import DeadLetter
from services.queues.outcomes import Claim, Failure
from services.schedules.spec import aware, plain_text

BURY = """
INSERT INTO dead_letters (queue, item_key, attempts, error, traceback)
VALUES (%(queue)s, %(key)s, %(attempts)s, %(error)s, %(traceback)s)
ON CONFLICT (queue, item_key) WHERE requeued_at IS NULL DO UPDATE SET
    attempts = excluded.attempts, error = excluded.error, traceback = excluded.traceback,
    died_at = clock_timestamp()
"""


def bury(connection: Connection, queue: str, claim: Claim[Any], failure: Failure) -> None:
    """In the transaction that marks the row as failed."""
    values = {"queue": queue, "key": str(claim.key), "attempts": claim.attempt}
    connection.exec_driver_sql(BURY, values | {"error": failure.message, "traceback": failure.traceback})


@dataclass(frozen=True, slots=True)
class Letter:
    id: int
    queue: str
    item_key: str
    attempts: int
    error: str
    traceback: str | None
    died_at: datetime
    requeued_at: datetime | None
    requeued_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Open letters, or with `closed` those whose row was requeued."""

    queue: str | None = None
    error: str | None = None  # a substring, case-insensitive
    since: datetime | None = None
    ids: Sequence[int] | None = None
    closed: bool = False

    def conditions(self) -> list[ColumnElement[bool]]:
        found: list[ColumnElement[bool]] = [
            DeadLetter.requeued_at.is_not(None) if self.closed else DeadLetter.requeued_at.is_(None)
        ]
        if self.queue is not None:
            found.append(DeadLetter.queue == self.queue)
        if self.error is not None:
            found.append(DeadLetter.error.icontains(plain_text("error", self.error), autoescape=True))
        if self.since is not None:
            found.append(DeadLetter.died_at >= aware("since", self.since))
        if self.ids is not None:
            found.append(DeadLetter.id.in_(self.ids))
        return found


class DeadLetters:
    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def page(self, where: LetterFilter = LetterFilter(), *, limit: int = 50, before: int | None = None) -> list[Letter]:
        """Newest first; `before` is the last id of the previous page."""
        query = _select().where(*where.conditions()).order_by(DeadLetter.id.desc()).limit(checked_limit(limit))
        return self._read(query if before is None else query.where(DeadLetter.id < before))

    def oldest(self, where: LetterFilter, limit: int) -> list[Letter]:
        return self._read(_select().where(*where.conditions()).order_by(DeadLetter.id).limit(limit))

    def get(self, letter_id: int) -> Letter | None:
        found = self._read(_select().where(DeadLetter.id == letter_id))
        return found[0] if found else None

    def count(self, where: LetterFilter = LetterFilter()) -> dict[str, int]:
        """By queue."""
        query = select(DeadLetter.queue, func.count()).where(*where.conditions()).group_by(DeadLetter.queue)
        with self._db.transaction() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def cleanup(self, days: int) -> int:
        old = DeadLetter.died_at < func.now() - func.make_interval(0, 0, 0, days)
        with self._db.transaction() as connection:
            return connection.execute(delete(DeadLetter).where(old)).rowcount

    def _read(self, query: Select[Any]) -> list[Letter]:
        with self._db.transaction() as connection:
            return [Letter(**row._mapping) for row in connection.execute(query)]


def _select() -> Select[Any]:
    return select(*(getattr(DeadLetter, name) for name in Letter.__dataclass_fields__))
