"""Live logs: what handlers logged and how far they are, written in batches while they run, and read by position.

The key of a line is (execution, fencing token, number): every attempt is an execution of its own, so a replica that was
given up can only add to the log of the attempt that it ran. A line is never changed, and a batch may be sent twice.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from database.arrays import flag_array, instant_array, number_array, uuid_array
from database.connection import DatabaseConnection
from services.errors import InvalidInput, Problem
from services.ledger import logs_sql as sql

MAX_NUMBER = 2**63 - 1
PAGE = 500
DELETE_BATCH = 5000


@dataclass(frozen=True, slots=True, order=True)
class LogPosition:
    """After which line a reader continues: `<fencing token>-<line>`."""

    fencing_token: int = 0
    line: int = 0

    def __str__(self) -> str:
        return f"{self.fencing_token}-{self.line}"

    @classmethod
    def parse(cls, text: str, field: str) -> "LogPosition":
        token, _, line = text.partition("-")
        given = [int(part) for part in (token, line) if part.isascii() and part.isdigit() and len(part) < 20]
        if len(given) != 2 or max(given) > MAX_NUMBER:
            raise InvalidInput(Problem(field, f"must be the position of a line, such as 4711-25, got {text[:50]!r}"))
        return cls(*given)


BEGINNING = LogPosition()


@dataclass(frozen=True, slots=True)
class LoggedLine:
    execution_id: UUID
    position: LogPosition
    at: datetime
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class LogState:
    """How far the handler is. `is_complete`: nothing will be added, unless a handler outlives its execution."""

    done: float | None
    total: float | None
    is_complete: bool


@dataclass(frozen=True, slots=True)
class ProgressNote:
    """What changed besides the lines: the progress, if it did, or that the log is complete."""

    execution_id: UUID
    fencing_token: int
    progress: tuple[float, float | None] | None = None
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class LogBatch:
    lines: Sequence[LoggedLine] = field(default_factory=list)
    notes: Sequence[ProgressNote] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.lines and not self.notes


class LogStore:
    """For the thread that writes: it keeps its own connection, which opens with the first line."""

    def __init__(self, db: DatabaseConnection) -> None:
        self._connection = db.dedicated()

    def write(self, batch: LogBatch) -> None:
        """Raises Unavailable, or a DBAPIError; the same batch may be written again."""
        lines, notes = batch.lines, batch.notes
        self._connection.run(
            sql.WRITE,
            {
                "ids": uuid_array(line.execution_id for line in lines),
                "tokens": number_array(line.position.fencing_token for line in lines),
                "lines": number_array(line.position.line for line in lines),
                "ats": instant_array(line.at for line in lines),
                "levels": [line.level for line in lines],
                "texts": [line.text for line in lines],
                "of": uuid_array(note.execution_id for note in notes),
                "of_tokens": number_array(note.fencing_token for note in notes),
                "done": number_array(note.progress[0] if note.progress else None for note in notes),
                "totals": number_array(note.progress[1] if note.progress else None for note in notes),
                "complete": flag_array(note.is_complete for note in notes),
            },
        )

    def close(self) -> None:
        self._connection.close()


class ExecutionLogs:
    """What has been written so far. Safe to share between threads."""

    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def read(self, execution_id: UUID, after: LogPosition = BEGINNING, limit: int = PAGE) -> list[LoggedLine]:
        values = {"execution_id": execution_id, "token": after.fencing_token, "line": after.line, "limit": limit}
        return self._lines(sql.READ, values)

    def last(self, execution_id: UUID, limit: int = PAGE) -> list[LoggedLine]:
        return self._lines(sql.LAST, {"execution_id": execution_id, "limit": limit})

    def news(self, seen: Mapping[UUID, LogPosition], limit_each: int = PAGE) -> list[LoggedLine]:
        """Of several executions, in the order of their clocks."""
        if not seen:
            return []
        values = {
            "ids": uuid_array(seen),
            "tokens": number_array(position.fencing_token for position in seen.values()),
            "lines": number_array(position.line for position in seen.values()),
            "limit": limit_each,
        }
        return self._lines(sql.NEWS, values)

    def ends(self, execution_ids: Collection[UUID]) -> dict[UUID, LogPosition]:
        """The last lines so far, for a reader who wants only what follows."""
        if not execution_ids:
            return {}
        rows = self._rows(sql.ENDS, {"ids": uuid_array(execution_ids)})
        return {row.execution_id: LogPosition(row.fencing_token, row.line) for row in rows}

    def state(self, execution_id: UUID) -> LogState | None:
        """None: nothing was reported, or nothing has been written yet."""
        rows = self._rows(sql.STATE, {"execution_id": execution_id})
        return LogState(rows[0].done, rows[0].total, rows[0].is_complete) if rows else None

    def is_long_over(self, execution_id: UUID, seconds: float) -> bool:
        """By Postgres' clock."""
        rows = self._rows(sql.LONG_OVER, {"execution_id": execution_id, "seconds": seconds})
        return bool(rows and rows[0].long_over)

    def delete_older(self, limit: datetime) -> int:
        """Returns how many lines. A small transaction per batch of lines of one execution."""
        total = 0
        while oldest := self._rows(sql.OLDEST, {"limit": limit}):
            for row in oldest:
                total += self._delete(dict(row._mapping))
        return total

    def _delete(self, key: dict[str, Any]) -> int:
        total = 0
        while True:
            with self._db.transaction() as connection:
                deleted = connection.exec_driver_sql(sql.DELETE_LINES, {**key, "batch_size": DELETE_BATCH}).rowcount
                total += deleted
                if deleted < DELETE_BATCH:
                    connection.exec_driver_sql(sql.DELETE_PROGRESS, key)
                    return total

    def _lines(self, statement: str, values: Mapping[str, Any]) -> list[LoggedLine]:
        return [
            LoggedLine(row.execution_id, LogPosition(row.fencing_token, row.line), row.at, row.level, row.text)
            for row in self._rows(statement, values)
        ]

    def _rows(self, statement: str, values: Mapping[str, Any]) -> list[Row[Any]]:
        with self._db.transaction() as connection:
            return list(connection.exec_driver_sql(statement, dict(values)))
