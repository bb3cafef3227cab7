"""The engine under load, with three replica processes: a burst beside the naive design, changes, a kill, a large table.

Each scenario checks exactness too. Numbers of two designs are comparable only within one run: the machine is noisy.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import requests
from rich.console import Console
from rich.table import Table

from benchmarks.naive import TABLE
from config import PROJECT_ROOT
from database.connection import DatabaseConnection
from run_migrations import upgrade
from services.embedded import EmbeddedServers
from tests.replicas import QUICK, Cluster
from tests.waiting import eventually

REPLICAS, WORKERS, ROUNDS = 3, 5, 3
DEFAULTS = {name: value for name, value in QUICK.items() if name in ("JOB_MODULES", "ENV_FILE", "METRICS_PORT")}
FIRST_PORT = 19108


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A fresh database on servers of its own, with the product's default settings."""
    with tempfile.TemporaryDirectory() as directory, EmbeddedServers(Path(directory) / "servers") as servers:
        db = DatabaseConnection(servers.addresses.database_url)
        upgrade(db)
        environment = {
            **DEFAULTS,
            "DATABASE_URL": servers.addresses.database_url,
            "REDIS_URL": servers.addresses.redis_url,
            "MAX_WORKERS": str(WORKERS),
            "LOG_LEVEL": "WARNING",
        }
        made = Cluster(db, environment, Path(directory))
        yield made
        made.end()
        db.close()


def insert(
    made: Cluster, count: int, frequency: str, config: dict[str, Any], job_type: str = "noop", **more: Any
) -> None:
    made.run(
        """INSERT INTO schedules (domain_config_id, domain, job_type, frequency, time_config, job_config, max_retries)
           SELECT gen_random_uuid(), 'd' || n, %s, %s, %s, %s, %s FROM generate_series(1, %s) AS n""",
        job_type, frequency, json.dumps(config), json.dumps(more.get("job_config", {})), more.get("max_retries"), count,
    )  # fmt: skip


# --- burst ---


def burst() -> None:
    """Each design in turn, ROUNDS times, so that a busy moment of the machine hits both; medians."""
    title = f"burst at one instant, {REPLICAS} replicas, MAX_WORKERS={WORKERS}, no-op job, median of {ROUNDS}"
    table = Table("fires", "design", "drained after", "p99 lateness", "run twice", "not run", "faster", title=title)
    for count in (1000, 10_000):
        rounds = [(_burst(count), _naive_burst(count)) for _ in range(ROUNDS)]
        ratio = statistics.median(naive[0] / ours[0] for ours, naive in rounds)
        _row(table, count, "Enhanced Scheduler", [ours for ours, _ in rounds], ratio)
        _row(table, count, "naive (SET NX lock, INSERT + UPDATE)", [naive for _, naive in rounds], 1.0)
    Console().print(table)


Drained = tuple[float, float, int, int]  # seconds until the last start, p99, duplicates, missing


def _row(table: Table, count: int, name: str, rounds: list[Drained], ratio: float) -> None:
    """Times are medians (the single ones in brackets); duplicates and losses are the worst of all rounds."""
    seconds, p99, twice, missing = zip(*rounds, strict=True)
    single = " ".join(f"{one:.2f}" for one in seconds)
    drained = f"{statistics.median(seconds):.2f} s ({single})"
    late = f"{statistics.median(p99):.2f} s"
    table.add_row(f"{count:,}", name, drained, late, str(max(twice)), str(max(missing)), f"{ratio:.1f} x")


def _burst(count: int) -> Drained:
    with cluster() as made:
        made.start(REPLICAS)
        at = _soon(6 + count / 2500)
        insert(made, count, "once", {"at": at.isoformat()})
        return _drained(made, "job_executions", count, at)


def _naive_burst(count: int) -> Drained:
    with cluster() as made:
        made.run(TABLE)
        at = _soon(10 + count / 500)
        insert(made, count, "once", {"at": at.isoformat()})
        environment = {**made.environment, "PATH": os.defpath, "FIRE_AT": str(at.timestamp())}
        replicas = [
            subprocess.Popen([sys.executable, "-m", "benchmarks.naive"], cwd=PROJECT_ROOT, env=environment)
            for _ in range(REPLICAS)
        ]
        eventually(lambda: made.rows("SELECT count(*) FROM naive_executions")[0][0] == REPLICAS, 120)
        assert time.time() < at.timestamp(), "the naive replicas were not ready in time"
        try:
            return _drained(made, "naive_executions", count, at)
        finally:
            for replica in replicas:
                replica.terminate()
                replica.wait(30)


def _drained(made: Cluster, table: str, count: int, at: datetime) -> Drained:
    """Until nothing has started for three seconds after every fire ran."""
    deadline = at.timestamp() + 180
    before = -1
    while time.time() < deadline:
        ((distinct, total),) = made.rows(
            f"SELECT count(DISTINCT schedule_id), count(*) FROM {table} WHERE status = 'success'"
        )
        if distinct == count and total == before:
            break
        before = total
        time.sleep(3)
    ((last, p99, total, distinct),) = made.rows(
        f"""SELECT extract(epoch FROM max(first)),
                   percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM first)), sum(runs), count(*)
            FROM (SELECT schedule_id, min(started_at - scheduled_for) AS first, count(*) AS runs FROM {table}
                  WHERE started_at IS NOT NULL GROUP BY schedule_id) AS fires"""
    )
    return float(last), float(p99), int(total) - int(distinct), count - int(distinct)


# --- changes ---


def changes() -> None:
    """A commit by plain SQL until every replica has it in its timer."""
    with cluster() as made:
        for number in range(REPLICAS):
            made.one(f"replica-{number + 1}", METRICS_PORT=str(FIRST_PORT + number), METRICS_HOST="127.0.0.1")
        made.await_live({replica.name for replica in made.replicas})
        insert(made, 1000, "daily", {"hour": 2})
        eventually(lambda: min(_revisions()) >= made.rows("SELECT max(revision) FROM schedules")[0][0], 30)
        waits = []
        for _ in range(50):
            made.run("UPDATE schedules SET priority = priority + 1 WHERE domain = 'd7'")
            committed = time.perf_counter()
            ((revision,),) = made.rows("SELECT max(revision) FROM schedules")
            while min(_revisions()) < revision:
                pass
            waits.append(time.perf_counter() - committed)
    table = Table("changes", "median", "slowest", title=f"a change committed by SQL, live in all {REPLICAS} replicas")
    table.add_row(str(len(waits)), f"{statistics.median(waits) * 1000:.0f} ms", f"{max(waits) * 1000:.0f} ms")
    Console().print(table)


def _revisions() -> list[float]:
    return [_metric(FIRST_PORT + number, "scheduler_revision_applied") for number in range(REPLICAS)]


def _metric(port: int, name: str) -> float:
    text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


# --- failover ---


def failover() -> None:
    """One of three replicas is killed under 200 fires a second; default heartbeats."""
    with cluster() as made:
        made.start(REPLICAS)
        insert(made, 200, "interval", {"seconds": 1})
        insert(made, 4, "interval", {"days": 1}, "sleep", job_config={"seconds": 120}, max_retries=1)
        time.sleep(8)
        made.run(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, cause, due_at)
               SELECT schedule_id, domain, domain, domain_config_id, 'pending', 'manual', now() FROM schedules
               WHERE job_type = 'sleep'"""
        )
        eventually(
            lambda: (
                made.rows("SELECT count(*) FROM job_executions WHERE status = 'running' AND cause = 'manual'")[0][0]
                >= 3
            ),
            20,
        )
        ((victim, held),) = made.rows(
            """SELECT instance_id, count(*) FROM job_executions WHERE status = 'running' AND cause = 'manual'
               GROUP BY 1 ORDER BY 2 DESC LIMIT 1"""
        )
        next(replica for replica in made.replicas if replica.name == victim).kill()
        killed = time.perf_counter()
        eventually(lambda: made.rows("SELECT count(*) FROM job_executions WHERE attempt = 2")[0][0] >= held, 60)
        takeover = time.perf_counter() - killed
        time.sleep(5)
        made.run("UPDATE schedules SET enabled = false")
        time.sleep(3)
        ((twice,),) = made.rows(
            """SELECT count(*) FROM (
                   SELECT FROM job_executions GROUP BY schedule_id, scheduled_for, attempt HAVING count(*) > 1) AS t"""
        )
        ((gaps, late, fires),) = made.rows(
            """SELECT count(*) FILTER (WHERE step > interval '1 s'),
                      count(*) FILTER (WHERE lateness > interval '1 s'), count(*)
               FROM (SELECT scheduled_for - lag(scheduled_for) OVER mine AS step, started_at - scheduled_for AS lateness
                     FROM job_executions WHERE cause = 'schedule' AND attempt = 1
                     WINDOW mine AS (PARTITION BY schedule_id ORDER BY scheduled_for)) AS fires"""
        )
    title = "kill -9 of one of three replicas under 200 fires/s"
    table = Table("fires", "run twice", "gaps", "later than 1 s", "abandoned and planned again after", title=title)
    table.add_row(str(fires), str(twice), str(gaps), str(late), f"{takeover:.1f} s (bound: 22 s)")
    Console().print(table)


# --- load ---


def load() -> None:
    """100,000 schedules in one replica: time to load, memory, idle CPU."""
    count = 100_000
    with cluster() as made:
        insert(made, count, "daily", {"hour": 2})
        made.run("UPDATE schedules SET next_run = date_trunc('day', now()) + interval '26 hours'")
        started = time.perf_counter()
        replica = made.one("replica-1", METRICS_PORT=str(FIRST_PORT), METRICS_HOST="127.0.0.1")
        eventually(lambda: _loaded() == count, 60)
        loaded = time.perf_counter() - started
        time.sleep(3)
        memory = _status_kb(replica.pid, "VmRSS") / 1024
        before = _cpu_seconds(replica.pid)
        time.sleep(20)
        idle = (_cpu_seconds(replica.pid) - before) / 20 * 100
    table = Table("schedules", "process start until loaded", "memory", "idle CPU", title="one replica")
    table.add_row(f"{count:,}", f"{loaded:.1f} s", f"{memory:.0f} MB", f"{idle:.1f} %")
    Console().print(table)


def _loaded() -> float:
    try:
        return _metric(FIRST_PORT, "scheduler_schedules_loaded")
    except requests.ConnectionError:  # it has only just been started
        return -1.0


def _status_kb(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def _cpu_seconds(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def _soon(seconds: float) -> datetime:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).replace(microsecond=0)
