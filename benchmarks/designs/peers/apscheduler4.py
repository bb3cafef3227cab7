"""APScheduler 4 (alpha): three schedulers on one data store in Postgres, with events through Redis."""

import os
from datetime import timedelta

from apscheduler import ConflictPolicy, Scheduler, current_job
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.eventbrokers.psycopg import PsycopgEventBroker
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks.designs.runs import Runs

URL = os.environ["DATABASE_URL"]
URL_OF_STORE = URL.replace("postgresql://", "postgresql+psycopg://", 1)
runs = Runs()


def run(schedule_id: str) -> None:
    job = current_job.get()
    runs.record(schedule_id, job.scheduled_fire_time or runs.planned())


def main() -> None:
    store = SQLAlchemyDataStore(create_async_engine(URL_OF_STORE), schema="aps")
    if os.environ["PART"] == "0":
        runs.sql("CREATE SCHEMA IF NOT EXISTS aps")
        with Scheduler(SQLAlchemyDataStore(create_async_engine(URL_OF_STORE), schema="aps")):
            pass  # creates its tables, which three that start together fail to do
    workers = int(os.environ["MAX_WORKERS"])
    ids = runs.schedule_ids()
    plan = runs.await_plan()
    with Scheduler(store, PsycopgEventBroker(URL), max_concurrent_jobs=workers) as scheduler:
        if os.environ["PART"] == "0":
            for schedule_id in ids:
                trigger = DateTrigger(plan.at)
                if plan.fires_each > 1:
                    trigger = IntervalTrigger(
                        seconds=1, start_time=plan.at, end_time=plan.at + timedelta(seconds=plan.fires_each - 1)
                    )
                scheduler.add_schedule(
                    run, trigger, id=schedule_id, args=[schedule_id], conflict_policy=ConflictPolicy.replace
                )
        runs.say_planned()
        scheduler.run_until_stopped()


if __name__ == "__main__":
    main()
