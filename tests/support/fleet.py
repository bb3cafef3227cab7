"""Celery workers as real processes, on a queue of the test's own."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from config import PROJECT_ROOT, Settings
from services.fleet.broker import celery_app
from services.fleet.messages import Messages
from tests.support.replicas import Cluster
from tests.support.rows import count, once, repository, soon
from tests.support.waiting import eventually

SOLO = ("--pool", "solo")


def messages_at(redis_url: str, broker_url: str | None = None) -> Messages:
    """The queues of the broker beside this Redis, or of another one."""
    urls = {"database_url": "postgresql://nowhere/", "redis_url": redis_url, "celery_broker_url": broker_url}
    settings = Settings(_env_file=None, **urls)  # type: ignore[arg-type]
    return Messages(celery_app(settings, is_worker=False))


CHILDREN = "SELECT (facts->>'pid')::int FROM scheduler_instances WHERE kind = 'worker' ORDER BY started_at"


@dataclass(slots=True)
class Worker:
    """One `celery worker` with its children."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]

    def stop(self) -> int:
        """A warm shutdown."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        """Its children die with it."""
        self.process.kill()
        self.process.wait(30)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def says(self, event: str) -> bool:
        return f'"event": "{event}"' in self.log.read_text()


@dataclass(slots=True)
class Fleet:
    cluster: Cluster
    queue: str
    workers: list[Worker] = field(default_factory=list)
    app: str = "services.fleet.app"

    @property
    def environment(self) -> dict[str, str]:
        return {"CELERY_QUEUES": self.queue}

    def start(self, *options: str, processes: int = 1, **environment: str) -> Worker:
        """Returns when `processes` more of them have registered."""
        before = len(self.pids())
        worker = self.launch(*options, **environment)
        eventually(lambda: len(self.pids()) >= before + processes or self._fails(worker), 30)
        return worker

    def launch(self, *options: str, **environment: str) -> Worker:
        name = f"worker-{len(self.workers) + 1}"
        log = self.cluster.directory / f"{name}.log"
        given = {
            **self.cluster.environment,
            **self.environment,
            **environment,
            "CALLS_FILE": str(self.cluster.directory / "calls"),
            "INSTANCE_ID": name,
            "PATH": os.defpath,
        }
        command = [sys.executable, "-m", "celery", "--app", self.app, "worker", "--hostname", f"{name}@%h"]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*command, *options],
                cwd=PROJECT_ROOT,
                env=given,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        worker = Worker(name, log, process)
        self.workers.append(worker)
        return worker

    def pids(self) -> list[int]:
        """Of the processes that run handlers."""
        return [pid for (pid,) in self.cluster.rows(CHILDREN)]

    def _fails(self, worker: Worker) -> bool:
        assert worker.process.poll() is None, worker.log.read_text()[-4000:]
        return False

    def end(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.kill()

    def logs(self) -> str:
        return "\n".join(f"--- {worker.name}\n{worker.log.read_text()[-6000:]}" for worker in self.workers)


# --- what is run on workers ---


def run(cluster: Cluster, fleet: Fleet, **schedule: Any) -> UUID:
    """A fire for the fleet, in one to two seconds: what is due before its row is committed would never be."""
    return repository(cluster).create_schedule(**once(soon(2), queue=fleet.queue) | schedule)


def running(cluster: Cluster) -> bool:
    return count(cluster, "status = 'running'") == 1


def runners(cluster: Cluster, where: str = "true") -> set[str]:
    """The names of the replicas and workers that ran something."""
    ran = f"SELECT DISTINCT instance_id FROM job_executions WHERE started_at IS NOT NULL AND {where}"
    return {name for (name,) in cluster.rows(ran)}


def owner_pid(cluster: Cluster) -> int:
    """Of the process that runs the one execution."""
    owner = """SELECT (i.facts->>'pid')::int FROM job_executions AS e JOIN scheduler_instances AS i USING (incarnation)
               WHERE e.status = 'running'"""
    ((pid,),) = cluster.rows(owner)
    return int(pid)
