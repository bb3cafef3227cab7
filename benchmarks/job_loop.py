"""Cost of the job loop: items per second with one and two processes, and with processes that contend for rows.

`python -m benchmarks job-loop contention`, or `python -m benchmarks.job_loop --minutes 10` for a long contention.
"""

import argparse
import json
import logging
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from rich.table import Table
from sqlalchemy import text
from sqlalchemy.orm import Session

from benchmarks.scale import FULL, Scale
from benchmarks.sheet import Sheet, from_table
from config import PROJECT_ROOT
from database.connection import DatabaseConnection
from database.workflow_models import Domain
from database.workflow_statuses import DomainStatus, SitemapAnalysisStatus
from run_migrations import upgrade
from services.embedded import EmbeddedServers
from services.jobs import JobFailed
from services.queues.job_loop import run_job_loop
from services.queues.steps import Steps
from tests.support.places import LIMITS, add_places, query, run_places

ROUNDS = 3
CONTENTION_SECONDS = 30
FAST = {"batch_size": 50, "concurrency": 32, "run_budget_seconds": 600}


# --- what an item costs ---


def nothing(key: int, session: Session) -> None:
    pass


def save(session: Session, key: int, result: str) -> None:
    session.execute(text("UPDATE places_staging SET name = :name WHERE id = :id"), {"name": result, "id": key})


def load(session: Session, key: int) -> str:
    return str(session.execute(text("SELECT place_id FROM places_staging WHERE id = :id"), {"id": key}).scalar_one())


@dataclass(frozen=True, slots=True)
class Kind:
    rows: int
    process: Callable[[int, Session], None] | Steps[int]


KINDS = {
    "no-op, plain function": Kind(20_000, nothing),
    "no-op in threads": Kind(20_000, Steps(work=lambda snapshot: None, save=lambda session, key, result: None)),
    "load, no-op in threads, save": Kind(5_000, Steps(load=load, work=lambda snapshot: snapshot, save=save)),
}


def throughput(scale: Scale) -> Iterator[Sheet]:
    """Durable commits, as in production. One and two processes take turns; the best run of each counts."""
    title = f"job loop, each row worked on once; items/s, best of {ROUNDS}"
    table = Table("items", "rows", "1 process", "2 processes", title=title)
    with database() as (db, url):
        for kind in KINDS:
            rates = [(measure(db, url, kind, 1), measure(db, url, kind, 2)) for _ in range(ROUNDS)]
            one, two = (max(found) for found in zip(*rates, strict=True))
            table.add_row(kind, f"{KINDS[kind].rows:,}", f"{one:,.0f}", f"{two:,.0f} ({two / one:.1f} x)")
    yield from_table("job-loop", table)


def measure(db: DatabaseConnection, url: str, kind: str, processes: int) -> float:
    """From the first claim to the last finish, as reported by the processes."""
    rows = KINDS[kind].rows
    query(db, "TRUNCATE places_staging, workflow_queues")
    add_places(db, rows)
    query(db, "ANALYZE places_staging")
    workers = [start(url, "work", kind) for _ in range(processes)]
    for worker in workers:
        go(worker)
    told = [json.loads(worker.communicate(timeout=600)[0]) for worker in workers]
    check_each_once(db, rows, sum(each["succeeded"] for each in told))
    seconds: float = max(each["ended_at"] for each in told) - min(each["begun_at"] for each in told)
    return rows / seconds


def check_each_once(db: DatabaseConnection, rows: int, succeeded: int) -> None:
    ended = query(db, "SELECT deep_scan_status, attempts, count(*) FROM places_staging GROUP BY 1, 2")
    assert ended == [("Completed", 1, rows)], ended
    assert query(db, "SELECT claimed, succeeded, lost FROM workflow_queues") == [(rows, rows, 0)]
    assert succeeded == rows


# --- contention ---


def contention(scale: Scale, seconds: float = CONTENTION_SECONDS) -> Iterator[Sheet]:
    """Four processes on the two queues of one table, with failures, rescues and an operator: no deadlock."""
    with database() as (db, url):
        query(
            db,
            "INSERT INTO domains (domain, sitemap_analysis_status)"
            " SELECT n || '.example', 'queued' FROM generate_series(1, 2000) AS n",
        )
        before = deadlocks(db)
        workers = [start(url, kind, str(seconds)) for kind in ("metadata", "metadata", "sitemaps", "sitemaps")]
        for worker in workers:
            go(worker)
        requeue_until(db, time.monotonic() + seconds)
        for worker in workers:
            assert worker.wait(120) == 0
        ((claimed, succeeded, lost, stale),) = query(
            db, "SELECT sum(claimed), sum(succeeded), sum(lost), sum(stale) FROM workflow_queues"
        )
        found = deadlocks(db) - before
    table = Table("seconds", "items", "items/s", "succeeded", "claims lost", "rescued", "deadlocks", title="contention")
    rate = f"{int(claimed) / seconds:,.0f}"
    table.add_row(f"{seconds:g}", f"{claimed:,}", rate, f"{succeeded:,}", str(lost), str(stale), str(found))
    yield from_table("contention", table)
    assert found == 0


def requeue_until(db: DatabaseConnection, until: float) -> None:
    while time.monotonic() < until:
        query(db, "UPDATE domains SET status = 'pending' WHERE status IN ('completed', 'error')")
        query(
            db,
            "UPDATE domains SET sitemap_analysis_status = 'queued'"
            " WHERE sitemap_analysis_status IN ('submitted', 'failed')",
        )
        time.sleep(0.2)


def deadlocks(db: DatabaseConnection) -> int:
    time.sleep(1.5)  # the statistics come a second late
    return int(query(db, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0])


def contend(db: DatabaseConnection, kind: str, seconds: float) -> None:
    """With claims that become stale almost at once: the slower process loses its row to the other."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        run_contended(db, sitemaps=kind == "sitemaps")


def run_contended(db: DatabaseConnection, *, sitemaps: bool) -> None:
    words: type[StrEnum] = SitemapAnalysisStatus if sitemaps else DomainStatus
    queued, processing, completed, failed = (
        ("queued", "processing", "submitted", "failed") if sitemaps else ("pending", "processing", "completed", "error")
    )
    run_job_loop(
        model=Domain,
        status_enum=words,
        queued_status=words(queued),
        processing_status=words(processing),
        completed_status=words(completed),
        failed_status=words(failed),
        processing_function=Steps(work=sometimes_fails, save=lambda session, key, result: None),
        batch_size=20,
        status_field_name="sitemap_analysis_status" if sitemaps else "status",
        error_field_name="sitemap_analysis_error" if sitemaps else "last_error",
        column_prefix="sitemap_" if sitemaps else "",
        limits=replace(LIMITS, concurrency=16, stale_seconds=0.05, run_budget_seconds=5),
        db=db,
    )


def sometimes_fails(snapshot: None) -> None:
    if random.random() < 0.05:
        raise JobFailed("as told")


# --- processes ---


@contextmanager
def database() -> Iterator[tuple[DatabaseConnection, str]]:
    with tempfile.TemporaryDirectory() as directory, EmbeddedServers(Path(directory) / "servers") as servers:
        url = servers.addresses.database_url
        db = DatabaseConnection(url)
        upgrade(db)
        yield db, url
        db.close()


def start(url: str, *arguments: str) -> "subprocess.Popen[str]":
    worker = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.job_loop", "--worker", url, *arguments],
        cwd=PROJECT_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def go(worker: "subprocess.Popen[str]") -> None:
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()


def run_worker(url: str, kind: str, argument: str) -> None:
    logging.disable()  # failures and rescues are what contention is about
    db = DatabaseConnection(url, pool_size=2)
    query(db, "SELECT 1")
    print("ready", flush=True)
    sys.stdin.readline()
    if kind == "work":
        begun_at = time.time()
        summary = run_places(db, KINDS[argument].process, **FAST)
        print(json.dumps({"begun_at": begun_at, "ended_at": time.time(), "succeeded": summary.succeeded}))
    else:
        contend(db, kind, float(argument))


def main() -> None:
    parser = argparse.ArgumentParser(description="Contention for as long as you like.")
    parser.add_argument("--minutes", type=float, default=CONTENTION_SECONDS / 60)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        run_worker(*options.worker)
    else:
        for sheet in contention(FULL, options.minutes * 60):
            sheet.show()


if __name__ == "__main__":
    main()
