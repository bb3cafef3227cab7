"""Executions and their live logs as rows, for those who read them."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from database.connection import DatabaseConnection
from services.ledger.logs import LogBatch, LoggedLine, LogPosition, LogStore, ProgressNote

TOKEN = 7


def a_row(db: DatabaseConnection, status: str, details: Any = None, schedule_id: UUID | None = None) -> UUID:
    """An execution in this status, begun a moment ago."""
    with db.transaction() as connection:
        execution_id: UUID = connection.exec_driver_sql(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for,
                   started_at, incarnation, instance_id, fencing_token, metadata)
               VALUES (%(id)s, 'nightly', 'example.com', %(config)s, %(status)s, clock_timestamp(), clock_timestamp(),
                   gen_random_uuid(), 'replica-1', %(token)s, %(details)s::jsonb)
               RETURNING execution_id""",
            {
                "id": schedule_id, "config": uuid4(), "status": status, "token": TOKEN,
                "details": None if details is None else json.dumps(details),
            },
        ).scalar_one()  # fmt: skip
    return execution_id


def say(
    store: LogStore, execution_id: UUID, *texts: str, first: int = 1, progress: Any = None, is_complete: bool = False
) -> None:
    now = datetime.now(UTC)
    lines = [
        LoggedLine(execution_id, LogPosition(TOKEN, first + place), now, "INFO", text)
        for place, text in enumerate(texts)
    ]
    store.write(LogBatch(lines, [ProgressNote(execution_id, TOKEN, progress, is_complete)]))


def end(db: DatabaseConnection, execution_id: UUID, status: str = "success") -> None:
    with db.transaction() as connection:
        connection.exec_driver_sql(
            "UPDATE job_executions SET status = %s, completed_at = clock_timestamp() WHERE execution_id = %s",
            (status, execution_id),
        )
