"""What the tests of the sync look at."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import text

from database.connection import DatabaseConnection
from services.api_sync.report import SyncReport
from services.schedule_repository import ScheduleRepository
from services.schedules.batch import ScheduleRecord

Run = Callable[..., SyncReport]
EXACTLY = "SELECT schedule_id, revision, updated_at, xmin::text FROM schedules ORDER BY 1"  # xmin: written again or not


def rows(db: DatabaseConnection, sql: str) -> list[tuple[Any, ...]]:
    with db.transaction() as connection:
        return [tuple(row) for row in connection.execute(text(sql))]


def write(db: DatabaseConnection, sql: str) -> None:
    with db.transaction() as connection:
        connection.execute(text(sql))


def counts(report: SyncReport) -> dict[str, int]:
    return {kind.value: count for kind, count in report.counts.items() if count}


def of(repository: ScheduleRepository, number: int) -> ScheduleRecord:
    """The schedule of the stand-in's item."""
    record = repository.get_schedule_by_config_id(f"config-{number}")
    assert record is not None
    return record
