"""Other schedulers, each in its own virtual environment, created on first use."""

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.designs.catalogue import Design, in_processes
from config import PROJECT_ROOT

ENVIRONMENTS = PROJECT_ROOT / ".peers"
LEAD_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    module: str
    packages: tuple[str, ...]
    processes: int
    per_second: int  # schedules that can safely be registered per second

    def as_design(self) -> Design:
        python = str(self._environment() / "bin" / "python")
        start = in_processes(f"peers.{self.module}", python, self.processes, self.per_second, LEAD_SECONDS)
        return Design(self.name, "runs", start)

    def _environment(self) -> Path:
        """Recreated when its packages differ from the requested ones."""
        directory = ENVIRONMENTS / self.module
        made_for = directory / "made-for.txt"
        if not made_for.exists() or made_for.read_text() != "\n".join(self.packages):
            with Console().status(f"installing {', '.join(self.packages)}"):
                venv.create(directory, with_pip=True, clear=True)
                install = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", *self.packages]
                subprocess.run(install, check=True, stdout=sys.stderr)
            made_for.write_text("\n".join(self.packages))
        return directory


PEERS = (
    Peer(
        "Celery 5.7 beat + RedBeat 2.4",
        "celery_redbeat",
        ("celery[redis]==5.7.0", "celery-redbeat==2.4.2", "psycopg2-binary==2.9.13"),
        processes=4,
        per_second=200,
    ),
    Peer(
        "procrastinate 3.10 periodic",
        "procrastinate_periodic",
        ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.8", "psycopg2-binary==2.9.13"),
        processes=3,
        per_second=200,
    ),
    Peer(
        "APScheduler 4.0.0a6",
        "apscheduler4",
        (
            "apscheduler==4.0.0a6",
            "sniffio",
            "sqlalchemy[asyncio]==2.1.8",
            "psycopg[binary,pool]==3.3.8",
            "psycopg2-binary==2.9.13",
        ),
        processes=3,
        per_second=60,
    ),
)


def peers() -> list[Design]:
    return [peer.as_design() for peer in PEERS]
