"""Real PostgreSQL and Redis from wheels, for development and tests, shared by all processes with the same root.

A process holds users.lock shared while it uses the servers; the kernel releases it even on kill -9. A detached
supervisor (supervisor.py) owns the servers and stops them once it gets users.lock exclusively. transition.lock lets
one process at a time decide whether to start a supervisor; the running supervisor holds supervisor.lock.
"""

import fcntl
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Self
from urllib.parse import quote

from services.embedded.files import POLL_SECONDS, WAY_OUT, Files, State, open_lock, tail, try_lock, wait_until
from services.embedded.programs import PORT, end_orphans, find_binaries, is_ours, postgres_answers, redis_answers
from services.errors import ConfigurationError

PROJECT = Path(__file__).resolve().parent.parent.parent
WAIT_SECONDS = 60.0

StopMode = Literal["fast", "immediate"]


@dataclass(frozen=True, slots=True)
class Addresses:
    """The servers' addresses; a pid is None while that server is stopped on purpose, and changes with a restart."""

    database_url: str
    redis_url: str
    postgres_pid: int | None
    redis_pid: int | None


def default_root() -> Path:
    return PROJECT / ".embedded"


class EmbeddedServers:
    """One user of the servers under `root`. The first process chooses the options; later ones join."""

    def __init__(
        self, root: Path, *, postgres_options: Mapping[str, str] = MappingProxyType({}), linger_seconds: float = 3.0
    ) -> None:
        self._files = Files(root.resolve())
        self._postgres_options = dict(postgres_options)
        self._linger_seconds = linger_seconds
        self._users: int | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def addresses(self) -> Addresses:
        return _addresses(self._state())

    def start(self) -> Addresses:
        """Join the running servers or start them; returns when they answer."""
        if not self._files.root.exists():
            find_binaries()  # without the wheels, nothing is made
        _claim_directory(self._files)
        try:
            with _transition(self._files):
                if self._users is None:
                    self._users = open_lock(self._files, "users")
                _take(self._users, fcntl.LOCK_SH, self._files, "users")  # waits while a supervisor is stopping
                self._await_servers()
                return self.addresses
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Leave. The servers stop shortly after their last user has left."""
        if self._users is not None:
            os.close(self._users)  # not LOCK_UN: that would also release it for a forked child that is still running
            self._users = None

    def stop_postgres(self, mode: StopMode = "fast") -> None:
        self._ask("postgres", "stop", mode)

    def start_postgres(self) -> None:
        self._ask("postgres", "start")

    def restart_postgres(self, mode: StopMode = "fast") -> None:
        self.stop_postgres(mode)
        self.start_postgres()

    def stop_redis(self) -> None:
        self._ask("redis", "stop")

    def start_redis(self) -> None:
        self._ask("redis", "start")

    def _await_servers(self) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        launched = False
        while True:
            if not _has_supervisor(self._files):
                if launched:
                    raise ConfigurationError(f"the embedded servers did not start: {self._log()}")
                self._launch()
                launched = True
            state = State.read(self._files)
            # Checked again at the end: a supervisor that is being killed keeps its lock and servers a moment longer.
            if state and _answer(state) and _has_supervisor(self._files):
                return
            if time.monotonic() > deadline:
                raise ConfigurationError(f"the embedded servers do not answer: {self._log()}")
            time.sleep(POLL_SECONDS)

    def _launch(self) -> None:
        find_binaries()  # here too, so that the error is raised directly and not only logged
        self._files.state.unlink(missing_ok=True)  # left by a supervisor that was killed
        command = [sys.executable, "-m", "services.embedded", "supervise", str(self._files.root)]
        command += ["--linger-seconds", str(self._linger_seconds)]
        command += ["--postgres-options", json.dumps(self._postgres_options)]
        with self._files.log("supervisor").open("wb") as log:
            subprocess.run(  # noqa: S603 - returns after the fork: the supervisor itself is not our child
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=PROJECT,
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                start_new_session=True,  # Ctrl-C in our terminal must not reach the servers
                check=False,
            )

    def _log(self) -> str:
        return f"{tail(self._files.log('supervisor'))}\n(from {self._files.log('supervisor')})"

    def _state(self) -> State:
        state = State.read(self._files)
        if state is None:
            raise ConfigurationError(f"no embedded servers are running in {self._files.root}")
        return state

    def _ask(self, server: str, do: str, mode: StopMode = "fast") -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(WAIT_SECONDS)
            connection.connect(str(Path(self._state().run) / "control.sock"))
            connection.sendall(json.dumps({"server": server, "do": do, "mode": mode}).encode() + b"\n")
            with connection.makefile() as answer:
                error = json.loads(answer.readline())["error"]
        if error:
            raise ConfigurationError(error)


def _addresses(state: State) -> Addresses:
    return Addresses(
        database_url=f"postgresql://postgres@/scheduler?host={quote(state.run)}&port={PORT}",
        redis_url=f"unix://{quote(state.run)}/redis.sock?db=0",
        postgres_pid=state.postgres_pid,
        redis_pid=state.redis_pid,
    )


def _answer(state: State) -> bool:
    """Whether every server that should be running answers."""
    run = Path(state.run)
    return (state.postgres_pid is None or postgres_answers(run)) and (state.redis_pid is None or redis_answers(run))


def _claim_directory(files: Files) -> None:
    try:
        files.root.mkdir(parents=True, exist_ok=True)
        _check_owner(files)
        files.root.chmod(0o700)  # it contains a database without passwords
    except OSError as error:
        raise ConfigurationError(f"cannot use {files.root} for the embedded servers: {error}; {WAY_OUT}") from error


def _check_owner(files: Files) -> None:
    owner = files.root.stat().st_uid
    if owner != os.geteuid():
        raise ConfigurationError(
            f"{files.root} belongs to {_name(owner)}, but this process runs as {_name(os.geteuid())}: "
            f"run as {_name(owner)}, delete that directory, {WAY_OUT}"
        )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _has_supervisor(files: Files) -> bool:
    fd = open_lock(files, "supervisor")
    try:
        return not try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


@contextmanager
def _transition(files: Files) -> Iterator[None]:
    fd = open_lock(files, "transition")
    try:
        _take(fd, fcntl.LOCK_EX, files, "transition")
        yield
    finally:
        os.close(fd)


def _take(fd: int, operation: int, files: Files, name: str) -> None:
    if not wait_until(lambda: try_lock(fd, operation), WAIT_SECONDS):
        raise ConfigurationError(f"another process has been holding {files.lock(name)} for {WAIT_SECONDS:.0f} seconds")


def stop_servers(root: Path) -> None:
    """Stop the servers now, even if they are in use; returns when they are gone."""
    files = Files(root.resolve())
    if not files.root.exists():
        return
    _check_owner(files)
    with _transition(files):
        if not _end_supervisor(files):
            raise ConfigurationError(f"the supervisor of {files.root} does not stop: {tail(files.log('supervisor'))}")
        end_orphans(files)


def _end_supervisor(files: Files) -> bool:
    told: set[int] = set()

    def gone() -> bool:
        state = State.read(files)  # missing while the supervisor starts
        if state and state.supervisor_pid not in told and _has_supervisor(files):
            told.add(state.supervisor_pid)
            with suppress(ProcessLookupError):
                os.kill(state.supervisor_pid, signal.SIGTERM)
        return not _has_supervisor(files) and not any(is_ours(pid, files.root) for pid in told)

    return wait_until(gone, WAIT_SECONDS)


def running(root: Path) -> Addresses | None:
    """The servers of this root, if they are running."""
    files = Files(root.resolve())
    if not files.root.exists():
        return None
    _check_owner(files)
    state = State.read(files)
    return _addresses(state) if state and _has_supervisor(files) else None
