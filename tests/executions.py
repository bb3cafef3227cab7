"""Due fires and the store that claims them, for tests below the dispatcher."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import text

from database.connection import DatabaseConnection
from services.execution_store import ExecutionStore
from services.fires import Fire, Owner, Policy

POLICY = Policy(
    max_instances=1,
    coalesce=True,
    misfire_grace_seconds=300,
    timeout_seconds=60,
    max_retries=0,
    retry_backoff_seconds=1,
    catchup="one",
)
Make = Callable[..., UUID]


class _Moment:
    """Fires are due a moment before it; each test has its own, whole-second one."""

    at = datetime.now(UTC)


def this_is_now() -> None:
    _Moment.at = datetime.now(UTC).replace(microsecond=0)


def ago(seconds: int) -> datetime:
    return _Moment.at - timedelta(seconds=seconds)


def fire(schedule_id: UUID, seconds_ago: int = 1) -> Fire:
    return Fire(schedule_id, ago(seconds_ago), ago(seconds_ago))


def store_of(db: DatabaseConnection, name: str = "replica") -> ExecutionStore:
    return ExecutionStore(db, Owner(name, uuid4()), POLICY, 86_400)


def age(db: DatabaseConnection, schedule_id: UUID, seconds: int) -> None:
    """As if its timing had been valid for so long."""
    with db.transaction() as connection:
        connection.execute(text("ALTER TABLE schedules DISABLE TRIGGER USER"))
        connection.exec_driver_sql(
            "UPDATE schedules SET effective_from = now() - make_interval(secs => %s) WHERE schedule_id = %s",
            (seconds, schedule_id),
        )
        connection.execute(text("ALTER TABLE schedules ENABLE TRIGGER USER"))


def rows(db: DatabaseConnection, what: str = "status, reason") -> list[tuple[Any, ...]]:
    with db.transaction() as connection:
        found = connection.execute(text(f"SELECT {what} FROM job_executions ORDER BY scheduled_for"))
        return [tuple(row) for row in found]
