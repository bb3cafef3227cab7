"""The design that most people start with, as one replica: `python -m benchmarks.naive`.

APScheduler with a job per schedule and its own pool, a `SET NX` lock around the job that is released after it, one
INSERT and one UPDATE per run. Here to be measured against, in the same run and with the same work.
"""

import os
import signal
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg2
import psycopg2.extras
import redis
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from psycopg2.pool import ThreadedConnectionPool

LOCK_SECONDS = 60
TABLE = """
CREATE TABLE IF NOT EXISTS naive_executions (
    id bigserial PRIMARY KEY, schedule_id uuid, scheduled_for timestamptz, started_at timestamptz,
    completed_at timestamptz, status text
)
"""


class NaiveReplica:
    def __init__(self, database_url: str, redis_url: str, workers: int) -> None:
        psycopg2.extras.register_uuid()  # type: ignore[no-untyped-call]
        self._pool = ThreadedConnectionPool(1, workers + 1, database_url)
        self._redis = redis.Redis.from_url(redis_url)
        self._scheduler = BackgroundScheduler(timezone=UTC, executors={"default": ThreadPoolExecutor(workers)})

    def run(self, at: datetime) -> None:
        for (schedule_id,) in self._sql("SELECT schedule_id FROM schedules"):
            self._scheduler.add_job(
                self._job, "date", run_date=at, args=[schedule_id, at], id=str(schedule_id), misfire_grace_time=None
            )
        self._scheduler.start()
        self._sql("INSERT INTO naive_executions (status) VALUES ('ready')")
        signal.sigwait([signal.SIGTERM])
        os._exit(0)

    def _job(self, schedule_id: UUID, at: datetime) -> None:
        key = f"naive:{schedule_id}"
        if not self._redis.set(key, "me", nx=True, ex=LOCK_SECONDS):
            return
        try:
            ((row_id,),) = self._sql(
                "INSERT INTO naive_executions (schedule_id, scheduled_for, started_at, status) "
                "VALUES (%s, %s, clock_timestamp(), 'running') RETURNING id",
                schedule_id,
                at,
            )
            self._sql(
                "UPDATE naive_executions SET status = 'success', completed_at = clock_timestamp() WHERE id = %s", row_id
            )
        finally:
            self._redis.delete(key)

    def _sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        connection = self._pool.getconn()
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(statement, values)
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            self._pool.putconn(connection)


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    environment = os.environ
    replica = NaiveReplica(environment["DATABASE_URL"], environment["REDIS_URL"], int(environment["MAX_WORKERS"]))
    replica.run(datetime.fromtimestamp(float(environment["FIRE_AT"]), UTC))


if __name__ == "__main__":
    main()
