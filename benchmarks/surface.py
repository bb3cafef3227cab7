"""Server time of API routes and dashboard pages with 100,000 schedules and 1,000,000 executions of 30 days.

The promise: lists, search and overview under 300 ms, statistics and the last page under 100 ms (medians).
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from uuid import UUID

from rich.table import Table
from sqlalchemy import func, select

from benchmarks.scale import Scale
from benchmarks.sheet import Sheet, from_table
from benchmarks.surface_rows import BUSIEST, BUSY, DAYS, fill, fill_others, schedule_id
from config import Settings
from database.connection import DatabaseConnection
from run_migrations import upgrade
from services.embedded import EmbeddedServers
from services.insight.forecast import forecast
from services.insight.overview import Overview
from services.insight.replicas import list_replicas
from services.job_history import JobHistory
from services.ledger.listing import BY_CREATION, select_records, to_execution
from services.ledger.tallies import ExecutionTallies
from services.queues.dead_letters import DeadLetters
from services.queues.overview import QueueOverview
from services.schedule_repository import ScheduleRepository
from services.schedules.batch import RECORD_COLUMNS, to_record
from services.schedules.listing import SORT_KEYS, ScheduleFilter, order_of
from services.web.dashboard.executions_page import WENT_WRONG
from tests.support.web import Web

PER_SCHEDULE, ROUNDS = 10, 5
LIMIT_MS, QUICK_MS = 300, 100
A_DAY = 24 * 60


def run(scale: Scale) -> Iterator[Sheet]:
    with filled(scale.history_rows) as db, Web(settings := _settings(db)) as web:
        table = Table("what", "median ms", "worst ms", "promise ms", title=_title(scale.history_rows))
        table.add_row("counting the hours of the past, once", f"{_milliseconds(lambda: _count_hours(db)):.0f}", "", "")
        steps = {**_requests(web, db), **_pages(db, settings)}
        for name, (step, promise) in steps.items():
            times = [_milliseconds(step) for _ in range(ROUNDS)]
            table.add_row(name, f"{statistics.median(times):.0f}", f"{max(times):.0f}", f"< {promise}")
    yield from_table("surface", table)


@contextmanager
def filled(executions: int) -> Iterator[DatabaseConnection]:
    """A private database with all rows, vacuumed."""
    with tempfile.TemporaryDirectory() as directory, EmbeddedServers(Path(directory) / "servers") as servers:
        db = DatabaseConnection(servers.addresses.database_url)
        upgrade(db)
        fill(db, executions // PER_SCHEDULE, executions)
        fill_others(db, executions // PER_SCHEDULE)
        yield db
        db.close()


def _requests(web: Web, db: DatabaseConnection) -> dict[str, tuple[Callable[[], object], int]]:
    """API routes, from the request to the last byte of the response."""

    def ask(path: str) -> Callable[[], object]:
        def step() -> object:
            answer = web.get(path)
            assert answer.status_code == 200, answer.text
            return answer

        return step

    busy, busiest = schedule_id(BUSY), schedule_id(BUSIEST)
    paths = {
        "list": ("/schedules", LIMIT_MS),
        "list, with their number": ("/schedules?count=true", LIMIT_MS),
        "list, last page": (f"/schedules?cursor={_last_schedules()}", QUICK_MS),
        "search, many found": ("/schedules?search=host&sort=-updated_at&count=true", LIMIT_MS),
        "search, few found": ("/schedules?search=09999&count=true", LIMIT_MS),
        "search, none found": ("/schedules?search=nowhere&count=true", LIMIT_MS),
        "filter: last run failed": ("/schedules?last_status=failed&count=true", LIMIT_MS),
        "filter: a tag": ("/schedules?tag=rare&count=true", LIMIT_MS),
        **{f"sort by {key}": (f"/schedules?sort={key}", LIMIT_MS) for key in SORT_KEYS},
        "sort by last_run, in the middle": (f"/schedules?sort=last_run&cursor={_middle(db)}", LIMIT_MS),
        "changes of a schedule": (f"/schedules/{busy}/changes", QUICK_MS),
        "changes of a deleted one, by its name": ("/schedules/gone 7/changes", QUICK_MS),
        "explain the latest fire": (f"/schedules/{busiest}/explain", LIMIT_MS),
        "explain what never was": (f"/schedules/{busiest}/explain?at={_days_ago(20)}", LIMIT_MS),
        "overview": ("/statistics/overview", LIMIT_MS),
        "overview of a day": (f"/statistics/overview?minutes={A_DAY}", LIMIT_MS),
        "executions": ("/executions", LIMIT_MS),
        "executions, last page": (f"/executions?cursor={_last_executions(db)}", QUICK_MS),
        "executions, a thousand": ("/executions?limit=1000", LIMIT_MS),
        "executions that failed": ("/executions?status=failed", LIMIT_MS),
        "executions that went wrong": (f"/executions?status={WENT_WRONG}", LIMIT_MS),
        "executions by hand (none)": ("/executions?cause=manual", LIMIT_MS),
        "executions of a domain": ("/executions?domain=host56.example", LIMIT_MS),
        "what went wrong of the busiest domain": (f"/executions?domain=host57.example&status={WENT_WRONG}", LIMIT_MS),
        "executions of a schedule": (f"/executions?schedule={busy}", LIMIT_MS),
        "what went wrong of the busiest schedule": (f"/executions?schedule={busiest}&status={WENT_WRONG}", LIMIT_MS),
        "executions of a day": (f"/executions?since={_days_ago(20)}&until={_days_ago(19)}", LIMIT_MS),
        "statistics, 7 days": ("/statistics?days=7", QUICK_MS),
        f"statistics, {DAYS} days": (f"/statistics?days={DAYS}", QUICK_MS),
        "forecast": ("/statistics/forecast", LIMIT_MS),
        "forecast of a day": (f"/statistics/forecast?minutes={A_DAY}", LIMIT_MS),
        "replicas": ("/replicas", LIMIT_MS),
        "scans": ("/scans", LIMIT_MS),
        "scans of a schedule": (f"/scans?schedule_id={busy}", LIMIT_MS),
        "scans with a browser (none)": ("/scans?engine=browser", LIMIT_MS),
        "contacts": ("/contacts", LIMIT_MS),
        "contacts, none found": ("/contacts?email=nobody", LIMIT_MS),
        "dead letters": ("/dead-letters", LIMIT_MS),
        "queues": ("/dev-tools/queues", LIMIT_MS),
    }
    return {f"GET {name}": (ask(path), promise) for name, (path, promise) in paths.items()}


def _pages(db: DatabaseConnection, settings: Settings) -> dict[str, tuple[Callable[[], object], int]]:
    """The queries of each dashboard page's refresh."""
    overview, history, repository = Overview(db), JobHistory(db), ScheduleRepository(db)

    def first_page() -> None:
        list_replicas(db, 30)
        overview.minutes()
        overview.attention()
        history.get_running()
        repository.count_schedules()

    def schedules(where: ScheduleFilter, sort: str) -> Callable[[], object]:
        def step() -> None:
            page = repository.list_schedules(where, sort=sort, limit=50)
            repository.count_schedules(where)
            if where.search and not page.items:
                repository.find_deleted(where.search)

        return step

    def timeline(minutes: int) -> Callable[[], object]:
        return lambda: (overview.timeline(minutes), forecast(db, minutes))

    def one_schedule(number: int) -> Callable[[], object]:
        def step() -> None:
            shown = schedule_id(number)
            repository.get_schedule(shown)
            history.get_executions_by_schedule(shown)
            repository.get_changes(shown, 20)
            overview.calendar(shown, "Europe/Berlin")
            repository.preview(shown, 5)

        return step

    def queues() -> None:
        queues = QueueOverview(db, settings)
        for view in queues.look():
            queues.samples(view.name, datetime.now(UTC) - timedelta(days=1))
        DeadLetters(db).page(limit=20)

    return {
        "page: overview": (first_page, LIMIT_MS),
        "page: schedules, next run first": (schedules(ScheduleFilter(enabled=True), "next_run"), LIMIT_MS),
        "page: schedules, search for what is gone": (schedules(ScheduleFilter(search="gone 7"), "domain"), LIMIT_MS),
        "page: schedules that failed, last run first": (
            schedules(ScheduleFilter(last_status="failed"), "-last_run"),
            LIMIT_MS,
        ),
        "page: timeline": (timeline(60), LIMIT_MS),
        "page: timeline, 6 hours": (timeline(360), LIMIT_MS),
        "page: a schedule": (one_schedule(BUSY), LIMIT_MS),
        "page: the busiest schedule": (one_schedule(BUSIEST), LIMIT_MS),
        "page: queues": (queues, LIMIT_MS),
    }


def _settings(db: DatabaseConnection) -> Settings:
    address = db.engine.url.render_as_string(hide_password=False)
    return Settings(database_url=address, web_rate_limit_per_minute=0, environment="development")


def _last_schedules() -> str:
    """The cursor of the last page, by domain."""
    return order_of("domain").cursor_after(_Place())


class _Place:
    domain, schedule_id = "host9999.example", UUID(int=0)


def _middle(db: DatabaseConnection) -> str:
    order = order_of("last_run")
    by_order = order.apply(select(*RECORD_COLUMNS), None)
    with db.transaction() as connection:
        half = connection.execute(select(func.count()).select_from(by_order.subquery())).scalar_one() // 2
        return order.cursor_after(to_record(connection.execute(by_order.offset(half).limit(1)).one()))


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
    """Returns nothing at the first call, which only sets the mark."""
    tallies = ExecutionTallies(db)
    while not tallies.count_hours():
        pass


def _title(executions: int) -> str:
    return f"surface, {executions // PER_SCHEDULE:,} schedules, {executions:,} executions of {DAYS} days"
