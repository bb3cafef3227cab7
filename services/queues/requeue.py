"""Requeue failed rows on an operator's request, with a filter, a limit and a rate.

The call does not wait for the rate: the rows are queued at once and become due one after the other.
"""

from typing import Any

from database.connection import DatabaseConnection
from database.writing import write_as
from services.errors import InvalidInput, Problem
from services.queues.dead_letters import DeadLetters, LetterFilter
from services.queues.queue import Queue, queues
from services.queues.queue_table import FailedFilter

MAX_ROWS = 100_000
SLOWEST = 0.00001  # rows per second: about one a day; the last of MAX_ROWS is due before the year 10000


class Requeue:
    def __init__(self, db: DatabaseConnection, actor: str) -> None:
        self._db, self._actor = db, actor

    def count(self, queue: Queue[Any], which: FailedFilter) -> int:
        _check(which.limit, 0)
        with self._db.transaction() as connection:
            return queue.table.count_failed(connection, queue.name, which)

    def failed(self, queue: Queue[Any], which: FailedFilter, per_second: float = 0) -> int:
        """Returns how many rows are queued again; `per_second` 0: all at once."""
        _check(which.limit, per_second)
        return write_as(
            self._db,
            self._actor,
            lambda connection: queue.table.requeue_failed(connection, queue.name, which, per_second),
        )

    def count_letters(self, where: LetterFilter, limit: int) -> int:
        _check(limit, 0)
        return min(limit, sum(DeadLetters(self._db).count(where).values()))

    def letters(self, where: LetterFilter, limit: int, per_second: float = 0) -> dict[str, int]:
        """Oldest letters first; returns the number of rows per queue. A row that is no longer failed, or that
        `Queue.one_live_per` excludes, stays as it is."""
        _check(limit, per_second)
        keys: dict[str, list[str]] = {}
        for letter in DeadLetters(self._db).oldest(where, limit):
            keys.setdefault(letter.queue, []).append(letter.item_key)
        return {name: self._letters_of(queues.get(name), items, per_second) for name, items in keys.items()}

    def _letters_of(self, queue: Queue[Any] | None, keys: list[str], per_second: float) -> int:
        """The letters of a queue that this program does not know stay open."""
        which = FailedFilter(keys=keys, dead=True, limit=len(keys))
        return 0 if queue is None else self.failed(queue, which, per_second)


def _check(limit: int, per_second: float) -> None:
    if not 1 <= limit <= MAX_ROWS:
        raise InvalidInput(Problem("limit", f"must be between 1 and {MAX_ROWS}, got {limit}"))
    if reason := bad_rate(per_second):
        raise InvalidInput(Problem("rate", reason))


def bad_rate(per_second: float) -> str | None:
    """The reason why the rate is invalid, or None."""
    if per_second == 0 or SLOWEST <= per_second <= MAX_ROWS:
        return None
    return f"must be 0 (all at once) or between {SLOWEST:.5f} and {MAX_ROWS} rows per second, got {per_second:g}"
