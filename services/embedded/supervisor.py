"""The process that owns the embedded servers: the parent of one postgres and one redis-server, for one root directory.

It holds supervisor.lock for its whole life, so there is never a second one. It publishes state.json when both servers
answer, restarts a server that dies, and stops both while it holds users.lock exclusively: no process can be using them
then, and new users wait. It never takes transition.lock. Start reading at `Supervisor.run`.
"""

import fcntl
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from services.embedded.files import Files, State, open_lock, tail, try_lock, wait_until
from services.embedded.programs import Server, empty, end_orphans, ensure_database, run_directory, servers
from services.errors import ConfigurationError

RESTARTS_PER_MINUTE = 5

logger = logging.getLogger("embedded")


def supervise(root: Path, linger_seconds: float, postgres_options: Mapping[str, str]) -> None:
    """Become the supervisor of this root, in a separate process whose start the caller can wait for."""
    files = Files(root)
    lock = open_lock(files, "supervisor")
    if not wait_until(
        lambda: try_lock(lock, fcntl.LOCK_EX), 5.0
    ):  # a process that checks for a supervisor holds it briefly
        raise ConfigurationError(f"{root} already has a supervisor")
    # The caller reaps this process at once; the child keeps the lock and never becomes the caller's zombie.
    if os.fork():
        os._exit(0)
    os.umask(0o077)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    Supervisor(files, lock, linger_seconds).run(postgres_options)


class Supervisor:
    def __init__(self, files: Files, lock: int, linger_seconds: float) -> None:
        self._files = files
        self._lock = lock
        self._linger_seconds = linger_seconds
        self._users = open_lock(files, "users")
        self._servers: dict[str, Server] = {}
        self._unused_since: float | None = None
        self._restarts: list[float] = []
        self._told_to_stop = False

    def run(self, postgres_options: Mapping[str, str]) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop_soon)
        end_orphans(self._files)
        run = run_directory(self._files)
        try:
            self._start(run, postgres_options)
            with self._control(run) as listener:
                while not self._told_to_stop and not self._unused():
                    self._obey(listener)
                    self._revive(run)
        finally:
            self._stop(run)

    def _start(self, run: Path, postgres_options: Mapping[str, str]) -> None:
        for name in ("postgres", "redis"):
            self._files.log(name).write_bytes(b"")  # one run per log, so that it cannot grow forever
        self._servers = servers(self._files, run, postgres_options)
        for server in self._servers.values():
            server.start()
        ensure_database(run)

    def _stop_soon(self, number: int, frame: FrameType | None) -> None:
        self._told_to_stop = True

    def _stop(self, run: Path) -> None:
        self._files.state.unlink(missing_ok=True)  # first, so that no process attaches to servers that are stopping
        for server in self._servers.values():
            server.stop()
        with suppress(OSError):
            empty(run)
            run.rmdir()
        # In this order: a process that then gets users.lock must not find a supervisor that is about to exit.
        os.close(self._lock)
        os.close(self._users)

    def _publish(self, run: Path) -> None:
        pids = self._servers["postgres"].pid, self._servers["redis"].pid
        State(os.getpid(), str(run), *pids).write(self._files)

    def _unused(self) -> bool:
        """Whether the servers were unused for the linger time. If so, users.lock stays ours and new users wait."""
        if not self._is_in_place():
            return True
        if not try_lock(self._users, fcntl.LOCK_EX):
            self._unused_since = None
            return False
        now = time.monotonic()
        self._unused_since = self._unused_since or now
        if now - self._unused_since >= self._linger_seconds:
            return True
        fcntl.flock(self._users, fcntl.LOCK_UN)
        return False

    def _is_in_place(self) -> bool:
        """False when the root directory was deleted: no process can find these servers any longer."""
        try:
            return os.path.samestat(os.fstat(self._lock), self._files.lock("supervisor").stat())
        except FileNotFoundError:
            return False

    def _revive(self, run: Path) -> None:
        for server in self._servers.values():
            if not server.died():
                continue
            now = time.monotonic()
            self._restarts = [at for at in self._restarts if now - at < 60]
            if len(self._restarts) >= RESTARTS_PER_MINUTE:
                raise ConfigurationError(f"{server.name} keeps dying:\n{tail(server.log)}")
            time.sleep(0.1 * 2 ** len(self._restarts))
            self._restarts.append(now)
            try:
                server.start()
            except ConfigurationError:
                logger.exception("%s died and could not be restarted", server.name)
            else:
                self._publish(run)

    @contextmanager
    def _control(self, run: Path) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(run / "control.sock"))
            listener.listen()
            listener.settimeout(0.1)  # also the interval of the main loop
            self._publish(run)
            yield listener

    def _obey(self, listener: socket.socket) -> None:
        """One request: {"server", "do": "start" | "stop", "mode"} -> {"error": null | reason}, once it is done."""
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            return
        with connection, suppress(OSError, ValueError, KeyError):  # the caller disconnected, or sent an invalid request
            connection.settimeout(5)
            with connection.makefile() as lines:
                request = json.loads(lines.readline())
            server, error = self._servers[request["server"]], None
            try:
                if request["do"] == "stop":
                    server.stop(request["mode"])
                elif server.process is None or server.died():
                    server.start()
            except ConfigurationError as failure:
                error = str(failure)
            self._publish(Path(listener.getsockname()).parent)
            connection.sendall(json.dumps({"error": error}).encode() + b"\n")
