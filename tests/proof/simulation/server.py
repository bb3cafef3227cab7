"""The Postgres that a simulation plays on: a given one, or an embedded one of its own."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config import PROJECT_ROOT
from services.embedded import EmbeddedServers, stop_servers
from services.embedded.files import Files, open_lock, try_lock

# Nothing here survives the run, and nobody is to work in the background: rows keep their places.
POSTGRES = {
    "fsync": "off", "full_page_writes": "off", "autovacuum": "off", "max_connections": "300", "jit": "off",
    "wal_level": "minimal", "max_wal_senders": "0", "max_wal_size": "64MB", "min_wal_size": "32MB",
    "checkpoint_timeout": "1h", "bgwriter_lru_maxpages": "0", "track_activities": "off", "track_counts": "off",
}  # fmt: skip
MEMORY = Path("/dev/shm")
PREFIX = "enhanced-scheduler-simulation-"
LEAST_FREE_BYTES = 2**30


@contextmanager
def a_server(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with _a_root() as root, EmbeddedServers(root, postgres_options=POSTGRES) as servers:
        yield servers.start().database_url


@contextmanager
def _a_root() -> Iterator[Path]:
    """In memory: each history begins with a TRUNCATE, and new files so soon after old ones are slow on a disk."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < LEAST_FREE_BYTES:
        yield PROJECT_ROOT / ".embedded" / "simulation"
        return
    for other in MEMORY.glob(f"{PREFIX}*"):
        if _is_left_behind(other):
            shutil.rmtree(other, ignore_errors=True)
    root = MEMORY / f"{PREFIX}{os.getpid()}"
    try:
        yield root
    finally:
        stop_servers(root)
        shutil.rmtree(root, ignore_errors=True)


def _is_left_behind(root: Path) -> bool:
    """Was its run killed? No process has its number, and nobody holds its servers: it may be another container's."""
    number = root.name.removeprefix(PREFIX)
    if not number.isdigit() or Path("/proc", number).exists() or root.stat().st_uid != os.geteuid():
        return False
    users = open_lock(Files(root), "users")
    try:
        return try_lock(users, fcntl.LOCK_EX)
    finally:
        os.close(users)
