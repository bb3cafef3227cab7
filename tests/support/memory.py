"""Directories of a test run are in memory where there is room: a database is copied there in a quarter of the time."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from config import PROJECT_ROOT

MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 4 * 1024**3
PREFIX = "enhanced-scheduler-tests-"
MADE = pytest.StashKey[Path]()


def is_usable(place: Path) -> bool:
    """A container often has 64 MB of it, or may not start programs there, as some tests do."""
    try:
        found = os.statvfs(place)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= ENOUGH_BYTES and not found.f_flag & os.ST_NOEXEC


def use_memory(config: pytest.Config) -> None:
    """For `tmp_path`, unless another place is asked for; workers are told by the process that started them."""
    if config.option.basetemp is None and is_usable(MEMORY):
        config.stash[MADE] = Path(tempfile.mkdtemp(prefix=PREFIX, dir=MEMORY))
        config.option.basetemp = str(config.stash[MADE] / "tmp")


def leave_memory(config: pytest.Config) -> None:
    """At the end of a run. A supervisor whose directory is gone stops its servers."""
    if made := config.stash.get(MADE, None):
        shutil.rmtree(made, ignore_errors=True)


def servers_directory(config: pytest.Config) -> Path:
    """One for all workers."""
    temporary = Path(config.option.basetemp or "/")
    made = next((path for path in temporary.parents if path.name.startswith(PREFIX)), None)
    return made / "servers" if made else PROJECT_ROOT / ".embedded" / "tests"
