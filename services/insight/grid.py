"""The grid: schedules and their last fires as cells, those with trouble first."""

from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from database.connection import DatabaseConnection
from database.models import ExecutionStatus
from services.insight import grid_sql as sql
from services.ledger.listing import FAILED

FIRES = 30
SCHEDULES = 40
LOOKED_AT = 2_000  # executions in which schedules are looked for
RECOVERED = "recovered"
TROUBLE = (*FAILED, ExecutionStatus.MISSED)


@dataclass(frozen=True, slots=True)
class Cell:
    """A fire, by its last attempt."""

    execution_id: UUID
    scheduled_for: datetime
    status: str  # of an execution, or RECOVERED: a retry succeeded
    attempt: int
    duration_seconds: float | None
    why: str


@dataclass(frozen=True, slots=True)
class GridRow:
    schedule_id: UUID
    label: str
    cells: tuple[Cell, ...]  # oldest first

    @property
    def troubles(self) -> int:
        """Its fires that failed for good or were missed."""
        return sum(cell.status in TROUBLE for cell in self.cells)

    @property
    def is_in_trouble(self) -> bool:
        """The last fire that ran has failed, or one was missed after it."""
        told = (cell.status for cell in reversed(self.cells) if cell.status in (*TROUBLE, "success", RECOVERED))
        return next(told, "") in TROUBLE


class Grid:
    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def rows(self, hours: int, schedules: int = SCHEDULES, fires: int = FIRES) -> list[GridRow]:
        """Those in trouble first, then those that had the most; `hours` is how far back trouble counts."""
        values = {"hours": hours, "schedules": schedules, "fires": fires, "looked_at": LOOKED_AT}
        with self._db.transaction() as connection:
            found = connection.exec_driver_sql(sql.GRID, values).all()
        lines = [
            GridRow(schedule_id, label, tuple(_cell(row) for row in reversed(list(rows))))
            for (schedule_id, label), rows in groupby(found, key=lambda row: (row.schedule_id, row.label))
        ]
        return sorted(lines, key=lambda line: (not line.is_in_trouble, -line.troubles))


def _cell(row: Row[Any]) -> Cell:
    status = RECOVERED if row.status == "success" and row.attempt > 1 else row.status
    return Cell(row.execution_id, row.scheduled_for, status, row.attempt, row.duration_seconds, row.why)
