"""Records runs as the naive design does: an INSERT and an UPDATE per run. Imports only psycopg2."""

import os
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg2

from benchmarks.designs import ledger
from benchmarks.designs.plan import Plan, await_plan, say_planned


class Runs:
    """One connection per thread, opened when it is needed."""

    def __init__(self) -> None:
        self._local = threading.local()
        self.plan: Plan | None = None

    def schedule_ids(self) -> list[str]:
        return [str(row[0]) for row in self.sql("SELECT schedule_id FROM schedules ORDER BY schedule_id")]

    def await_plan(self) -> Plan:
        self.plan = await_plan(self.sql)
        return self.plan

    def say_planned(self) -> None:
        say_planned(self.sql)

    def record(self, schedule_id: str, at: datetime) -> None:
        """The job: a row when it starts, the no-op, the row's end."""
        ((row_id,),) = self.sql(
            "INSERT INTO runs (schedule_id, scheduled_for, started_at, status) "
            "VALUES (%s, %s, clock_timestamp(), 'running') RETURNING id",
            schedule_id,
            at,
        )
        ledger.noop(schedule_id, at)
        self.sql("UPDATE runs SET status = 'success', completed_at = clock_timestamp() WHERE id = %s", row_id)

    def planned(self) -> datetime:
        """For designs whose jobs do not know their planned time: up to a second late, the clock tells it."""
        if self.plan is None or self.plan.fires_each > 1:
            return datetime.fromtimestamp(int(time.time()), UTC)
        return self.plan.at

    def sql(self, statement: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        if not hasattr(self._local, "connection"):
            self._local.connection = psycopg2.connect(os.environ["DATABASE_URL"])
        connection = self._local.connection
        with connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []
