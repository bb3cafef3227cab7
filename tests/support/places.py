"""A queue of places for tests of the job loop, and its contents."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from database.connection import DatabaseConnection
from database.workflow_models import Place
from database.workflow_statuses import DeepScanStatus
from services.queues.circuit import Breaker
from services.queues.job_loop import run_job_loop
from services.queues.loop_limits import LoopLimits
from services.queues.outcomes import Summary
from services.queues.steps import Process, Steps

QUEUE = "deep_scan"
LIMITS = LoopLimits(
    batch_size=10,
    concurrency=4,
    run_budget_seconds=30,
    item_timeout_seconds=20,
    retry_backoff_seconds=0,
    breaker=Breaker(window=1000, failures=1000),
)


def run_places(db: DatabaseConnection, process: Process[int] | Steps[int], **more: Any) -> Summary:
    """One run over the places, with limits by name."""
    limits = {name: more.pop(name) for name in list(more) if name in LoopLimits.__dataclass_fields__}
    return run_job_loop(
        model=Place,
        status_enum=DeepScanStatus,
        queued_status=DeepScanStatus.QUEUED,
        processing_status=DeepScanStatus.PROCESSING,
        completed_status=DeepScanStatus.COMPLETED,
        failed_status=DeepScanStatus.ERROR,
        processing_function=process,
        batch_size=limits.pop("batch_size", LIMITS.batch_size),
        status_field_name="deep_scan_status",
        error_field_name="deep_scan_error",
        queue=QUEUE,
        limits=replace(LIMITS, **limits),
        db=db,
        **more,
    )


def working(work: Callable[[Any], Any]) -> Steps[int]:
    """Steps whose snapshot is the place's key, and which save the result of `work` as its name."""

    def save(session: Session, key: int, result: Any) -> None:
        session.execute(text("UPDATE places_staging SET name = :name WHERE id = :id"), {"name": str(result), "id": key})

    return Steps(load=lambda session, key: key, work=work, save=save)


def add_places(db: DatabaseConnection, count: int, **columns: Any) -> list[int]:
    given = {"deep_scan_status": "Queued", **columns}
    names = ", ".join(given)
    values = ", ".join(f"%({name})s" for name in given)
    with db.transaction() as connection:
        rows = connection.exec_driver_sql(
            f"""INSERT INTO places_staging (place_id, {names})
                SELECT gen_random_uuid(), {values} FROM generate_series(1, {count}) RETURNING id""",
            given,
        )
        return [row[0] for row in rows]


def places(db: DatabaseConnection, what: str = "deep_scan_status", order: str = "id") -> list[Any]:
    """One value per place, or a tuple of values."""
    rows = query(db, f"SELECT {what} FROM places_staging ORDER BY {order}")
    return [row[0] if len(row) == 1 else row for row in rows]


def query(db: DatabaseConnection, sql: str, **values: Any) -> list[tuple[Any, ...]]:
    with db.transaction() as connection:
        result = connection.execute(text(sql), values)
        return [tuple(row) for row in result] if result.returns_rows else []
