"""Celery 5: three workers, and one beat whose schedules RedBeat keeps in Redis. PART 3 is the beat."""

import os
from datetime import timedelta
from typing import Any

from celery import Celery
from celery.schedules import schedule
from redbeat import RedBeatSchedulerEntry

from benchmarks.designs.runs import Runs

REDIS = os.environ["REDIS_URL"]
BEAT = "3"

runs = Runs()
app = Celery("peers", broker=REDIS.replace("unix://", "redis+socket://"))
app.conf.update(
    redbeat_redis_url=REDIS, beat_max_loop_interval=1, task_ignore_result=True, worker_hijack_root_logger=False
)


@app.task(name="run")  # type: ignore[untyped-decorator]
def run(schedule_id: str) -> None:
    runs.record(schedule_id, runs.planned())


def work() -> None:
    runs.await_plan()
    runs.say_planned()
    concurrency = os.environ["MAX_WORKERS"]
    app.worker_main(
        ["worker", "--pool=threads", f"--concurrency={concurrency}", "--loglevel=ERROR", "--without-gossip",
         "--without-mingle", f"--hostname=w{os.environ['PART']}"]
    )  # fmt: skip


def beat() -> None:
    ids = runs.schedule_ids()
    plan = runs.await_plan()
    every = timedelta(seconds=1) if plan.fires_each > 1 else timedelta(days=1)
    for schedule_id in ids:
        entry: Any = RedBeatSchedulerEntry(
            schedule_id, "run", schedule(run_every=every, app=app), args=[schedule_id], app=app
        )
        entry.last_run_at = plan.at - every
        entry.save()
        entry.reschedule(last_run_at=plan.at - every)
    runs.say_planned()
    app.Beat(scheduler_cls="redbeat.RedBeatScheduler", loglevel="ERROR", quiet=True).run()


if __name__ == "__main__":
    beat() if os.environ["PART"] == BEAT else work()
