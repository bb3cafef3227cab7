"""The Celery workers of `manage.py dev --fleet`, which run the demo's scans; and the queue that leads there."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from config import PROJECT_ROOT, child_environment
from services.cli.dev_demo import ACTOR, TAG
from services.cli.dev_replicas import ending_with_us
from services.embedded.files import tail
from services.schedule_repository import ScheduleRepository
from services.schedules.listing import ScheduleFilter

QUEUE = "scan"
ENVIRONMENT = {"CELERY_QUEUES": QUEUE}
WORKERS, PLACES = 2, 2
STOP_SECONDS = 30.0


@dataclass(slots=True)
class Workers:
    """They inherit our environment, updated by `environment`. All calls come from the main thread."""

    directory: Path
    environment: Mapping[str, str]
    processes: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)

    def start(self) -> None:
        for number in range(1, WORKERS + 1):
            name = f"worker-{number}"
            options = ["--queues", QUEUE, "--concurrency", str(PLACES), "--hostname", f"{name}@%h"]
            with self._log(name).open("wb") as log:
                self.processes[name] = subprocess.Popen(  # noqa: S603 - our own program
                    [
                        *ending_with_us(),
                        sys.executable,
                        "-m",
                        "celery",
                        "--app",
                        "services.fleet.app",
                        "worker",
                        *options,
                    ],
                    cwd=PROJECT_ROOT,
                    env=child_environment(**self.environment, INSTANCE_ID=name),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C must not reach them: `dev` stops them warmly
                )

    def news(self) -> list[str]:
        """Once for each that has ended by itself."""
        ended = [name for name, process in self.processes.items() if process.poll() is not None]
        for name in ended:
            del self.processes[name]
        return [f"{name} has ended; its last log line: {tail(self._log(name), 1)}" for name in ended]

    def stop(self) -> None:
        """They finish what runs; who takes too long is killed, and its executions are given up."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        until = time.monotonic() + STOP_SECONDS
        for process in self.processes.values():
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"


def lead_scans(repository: ScheduleRepository, *, to_fleet: bool) -> Iterator[str]:
    """The demo's scans wait in our queue, or in none again: a later start may have no workers."""
    before, after = (None, QUEUE) if to_fleet else (QUEUE, None)
    moved = [
        record
        for record in repository.iter_schedules(ScheduleFilter(tag=TAG))
        if record.job_type == "cookie_scan" and record.queue == before
    ]
    for record in moved:
        repository.update_schedule(record.schedule_id, queue=after, actor=ACTOR)
    if moved:
        where = f"on Celery workers, by queue {QUEUE!r}" if to_fleet else "on replicas"
        yield f"{len(moved)} demo scans run {where}"
