"""procrastinate 3: three workers that each know all periodic tasks; its queue in Postgres makes them one."""

import asyncio
import os
from datetime import UTC, datetime

import procrastinate

from benchmarks.designs.runs import Runs

runs = Runs()
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["DATABASE_URL"]))


def run(timestamp: int, schedule_id: str) -> None:
    runs.record(schedule_id, datetime.fromtimestamp(timestamp, UTC))


async def main() -> None:
    async with app.open_async():
        if os.environ["PART"] == "0":
            await app.schema_manager.apply_schema_async()
        ids = runs.schedule_ids()
        plan = runs.await_plan()
        at = plan.at.astimezone(UTC)
        once = f"{at.minute} {at.hour} {at.day} {at.month} * {at.second}"
        cron = "* * * * * *" if plan.fires_each > 1 else once
        task = app.task(name="run")(run)
        for schedule_id in ids:
            app.periodic(cron=cron, periodic_id=schedule_id, task_kwargs={"schedule_id": schedule_id})(task)
        runs.say_planned()
        await app.run_worker_async(concurrency=int(os.environ["MAX_WORKERS"]), install_signal_handlers=False)


if __name__ == "__main__":
    asyncio.run(main())
