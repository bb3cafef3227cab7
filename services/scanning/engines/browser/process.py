"""The Chromium process: find the program, create its temporary profile, leave nothing behind.

A profile is a directory that its owner keeps locked. The kernel releases the lock even at kill -9. The next start
removes unlocked profiles and ends their processes.
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
# Chromium blocks third-party cookies by default. Most visitors do not, and the scan looks for these cookies.
PREFERENCES = {"profile": {"cookie_controls_mode": 0, "block_third_party_cookies": False}}


def find_browser(configured: str | None) -> Path:
    """`configured` is a path or a name on the PATH; None: any of the usual names."""
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
    """A new, empty profile: every scan starts as an unknown visitor."""

    def __init__(self) -> None:
        sweep()
        unnamed = Path(tempfile.mkdtemp(prefix="enhanced-scheduler-new-"))
        self._lock = os.open(unnamed / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = unnamed.rename(unnamed.with_name(PREFIX + uuid4().hex))  # locked before others can see it
        (self.path / "Default").mkdir()
        (self.path / "Default" / "Preferences").write_text(json.dumps(PREFERENCES))

    def remove(self) -> None:
        """End the processes that use it, and delete it."""
        _remove(self.path)
        os.close(self._lock)


def sweep() -> None:
    """Remove the profiles that killed processes of this user left behind."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's, or another process is removing it
            lock = os.open(path / "lock", os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
            finally:
                os.close(lock)


def family(profile: Path) -> list[int]:
    """The browser's processes with this profile, including children. Empty without /proc."""
    parents = dict(_parents())
    roots = [pid for pid in parents if os.fsencode(profile) in _command_line(pid)]
    found = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def memory_bytes(pid: int) -> int:
    """The private memory of the process."""
    with suppress(OSError):
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        return (resident - shared) * PAGE_BYTES
    return 0


def kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _remove(path: Path) -> None:
    """Retries: a killed process takes a moment to exit and may still write."""
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
