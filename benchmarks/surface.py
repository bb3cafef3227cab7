"""What people wait for with 100,000 schedules and 1,000,000 executions of 30 days: server time of API and pages.

The promise: lists, search and overview under 300 ms, statistics and the last page under 100 ms (medians).
"""

import hashlib
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from uuid import UUID

from rich.table import Table

from benchmarks.scale import Scale
from benchmarks.sheet import Sheet, from_table
from config import Settings
from database.connection import DatabaseConnection
from run_migrations import upgrade
from services.embedded import EmbeddedServers
from services.execution_listing import BY_CREATION, select_records, to_execution
from services.execution_tallies import ExecutionTallies
from services.forecast import forecast
from services.job_history import JobHistory
from services.overview import Overview
from services.replica_listing import list_replicas
from services.schedule_listing import Order
from services.schedule_repository import ScheduleRepository
from tests.web import Web

PER_SCHEDULE, DAYS, ROUNDS = 10, 30, 5
SLICE = 50_000
LIMIT_MS, QUICK_MS = 300, 100
BUSY = UUID(hashlib.md5(b"56", usedforsecurity=False).hexdigest())  # a schedule that fires often

# A change for each schedule is written by the triggers; a tenth is switched off, some fail, one is looked at closely.
FILL_SCHEDULES = """
INSERT INTO schedules (schedule_id, domain_config_id, domain, name, frequency, time_config, job_type, enabled, tags,
                       next_run, last_run, last_status)
SELECT md5(n::text)::uuid, md5(n::text)::uuid, 'host' || n || '.example', CASE WHEN n %% 3 = 0 THEN 'job ' || n END,
       'daily', jsonb_build_object('hour', n %% 24, 'minute', n %% 60), 'noop', n %% 10 <> 0,
       CASE WHEN n %% 100 = 0 THEN ARRAY['rare'] ELSE ARRAY['common'] END,
       CASE WHEN n %% 10 <> 0 THEN now() + make_interval(secs => n * 86400.0 / %(schedules)s) END,
       now() - make_interval(secs => n * 86400.0 / %(schedules)s),
       CASE WHEN n %% 50 = 0 THEN 'failed' ELSE 'success' END
FROM generate_series(1, %(schedules)s) AS n
"""
# Oldest first, as time writes them. One schedule in a thousand fires a hundred times as often as the others.
FILL_EXECUTIONS = """
INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, started_at, completed_at,
                            duration_seconds, created_at, scheduled_for, due_at, claimed_at, instance_id, incarnation,
                            fencing_token, error_message, reason)
SELECT md5(s::text)::uuid, md5(s::text)::uuid::text, 'host' || s || '.example', md5(s::text)::uuid, status,
       CASE WHEN ran THEN at + late END, at + late + took, CASE WHEN ran THEN extract(epoch FROM took) END,
       at, at, at, at, 'replica-' || n %% 3, md5('replica' || n %% 3)::uuid, n,
       CASE WHEN status = 'failed' THEN 'the server answered 503' END,
       CASE WHEN status = 'skipped' THEN 'overlap' WHEN status = 'missed' THEN 'misfire' END
FROM (
    SELECT n, CASE WHEN n %% 11 = 0 THEN n %% 100 + 1 ELSE n * 7919::bigint %% %(schedules)s + 1 END AS s,
           now() - make_interval(secs => (%(executions)s - n) * 86400.0 * %(days)s / %(executions)s) AS at,
           make_interval(secs => random() * random() * 0.3) AS late,
           make_interval(secs => 0.01 - ln(1 - random()) * 2) AS took,
           CASE WHEN n %% 40 = 0 THEN 'failed' WHEN n %% 300 = 0 THEN 'timed_out' WHEN n %% 60 = 1 THEN 'skipped'
                WHEN n %% 500 = 3 THEN 'missed' WHEN n %% 5000 = 7 THEN 'cancelled' ELSE 'success' END AS status,
           n %% 60 <> 1 AND n %% 500 <> 3 AS ran
    FROM generate_series(%(first)s, %(last)s) AS n
) AS planned
"""


def run(scale: Scale) -> Iterator[Sheet]:
    with filled(scale.history_rows) as db, Web(_settings(db)) as web:
        table = Table("what", "median ms", "worst ms", "promise ms", title=_title(scale.history_rows))
        table.add_row("counting the hours of the past, once", f"{_milliseconds(lambda: _count_hours(db)):.0f}", "", "")
        steps = {**_requests(web, db), **_pages(db)}
        for name, (step, promise) in steps.items():
            times = [_milliseconds(step) for _ in range(ROUNDS)]
            table.add_row(name, f"{statistics.median(times):.0f}", f"{max(times):.0f}", f"< {promise}")
    yield from_table("surface", table)


@contextmanager
def filled(executions: int) -> Iterator[DatabaseConnection]:
    """A database of its own with all of it, as vacuum leaves it."""
    with tempfile.TemporaryDirectory() as directory, EmbeddedServers(Path(directory) / "servers") as servers:
        db = DatabaseConnection(servers.addresses.database_url)
        upgrade(db)
        fill(db, executions // PER_SCHEDULE, executions)
        yield db
        db.close()


def fill(db: DatabaseConnection, schedules: int, executions: int) -> None:
    size = {"schedules": schedules, "executions": executions, "days": DAYS}
    with db.transaction() as connection:
        connection.exec_driver_sql(FILL_SCHEDULES, size)
    for first in range(1, executions + 1, SLICE):
        with db.transaction() as connection:
            last = min(first + SLICE - 1, executions)
            connection.exec_driver_sql(FILL_EXECUTIONS, {**size, "first": first, "last": last})
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM (ANALYZE) schedules, job_executions, schedule_changes")


def _requests(web: Web, db: DatabaseConnection) -> dict[str, tuple[Callable[[], object], int]]:
    """Routes of the API, from the request to the last byte of its answer."""

    def ask(path: str) -> Callable[[], object]:
        def step() -> object:
            answer = web.get(path)
            assert answer.status_code == 200, answer.text
            return answer

        return step

    paths = {
        "list": ("/schedules", LIMIT_MS),
        "list, with their number": ("/schedules?count=true", LIMIT_MS),
        "list, last page": (f"/schedules?cursor={_last_schedules()}", QUICK_MS),
        "search, few found": ("/schedules?search=09999&count=true", LIMIT_MS),
        "search, none found": ("/schedules?search=nowhere&count=true", LIMIT_MS),
        "filter: last run failed": ("/schedules?last_status=failed&count=true", LIMIT_MS),
        "filter: a tag": ("/schedules?tag=rare&count=true", LIMIT_MS),
        "sort by next run": ("/schedules?sort=next_run", LIMIT_MS),
        "overview": ("/statistics/overview", LIMIT_MS),
        "executions": ("/executions", LIMIT_MS),
        "executions, last page": (f"/executions?cursor={_last_executions(db)}", QUICK_MS),
        "executions that failed": ("/executions?status=failed", LIMIT_MS),
        "executions by hand (none)": ("/executions?cause=manual", LIMIT_MS),
        "executions of a domain": ("/executions?domain=host56.example", LIMIT_MS),
        "executions of a schedule": (f"/executions?schedule={BUSY}", LIMIT_MS),
        "executions of a day": (f"/executions?since={_days_ago(20)}&until={_days_ago(19)}", LIMIT_MS),
        "statistics, 7 days": ("/statistics?days=7", QUICK_MS),
        f"statistics, {DAYS} days": (f"/statistics?days={DAYS}", QUICK_MS),
        "forecast": ("/statistics/forecast", LIMIT_MS),
        "replicas": ("/replicas", LIMIT_MS),
        "scans": ("/scans", LIMIT_MS),
    }
    return {f"GET {name}": (ask(path), promise) for name, (path, promise) in paths.items()}


def _pages(db: DatabaseConnection) -> dict[str, tuple[Callable[[], object], int]]:
    """What the pages of the dashboard read each time that they look."""
    overview, history, repository = Overview(db), JobHistory(db), ScheduleRepository(db)

    def first_page() -> None:
        list_replicas(db, 30)
        overview.minutes()
        overview.attention()
        history.get_running()
        repository.count_schedules()

    def timeline() -> None:
        overview.timeline()
        forecast(db)

    def one_schedule() -> None:
        repository.get_schedule(BUSY)
        history.get_executions_by_schedule(BUSY)
        repository.get_changes(BUSY, 20)
        overview.calendar(BUSY, "UTC")
        repository.preview(BUSY, 5)

    return {
        "page: overview": (first_page, LIMIT_MS),
        "page: timeline": (timeline, LIMIT_MS),
        "page: a schedule": (one_schedule, LIMIT_MS),
    }


def _settings(db: DatabaseConnection) -> Settings:
    address = db.engine.url.render_as_string(hide_password=False)
    return Settings(database_url=address, web_rate_limit_per_minute=0)


def _last_schedules() -> str:
    """The cursor of the row after which less than a page is left, by domain."""
    return Order().cursor_after(_Place())


class _Place:
    domain, schedule_id = "host9999.example", UUID(int=0)


def _last_executions(db: DatabaseConnection) -> str:
    oldest = select_records().order_by("created_at").limit(30)
    with db.transaction() as connection:
        return BY_CREATION.cursor_after(to_execution(connection.execute(oldest).all()[-1]))


def _days_ago(days: int) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _milliseconds(step: Callable[[], object]) -> float:
    begun = perf_counter()
    step()
    return (perf_counter() - begun) * 1000


def _count_hours(db: DatabaseConnection) -> None:
    """The first call only sets the mark."""
    tallies = ExecutionTallies(db)
    while not tallies.count_hours():
        pass


def _title(executions: int) -> str:
    return f"surface, {executions // PER_SCHEDULE:,} schedules, {executions:,} executions of {DAYS} days"
