"""Chromium on this machine: which program, its throw-away profile, and that nothing of it is left behind.

A profile is a directory of its own, locked as long as its owner lives. The kernel drops the lock also at kill -9, and
whoever starts the next browser ends and removes what is left of an unlocked one.
"""

import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from services.errors import ConfigurationError

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
KILL_SECONDS = 5.0
PREFIX = "enhanced-scheduler-browser-"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Chromium refuses other sites' cookies by default; a visitor of today's web does not, and they are what is looked for.
PREFERENCES = {"profile": {"cookie_controls_mode": 0, "block_third_party_cookies": False}}


def find_browser(configured: str | None) -> Path:
    """`configured`: a path or a name on the PATH; None: any of the usual ones."""
    names = (configured,) if configured else PROGRAMS
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        looked_for = f"SCAN_BROWSER={configured!r}" if configured else ", ".join(PROGRAMS)
        raise ConfigurationError(
            f"there is no browser (looked for {looked_for}): install one with `apt-get install chromium`, "
            "or set SCAN_BROWSER to its path"
        )
    return Path(found)


class Profile:
    """A new, empty one each time: a scan starts as a visitor whom no site knows."""

    def __init__(self) -> None:
        sweep()
        unnamed = Path(tempfile.mkdtemp(prefix="enhanced-scheduler-new-"))
        self._lock = os.open(unnamed / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = unnamed.rename(unnamed.with_name(PREFIX + uuid4().hex))  # locked when others see it
        (self.path / "Default").mkdir()
        (self.path / "Default" / "Preferences").write_text(json.dumps(PREFERENCES))

    def remove(self) -> None:
        """End what still runs with it, and delete it."""
        _remove(self.path)
        os.close(self._lock)


def sweep() -> None:
    """Remove what killed processes of this user have left."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # somebody else's, or somebody else is removing it
            lock = os.open(path / "lock", os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
            finally:
                os.close(lock)


def family(profile: Path) -> list[int]:
    """The processes of the browser with this profile, their children included. Empty where there is no /proc."""
    parents = dict(_parents())
    roots = [pid for pid in parents if os.fsencode(profile) in _command_line(pid)]
    found = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def memory_bytes(pid: int) -> int:
    """What the process has for itself."""
    with suppress(OSError):
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        return (resident - shared) * PAGE_BYTES
    return 0


def kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _remove(path: Path) -> None:
    """A killed process takes a moment to go, and may still write."""
    give_up_at = time.monotonic() + KILL_SECONDS
    while (left := family(path)) and time.monotonic() < give_up_at:
        for pid in left:
            kill(pid)
        time.sleep(0.02)
    shutil.rmtree(path, ignore_errors=True)


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            after_name = entry.read_text(errors="replace").rpartition(")")[2].split()
            yield int(entry.parent.name), int(after_name[1])


def _command_line(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
