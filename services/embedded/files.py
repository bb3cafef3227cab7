"""The files of one root directory: paths, locks, and the state that the supervisor publishes."""

import fcntl
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

WAY_OUT = "or set DATABASE_URL and REDIS_URL to your own servers"
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Files:
    """The paths under `root`, which is absolute and private (0700)."""

    root: Path

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def redis(self) -> Path:
        return self.root / "redis"

    @property
    def redis_pid(self) -> Path:
        return self.redis / "redis.pid"

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    def lock(self, name: str) -> Path:
        return self.root / f"{name}.lock"

    def log(self, name: str) -> Path:
        return self.root / f"{name}.log"


@dataclass(frozen=True, slots=True)
class State:
    """The state published by the supervisor (state.json); a server without a pid was stopped on purpose."""

    supervisor_pid: int
    run: str
    postgres_pid: int | None
    redis_pid: int | None

    @staticmethod
    def read(files: Files) -> "State | None":
        try:
            return State(**json.loads(files.state.read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):  # the last two: written by another version of this program
            return None

    def write(self, files: Files) -> None:
        temporary = files.state.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(self)))
        temporary.replace(files.state)


def open_lock(files: Files, name: str) -> int:
    """A separate file descriptor for each holder: it owns the flock, and the kernel releases it with the process."""
    return os.open(files.lock(name), os.O_RDWR | os.O_CREAT, 0o600)


def try_lock(fd: int, operation: int) -> bool:
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_until(check: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def tail(log: Path, lines: int = 12) -> str:
    with suppress(OSError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    return ""
