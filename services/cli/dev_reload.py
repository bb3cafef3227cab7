"""`manage.py dev --reload`: your own jobs on one replica that is restarted when you save a module, and the dashboard.

A replica whose modules cannot be imported has said why and ended; nothing runs until the next save. What comes due
meanwhile is caught up as after any downtime. Start reading at `Reloading.run`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from rich.console import Console
from rich.text import Text

from config import HOME, get_settings
from config import env_file as settings_file
from database.connection import get_db_connection
from enhanced_scheduler import Scheduler, SchedulerFailed
from run_migrations import upgrade
from services.cli.dev_session import alone, signals_like_ctrl_c
from services.cli.dev_web import WebProcess
from services.cli.output import console
from services.cli.source_files import SourceFiles
from services.redis_client import get_redis_client
from services.wording.counts import counted

GRACE_SECONDS = 5  # for what runs when a file is saved
KILL_SECONDS = GRACE_SECONDS + 5.0
START_SECONDS = 600.0
NAMED_FILES = 3


def develop(seconds: float | None) -> None:
    """Until Ctrl-C, or for so many seconds."""
    out, settings = console(), get_settings()
    directory = HOME / settings.embedded_dir / "logs"
    root = HOME if settings.job_project is None else (HOME / settings.job_project.expanduser()).resolve()
    env_file = settings_file()
    with alone(directory), signals_like_ctrl_c():
        with out.status("starting Postgres and Redis …"):
            applied = upgrade(get_db_connection())
            get_redis_client().version()
        for line in applied:
            out.print(line)
        if not settings.job_modules:
            out.print("JOB_MODULES names no module of yours: only the built-in job types are available")
        files = SourceFiles(root, [] if env_file is None else [Path(env_file)])
        Reloading(out, files, WebProcess(directory / "web.log", {})).run(seconds)


@dataclass(slots=True)
class Reloading:
    """All calls come from the main thread."""

    out: Console
    files: SourceFiles
    web: WebProcess
    _replica: "ReplicaOfNow" = field(init=False)

    def run(self, seconds: float | None) -> None:
        until = None if seconds is None else time.monotonic() + seconds
        self.files.learn()  # before the modules are imported: what is saved meanwhile is a change
        self._replica = ReplicaOfNow()
        self.out.print(f"watching {self.files.root} ({counted(len(self.files), 'file')}); Ctrl-C stops everything")
        try:
            while until is None or time.monotonic() < until:
                self._say_what_happened()
                if changed := self.files.changes():
                    self._restart(changed)
                time.sleep(self.files.interval_seconds)
        except KeyboardInterrupt:
            pass
        finally:
            self.web.stop()
            self.out.print("waiting for running jobs …")
            self._replica.stop()
            self.out.print("the replica has stopped")

    def _restart(self, changed: Sequence[str]) -> None:
        more = f" and {len(changed) - NAMED_FILES} more" if len(changed) > NAMED_FILES else ""
        self.out.print(f"changed: {', '.join(changed[:NAMED_FILES])}{more}; the replica is restarted")
        self._replica.stop()
        self._replica = ReplicaOfNow()

    def _say_what_happened(self) -> None:
        match self._replica.news():
            case "ready":
                self.out.print(f"the replica is ready after {self._replica.seconds:.1f} s")
                if self.web.is_alive:
                    self.web.ask_project_again()
                else:  # the first time, or it came upon a module that cannot be imported
                    self.web.start()
            case "failed":
                self.out.print(Text("nothing runs until the next save", "red"))
        for line in self.web.news():
            self.out.print(Text(line, "bold"))


class ReplicaOfNow:
    """The replica with the code as it is now. It writes its log to our stderr."""

    def __init__(self) -> None:
        grace = min(GRACE_SECONDS, get_settings().shutdown_grace_seconds)
        # Python takes a cached module for current if size and second of its source agree: two saves can be that close.
        settings = {"SHUTDOWN_GRACE_SECONDS": str(grace), "PYTHONDONTWRITEBYTECODE": "1"}
        self._scheduler = Scheduler(directory=HOME, settings=settings, stop_seconds=KILL_SECONDS)
        self._begun = time.monotonic()
        self.seconds = 0.0
        self._news = ""
        Thread(target=self._start, name="dev-replica", daemon=True).start()

    def news(self) -> str:
        """`ready` or `failed`, once."""
        news, self._news = self._news, ""
        return news

    def stop(self) -> None:
        self._scheduler.stop()

    def _start(self) -> None:
        try:
            self._scheduler.start(START_SECONDS)
        except SchedulerFailed:
            self._news = "failed"
        else:
            self.seconds = time.monotonic() - self._begun
            self._news = "ready"
