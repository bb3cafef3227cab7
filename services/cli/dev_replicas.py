"""The replica processes of `manage.py dev`: start, restart after a crash, drain."""

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from config import HOME, PROJECT_ROOT, child_environment
from services.embedded.files import tail

RESTART_AFTER_SECONDS = 2.0
FIRST_METRICS_PORT = 9108
POLL_SECONDS = 0.1


@dataclass(slots=True)
class ReplicaProcess:
    name: str
    metrics_port: int
    log: Path
    process: "subprocess.Popen[bytes] | None" = None
    restart_at: float | None = None

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def last_log_line(self) -> str:
        return tail(self.log, 1) or "its log is empty"


@dataclass(slots=True)
class Replicas:
    """The replicas inherit our environment, updated by `environment`. All calls come from the main thread."""

    count: int
    directory: Path
    environment: Mapping[str, str]
    members: list[ReplicaProcess] = field(default_factory=list)

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        for number in range(1, self.count + 1):
            name = f"replica-{number}"
            member = ReplicaProcess(name, self._free_port(), self.directory / f"{name}.log")
            member.log.write_bytes(b"")
            self.members.append(member)
            self._launch(member)

    @property
    def alive(self) -> list[ReplicaProcess]:
        return [member for member in self.members if member.is_alive]

    def tend(self) -> list[str]:
        """Restart dead replicas after a pause; returns one line per event."""
        events = []
        for member in self.members:
            if member.is_alive or member.process is None:
                continue
            if member.restart_at is None:
                member.restart_at = time.monotonic() + RESTART_AFTER_SECONDS
                how = _how_it_ended(member.process.returncode)
                events.append(f"{member.name} {how}; restart in 2 s; its last log line: {member.last_log_line}")
            elif time.monotonic() >= member.restart_at:
                self._launch(member)
                events.append(f"{member.name} is restarted")
        return events

    def drain(self, patience_seconds: float, waiting_for: Callable[[list[str]], None]) -> list[str]:
        """SIGTERM to all, then wait for their jobs; returns the names of the replicas that had to be killed."""
        for member in self.alive:
            self._signal(member, signal.SIGTERM)
        deadline = time.monotonic() + patience_seconds
        try:
            while self.alive and time.monotonic() < deadline:
                waiting_for([member.name for member in self.alive])
                time.sleep(POLL_SECONDS)
        finally:  # a second Ctrl-C included
            killed = self.alive
            for member in killed:
                self._signal(member, signal.SIGKILL)
            for member in self.members:
                if member.process is not None:
                    member.process.wait()
        return [member.name for member in killed]

    def _free_port(self) -> int:
        return free_port(FIRST_METRICS_PORT, [member.metrics_port for member in self.members])

    def _launch(self, member: ReplicaProcess) -> None:
        if not _can_bind(member.metrics_port):  # taken by another process meanwhile
            member.metrics_port = self._free_port()
        port = str(member.metrics_port)
        own = {"INSTANCE_ID": member.name, "METRICS_HOST": "127.0.0.1", "METRICS_PORT": port}
        with member.log.open("ab") as log:
            member.process = subprocess.Popen(  # noqa: S603 - our own program
                [*ending_with_us(), sys.executable, str(PROJECT_ROOT / "services/enhanced_scheduler.py")],
                cwd=HOME,
                env=child_environment(**self.environment, **own),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C must not reach the replicas: `dev` drains them
            )
        member.restart_at = None

    @staticmethod
    def _signal(member: ReplicaProcess, number: signal.Signals) -> None:
        if member.process is not None:
            with suppress(ProcessLookupError):
                member.process.send_signal(number)


@cache
def ending_with_us() -> list[str]:
    """Command prefix that makes the kernel send SIGTERM to a replica when `dev` dies; empty without setpriv."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return []
    prefix = [setpriv, "--pdeathsig", "TERM"]
    tried = subprocess.run([*prefix, "true"], capture_output=True, check=False)  # noqa: S603
    return prefix if tried.returncode == 0 else []


def free_port(first: int, taken: list[int]) -> int:
    """The first free port from `first` on (9108, 9109, …), or any."""
    for port in range(first, first + 20):
        if port not in taken and _can_bind(port):
            return port
    with socket.socket() as anywhere:
        anywhere.bind(("127.0.0.1", 0))
        return int(anywhere.getsockname()[1])


def _can_bind(port: int) -> bool:
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
