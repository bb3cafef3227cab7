"""Due fires and the store that claims them, for tests below the dispatcher."""

import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import text

from config import Settings
from database.connection import DatabaseConnection
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Fire, Owner, Policy
from services.ledger.needs import OF_EVERYTHING, Abilities
from services.ledger.verdicts import Tolerances
from services.ledger.waiting import Settling

POLICY = Policy(
    max_instances=1,
    coalesce=True,
    misfire_grace_seconds=300,
    timeout_seconds=60,
    max_retries=0,
    retry_backoff_seconds=1,
    catchup="one",
)
TOLERANCES = Tolerances.from_settings(Settings(_env_file=None))
Make = Callable[..., UUID]


class _Moment:
    """Fires are due just before it; each test has its own whole second."""

    at = datetime.now(UTC)


def this_is_now() -> None:
    _Moment.at = datetime.now(UTC).replace(microsecond=0)


def ago(seconds: int) -> datetime:
    return _Moment.at - timedelta(seconds=seconds)


def fire(schedule_id: UUID, seconds_ago: int = 1) -> Fire:
    return Fire(schedule_id, ago(seconds_ago), ago(seconds_ago))


def store_of(db: DatabaseConnection, name: str = "replica", abilities: Abilities = OF_EVERYTHING) -> ExecutionStore:
    return ExecutionStore(db, Owner(name, uuid4()), POLICY, 86_400, abilities=abilities)


def settling_of(
    db: DatabaseConnection, store: ExecutionStore, monotonic: Callable[[], float] = time.monotonic
) -> Settling:
    """Of the replica that this store belongs to."""
    return Settling(db, store._owner, POLICY, 86_400, store._abilities, 15.0, monotonic)


def settle(db: DatabaseConnection, store: ExecutionStore) -> None:
    """As if every row had waited for a while."""
    with db.transaction() as connection:
        connection.execute(text("UPDATE job_executions SET settle_at = now() - interval '1 hour'"))
    with closing(settling_of(db, store)) as settling:
        settling.settle()


def age(db: DatabaseConnection, schedule_id: UUID, seconds: int) -> None:
    """As if the schedule's timing had been valid for this long."""
    with db.transaction() as connection:
        connection.execute(text("ALTER TABLE schedules DISABLE TRIGGER USER"))
        connection.exec_driver_sql(
            "UPDATE schedules SET effective_from = now() - make_interval(secs => %s) WHERE schedule_id = %s",
            (seconds, schedule_id),
        )
        connection.execute(text("ALTER TABLE schedules ENABLE TRIGGER USER"))


def happened(db: DatabaseConnection, schedule_id: UUID, change: str, at: datetime) -> None:
    """As if its timing had been changed at that time."""
    with db.transaction() as connection:
        values = {"id": schedule_id, "at": at}
        connection.exec_driver_sql(f"UPDATE schedules SET {change} WHERE schedule_id = %(id)s", values)
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")  # no trigger: sets effective_from
        connection.exec_driver_sql("UPDATE schedules SET effective_from = %(at)s WHERE schedule_id = %(id)s", values)
        connection.exec_driver_sql(
            """UPDATE schedule_changes
               SET changed_at = %(at)s, new = jsonb_set(new, '{effective_from}', to_jsonb(%(at)s::timestamptz))
               WHERE change_id = (SELECT max(change_id) FROM schedule_changes WHERE schedule_id = %(id)s)""",
            values,
        )


def missed(db: DatabaseConnection, schedule_id: UUID, first: datetime, last: datetime) -> None:
    """One summary row, as the gap scan writes it after a downtime."""
    with db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, cause,
                                           reason, completed_at, metadata)
               VALUES (%(id)s, 'job', 'job', %(id)s, 'missed', %(first)s, 'catchup', 'catchup_cap', now(),
                       jsonb_build_object('first', %(first)s::text, 'last', %(last)s::text, 'count', 20))""",
            {"id": schedule_id, "first": first, "last": last},
        )


def rows(db: DatabaseConnection, what: str = "status, reason") -> list[tuple[Any, ...]]:
    with db.transaction() as connection:
        found = connection.execute(text(f"SELECT {what} FROM job_executions ORDER BY scheduled_for"))
        return [tuple(row) for row in found]
