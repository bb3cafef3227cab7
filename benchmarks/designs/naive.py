"""The design that most people start with, as one replica: `python -m benchmarks.designs.naive`.

APScheduler with a job per schedule and its own pool, a `SET NX` lock around the job that is released after it, one
INSERT and one UPDATE per run. With KEY_PER_FIRE=1 the lock is one per fire and stays. Here to be measured against, in
the same run and with the same work.
"""

import logging
import os
import signal
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg2
import psycopg2.extras
import redis
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from psycopg2.pool import ThreadedConnectionPool

from benchmarks.designs import ledger
from benchmarks.designs.plan import await_plan, say_planned

LOCK_SECONDS = 60


class NaiveReplica:
    def __init__(self, database_url: str, redis_url: str, workers: int, *, key_per_fire: bool) -> None:
        psycopg2.extras.register_uuid()  # type: ignore[no-untyped-call]
        self._pool = ThreadedConnectionPool(1, workers + 1, database_url)
        self._redis = redis.Redis.from_url(redis_url)
        self._scheduler = BackgroundScheduler(timezone=UTC, executors={"default": ThreadPoolExecutor(workers)})
        self._key_per_fire = key_per_fire

    def run(self) -> None:
        ids = [schedule_id for (schedule_id,) in self._sql("SELECT schedule_id FROM schedules")]
        self._plan = plan = await_plan(self._sql)
        timing: dict[str, Any] = {"trigger": "date", "run_date": plan.at}
        if plan.fires_each > 1:
            timing = {"trigger": "interval", "seconds": 1, "start_date": plan.at, "end_date": plan.end}
        for schedule_id in ids:
            self._scheduler.add_job(
                self._job, **timing, args=[schedule_id], id=str(schedule_id), misfire_grace_time=None, max_instances=3
            )
        self._scheduler.start()
        say_planned(self._sql)
        signal.sigwait([signal.SIGTERM])
        os._exit(0)

    def _job(self, schedule_id: UUID) -> None:
        at = self._planned()
        key = f"naive:{schedule_id}:{at.timestamp():.0f}" if self._key_per_fire else f"naive:{schedule_id}"
        if not self._redis.set(key, "me", nx=True, ex=LOCK_SECONDS):
            return
        try:
            ((row_id,),) = self._sql(
                "INSERT INTO runs (schedule_id, scheduled_for, started_at, status) "
                "VALUES (%s, %s, clock_timestamp(), 'running') RETURNING id",
                schedule_id,
                at,
            )
            ledger.noop(schedule_id, at)
            self._sql("UPDATE runs SET status = 'success', completed_at = clock_timestamp() WHERE id = %s", row_id)
        finally:
            if not self._key_per_fire:
                self._redis.delete(key)

    def _planned(self) -> datetime:
        """A job does not know its planned time; up to a second late, the clock tells it."""
        if self._plan.fires_each == 1:
            return self._plan.at
        return datetime.fromtimestamp(int(time.time()), UTC)

    def _sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        connection = self._pool.getconn()
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(statement, values)
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            self._pool.putconn(connection)


def main() -> None:
    logging.disable()  # it logs every skipped run
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    given = os.environ
    replica = NaiveReplica(
        given["DATABASE_URL"], given["REDIS_URL"], int(given["MAX_WORKERS"]), key_per_fire="KEY_PER_FIRE" in given
    )
    replica.run()


if __name__ == "__main__":
    main()
