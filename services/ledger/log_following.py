"""Follows the log of one execution to its end: what is new at each look, and whether more may come.

The end of an execution and its last lines are written by two threads, so a reader that sees the end first waits a
moment for the lines: until the log says that it is complete, or for LAST_LINES_SECONDS after a writer died.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from database.models import ExecutionStatus
from services.ledger.listing import ExecutionRecord
from services.ledger.logs import BEGINNING, PAGE, ExecutionLogs, LoggedLine, LogPosition, LogState

LAST_LINES_SECONDS = 3.0
REPORTED = ("log", "logged", "progress")  # in the details of an execution whose handler reported anything


@dataclass(frozen=True, slots=True)
class Look:
    record: ExecutionRecord | None  # None: it was deleted
    lines: list[LoggedLine]
    state: LogState | None
    is_over: bool  # nothing more will come


class LogFollower:
    """For one reader. `find` reads the execution's row."""

    def __init__(
        self,
        logs: ExecutionLogs,
        find: Callable[[UUID], ExecutionRecord | None],
        execution_id: UUID,
        after: LogPosition = BEGINNING,
    ) -> None:
        self._logs, self._find, self._execution_id = logs, find, execution_id
        self.position = after
        self._ended_at: float | None = None  # monotonic: when we saw its end first

    def look(self) -> Look:
        """The row is read first: what its log says after that is all, if the execution had ended by then."""
        record = self._find(self._execution_id)
        state = self._logs.state(self._execution_id)
        lines = self._logs.read(self._execution_id, self.position)
        if lines:
            self.position = lines[-1].position
        return Look(record, lines, state, len(lines) < PAGE and self._is_over(record, state))

    def _is_over(self, record: ExecutionRecord | None, state: LogState | None) -> bool:
        if record is None:
            return True
        if not record.is_terminal:
            return False
        if not _awaits_lines(record, state):
            return True
        now = time.monotonic()
        if self._ended_at is None:
            self._ended_at = now
            if self._logs.is_long_over(record.execution_id, LAST_LINES_SECONDS):
                self._ended_at -= LAST_LINES_SECONDS
        return now >= self._ended_at + LAST_LINES_SECONDS


def _awaits_lines(record: ExecutionRecord, state: LogState | None) -> bool:
    if record.status == ExecutionStatus.ABANDONED:  # its replica was silent for longer than lines take
        return False
    if state is not None:
        return not state.is_complete
    return any(name in (record.details or {}) for name in REPORTED)
