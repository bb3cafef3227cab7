"""`manage.py dev`, which is `make run`: servers, schema, a few schedules to look at, and what they will do next."""

import time
from typing import Annotated

import typer
from rich.live import Live
from rich.table import Table

from database.connection import get_db_connection
from run_migrations import upgrade
from services.cli.output import console, until
from services.cli.schedules import describe
from services.redis_client import get_redis_client
from services.schedule_repository import ScheduleRepository, get_schedule_repository

SHOWN = 20

# Only for an empty database, so that there is something to see.
DEMO_SCHEDULES = [
    {"domain": "example.com", "name": "nightly scan", "frequency": "daily", "time_config": {"hour": 2, "minute": 0}},
    {
        "domain": "shop.example.com",
        "name": "shop scan",
        "frequency": "weekly",
        "time_config": {"day": "monday", "hour": 2, "minute": 30},
        "timezone": "Europe/Berlin",
        "tags": ["customer"],
    },
    {
        "domain": "month-end report",
        "name": "month-end report",
        "frequency": "monthly",
        "time_config": {"day": 31, "hour": 23, "minute": 0},
        "timezone": "America/New_York",
        "job_type": "http_request",
        "job_config": {"url": "https://example.com/reports/run", "method": "POST"},
    },
    {
        "domain": "health ping",
        "name": "health ping",
        "frequency": "interval",
        "time_config": {"minutes": 5},
        "job_type": "http_request",
        "job_config": {"url": "https://example.com/health"},
    },
]


def dev(
    once: Annotated[bool, typer.Option("--once", help="Print the schedules once and end.")] = False,
) -> None:
    """Start everything on this machine and show the schedules with their next fires; Ctrl-C ends it."""
    out = console()
    started = time.monotonic()
    with out.status("starting Postgres and Redis …"):
        db, redis = get_db_connection(), get_redis_client()
        applied = upgrade(db)
        redis.version()
    for line in applied:
        out.print(line)
    repository = get_schedule_repository()
    if repository.count_schedules() == 0:
        repository.save_schedules(DEMO_SCHEDULES, actor="demo")
        out.print(f"added {len(DEMO_SCHEDULES)} demo schedules to the empty database")
    out.print(f"Postgres and Redis are up, the schema is current ({time.monotonic() - started:.1f} s)")
    if once or not out.is_terminal:
        out.print(upcoming(repository))
        return
    try:
        with Live(upcoming(repository), console=out, auto_refresh=False) as live:
            while True:
                time.sleep(1)
                live.update(upcoming(repository), refresh=True)
    except KeyboardInterrupt:
        out.print("stopped")


def upcoming(repository: ScheduleRepository) -> Table:
    page = repository.list_schedules(sort="next_run", limit=SHOWN)
    table = Table("schedule", "job", "timing", "next run", header_style="bold", box=None, pad_edge=False)
    for record in page.items:
        following = until(record.next_run) if record.next_run else ("off" if not record.enabled else "never")
        table.add_row(record.name or record.domain, record.job_type, describe(record), following)
    if page.next_cursor:
        table.caption = f"{repository.count_schedules()} schedules; all of them: python manage.py schedule list"
    return table
