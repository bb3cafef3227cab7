"""Replicas as real processes that are really killed, and the rows they leave."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config import PROJECT_ROOT
from database.connection import DatabaseConnection
from tests.support.forked import Forked
from tests.support.waiting import eventually

# Short enough for a test, long enough for a noisy machine.
QUICK = {
    "HEARTBEAT_INTERVAL_SECONDS": "0.5",
    "HEARTBEAT_TIMEOUT_SECONDS": "3",
    "RESCUE_INTERVAL_SECONDS": "0.5",
    "VERIFY_AFTER_SECONDS": "1",
    "GAP_SCAN_SECONDS": "3",
    "SHUTDOWN_GRACE_SECONDS": "10",
    "JOB_MODULES": "tests.support.handlers",
    "LOG_FORMAT": "json",
    "METRICS_PORT": "0",
    "ENV_FILE": "",
    "FETCH_ALLOWED_NETWORKS": "127.0.0.0/8",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a handler, as tests/support/handlers.py records it."""

    schedule_id: str
    scheduled_for: str
    attempt: str
    instance_id: str
    at: str


@dataclass(slots=True)
class Replica:
    name: str
    environment: Mapping[str, str]
    log: Path
    root: Path = PROJECT_ROOT  # of the program, which may be an older one
    process: "Forked | subprocess.Popen[bytes] | None" = None

    def start(self) -> "Replica":
        environment = {**self.environment, "INSTANCE_ID": self.name, "PATH": os.defpath}
        if "PYTHONPATH" in environment or self.root != PROJECT_ROOT:  # an interpreter of its own
            self.process = _program(environment, self.log, self.root)
        else:
            self.process = Forked(environment, self.log)
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self.wait()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> int:
        """SIGTERM, as in a deployment; returns the exit code."""
        self.ask_to_stop()
        return self.wait()

    def ask_to_stop(self) -> None:
        self._signal(signal.SIGTERM)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(180)

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def says(self, event: str) -> bool:
        return f'"event": "{event}"' in self.log.read_text()


def _program(environment: Mapping[str, str], log: Path, root: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "services/enhanced_scheduler.py"]
    with log.open("ab") as output:
        return subprocess.Popen(
            command, cwd=root, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )


@dataclass(slots=True)
class Cluster:
    """Several replicas on one database."""

    db: DatabaseConnection
    environment: Mapping[str, str]
    directory: Path
    replicas: list[Replica] = field(default_factory=list)

    def start(self, count: int = 1, **environment: str) -> list[Replica]:
        started = [self.one(f"replica-{len(self.replicas) + 1}", **environment) for _ in range(count)]
        self.await_live({replica.name for replica in started})
        return started

    def one(self, name: str, **environment: str) -> Replica:
        return self._started(name, PROJECT_ROOT, environment)

    def elder(self, name: str, root: Path) -> Replica:
        """One of an older version, whose program is in that directory."""
        return self._started(name, root, {})

    def _started(self, name: str, root: Path, environment: Mapping[str, str]) -> Replica:
        everything = {**self.environment, "CALLS_FILE": str(self._calls), **environment}
        replica = Replica(name, everything, self.directory / f"{name}.log", root).start()
        self.replicas.append(replica)
        return replica

    def await_live(self, names: set[str]) -> None:
        """Waits until they have sent a heartbeat and loaded the table."""

        def live() -> bool:
            rows = self.rows(
                """SELECT instance_id FROM scheduler_instances
                   WHERE revision >= (SELECT coalesce(max(revision), 0) FROM schedules WHERE enabled)"""
            )
            return names <= {row[0] for row in rows}

        eventually(live, 30)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.db.transaction() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(sql, values)]

    def run(self, sql: str, *values: Any) -> None:
        with self.db.transaction() as connection:
            connection.exec_driver_sql(sql, values)

    @property
    def _calls(self) -> Path:
        return self.directory / "calls"

    def calls(self) -> list[Call]:
        """The calls that the handlers have recorded so far."""
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        return [Call(*line.split()) for line in lines]

    def called_twice(self) -> list[tuple[str, str, str]]:
        """Fires whose handler was called more than once for the same attempt."""
        calls = Counter((call.schedule_id, call.scheduled_for, call.attempt) for call in self.calls())
        return [call for call, times in calls.items() if times > 1]

    def end(self) -> None:
        for replica in self.replicas:
            if replica.process is not None and replica.process.poll() is None:
                replica.process.kill()
                replica.process.wait(30)

    def logs(self) -> str:
        return "\n".join(f"--- {replica.name}\n{replica.log.read_text()[-4000:]}" for replica in self.replicas)
