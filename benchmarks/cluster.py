"""A private Postgres and Redis, a fresh database, replicas as processes, and readings from /proc and /metrics."""

import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import requests

from benchmarks.designs import ledger
from benchmarks.designs.ledger import Ledger, Tally
from benchmarks.designs.plan import Plan
from database.connection import DatabaseConnection
from run_migrations import upgrade
from services.embedded import EmbeddedServers
from tests.support.replicas import QUICK, Cluster

REPLICAS, WORKERS = 3, 5
DEFAULTS = {name: value for name, value in QUICK.items() if name in ("ENV_FILE", "METRICS_PORT")}
FIRST_PORT = 19108
POLL_SECONDS = 0.001  # between two polls of a replica: polling without a pause would take a core from what is measured
ROWS_PER_INSERT = 50_000


@contextmanager
def cluster(postgres_options: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """A fresh database on private servers, with the product's default settings."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        with EmbeddedServers(root / "servers", postgres_options=postgres_options or {}) as servers:
            db = DatabaseConnection(servers.addresses.database_url)
            upgrade(db)
            environment = {
                **DEFAULTS,
                "DATABASE_URL": servers.addresses.database_url,
                "REDIS_URL": servers.addresses.redis_url,
                "MAX_WORKERS": str(WORKERS),
                "LOG_LEVEL": "WARNING",
                "JOB_MODULES": "benchmarks.designs.handlers,benchmarks.designs.keyed",
                ledger.VARIABLE: str(root / "ledger"),
            }
            made = Cluster(db, environment, root)
            try:
                yield made
            finally:
                made.end()
                db.close()


def ledger_of(made: Cluster) -> Ledger:
    return Ledger(Path(made.environment[ledger.VARIABLE]))


def tally(made: Cluster, plan: Plan) -> Tally:
    """The outcome of the plan's fires, counted by handler calls: the same method for every design."""
    rows = made.rows("SELECT schedule_id FROM schedules WHERE job_type = 'noop'")
    return ledger_of(made).tally(plan, [row[0] for row in rows])


def insert(
    made: Cluster, count: int, frequency: str, config: dict[str, Any], job_type: str = "noop", **more: Any
) -> None:
    made.run(
        """INSERT INTO schedules (domain_config_id, domain, job_type, frequency, time_config, job_config, max_retries)
           SELECT gen_random_uuid(), 'd' || n, %s, %s, %s, %s, %s FROM generate_series(1, %s) AS n""",
        job_type, frequency, json.dumps(config), json.dumps(more.get("job_config", {})), more.get("max_retries"), count,
    )  # fmt: skip


def fill(made: Cluster, count: int) -> None:
    """Insert many daily schedules quickly, doing by hand what their triggers would do."""
    tomorrow = datetime.now(UTC).replace(hour=2, minute=0, second=0, microsecond=0) + timedelta(days=1)
    for first in range(0, count, ROWS_PER_INSERT):
        with made.db.transaction() as connection:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            connection.exec_driver_sql(
                """INSERT INTO schedules (domain_config_id, domain, job_type, frequency, time_config, next_run,
                                          revision, effective_from)
                   SELECT gen_random_uuid(), 'd' || n, 'noop', 'daily', '{"hour": 2}', %s,
                          nextval('schedule_revision_seq'), now()
                   FROM generate_series(%s, %s) AS n""",
                (tomorrow, first + 1, min(first + ROWS_PER_INSERT, count)),
            )
    made.run("ANALYZE schedules")


def soon(seconds: float) -> datetime:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).replace(microsecond=0)


def sleep_until(at: datetime) -> None:
    time.sleep(max(0.0, at.timestamp() - time.time()))


def metric(port: int, name: str) -> float:
    """A gauge of the replica that listens on this port; -1 if none does."""
    try:
        text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text
    except requests.ConnectionError:  # the replica is still starting
        return -1.0
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def cpu_seconds(pid: int) -> float:
    """CPU seconds of the process and of its ended children."""
    parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(part) for part in parts[11:15]) / os.sysconf("SC_CLK_TCK")
