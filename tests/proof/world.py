"""Real servers and real replicas of one fault run, each replica behind doors of its own to Postgres and Redis.

Whatever happens to the run, what it started ends: the kernel kills the replicas with it, the servers end with their
last user, and what was stopped by a signal is thawed by a process of its own.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import psycopg2

from config import PROJECT_ROOT
from services.embedded import EmbeddedServers, stop_servers
from tests.proof import workload
from tests.proof.records import Disturbance
from tests.support.postgres_proxy import PostgresProxy
from tests.support.redis_proxy import RedisProxy

POSTGRES = {
    "fsync": "off",  # nobody cuts this machine's power; what a server that is killed has written stays
    "full_page_writes": "off",
    "max_connections": "300",
    "track_commit_timestamp": "on",  # when could a replica know of a change?
}
# The product's own timings: the bounds that are judged are those that users get.
REPLICA = {
    "MAX_WORKERS": "10",
    "JOB_MODULES": "tests.proof.handlers",
    "LOG_LEVEL": "WARNING",
    "LOG_FORMAT": "json",
    "METRICS_PORT": "0",
    "ENV_FILE": "",
}
# prctl(PR_SET_PDEATHSIG, SIGKILL), then the replica. It dies with the thread that started it: only the main one does.
START = """import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
os.execv(sys.executable, [sys.executable, "services/enhanced_scheduler.py"])"""
ALIVE_SECONDS = 120.0
MOST_REFUSALS = 20
# The first heartbeat is a part of the start; whoever has loaded schedules has started.
# By process: the heartbeat of one that was killed may still be on its way when its successor has started.
LIVING = """
SELECT (facts->>'pid')::int, extract(epoch FROM max(heartbeat_at))::float8,
       extract(epoch FROM max(heartbeat_at) FILTER (WHERE revision > 0))::float8
FROM scheduler_instances GROUP BY 1
"""
REFUSED = 1  # exit code of a replica that says in one line why it does not start


@dataclass(eq=False, slots=True)
class Replica:
    name: str
    postgres: PostgresProxy
    redis: RedisProxy
    environment: Mapping[str, str]
    log: Path
    process: "subprocess.Popen[bytes] | None" = None
    started_at: float = 0.0
    in_use: threading.Lock = field(default_factory=threading.Lock)  # by a fault that stops or ends the process
    expected_to_end: bool = False

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        self.started_at = time.time()
        self.expected_to_end = False
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", START],
                cwd=PROJECT_ROOT,
                env={**self.environment, "INSTANCE_ID": self.name, "PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL, timeout_seconds: float = 120) -> int:
        assert self.process is not None
        self.expected_to_end = True
        self.send(number)
        try:
            return self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(30)

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Journal:
    """What was done to whom and when, written as soon as it is over."""

    def __init__(self, path: Path, on_note: Callable[[Disturbance], None] = lambda noted: None) -> None:
        self._path, self._on_note = path, on_note
        self._lock = threading.Lock()
        self.noted: list[Disturbance] = []

    def note(self, disturbance: Disturbance) -> None:
        with self._lock:
            self.noted.append(disturbance)
            with self._path.open("a") as file:
                file.write(disturbance.as_line() + "\n")
        self._on_note(disturbance)


class World:
    """Everything that a fault can strike. Use it with `with`."""

    def __init__(self, directory: Path, replicas: int, journal: Journal, settings: Mapping[str, str]) -> None:
        self._directory, self.journal, self._settings = directory, journal, settings
        self._stack = ExitStack()
        self._servers = EmbeddedServers(directory / "servers", postgres_options=POSTGRES, linger_seconds=0)
        self._count = replicas
        self._orders: deque[Replica] = deque()
        self._last_seen: dict[int, float] = {}  # by process id
        self._last_at_work: dict[int, float] = {}
        self._refusals: Counter[str] = Counter()
        self._closing = threading.Event()
        self._stalled: set[int] = set()
        self.server_in_use = threading.Lock()  # by a fault that stops or restarts all of Postgres
        self.replicas: list[Replica] = []
        self.died: list[str] = []  # replicas that ended although nobody ended them

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(stop_servers, self._directory / "servers")
            stack.callback(self._servers.stop)
            addresses = self._servers.start()
            self.database_url, self._redis_url = addresses.database_url, addresses.redis_url
            environment = {"DATABASE_URL": self.database_url, "PATH": os.defpath, "ENV_FILE": ""}
            subprocess.run([sys.executable, "run_migrations.py"], cwd=PROJECT_ROOT, env=environment, check=True,
                           stdout=subprocess.DEVNULL)  # fmt: skip
            for number in range(1, self._count + 1):
                self.replicas.append(self._replica(f"replica-{number}", stack))
            stack.callback(self._end_replicas)
            looking = threading.Thread(target=self._look, name="look", daemon=True)
            looking.start()
            stack.callback(looking.join, 10)
            stack.callback(self._closing.set)
            stack.callback(self.thaw)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def _replica(self, name: str, stack: ExitStack) -> Replica:
        postgres = stack.enter_context(PostgresProxy(self.database_url))
        redis = stack.enter_context(RedisProxy(self._redis_url))
        environment = {**REPLICA, **self._settings, "DATABASE_URL": postgres.url, "REDIS_URL": redis.url}
        return Replica(name, postgres, redis, environment, self._directory / f"{name}.log")

    def _end_replicas(self) -> None:
        for replica in self.replicas:
            if replica.runs:
                replica.end()

    # --- processes; only the main thread starts any ---

    def order(self, replica: Replica) -> None:
        """From any thread: start it again."""
        self._orders.append(replica)

    def obey(self) -> None:
        """In the main thread, again and again: start what was ordered, and what ended by itself."""
        while self._orders:
            self._orders.popleft().start()
        for replica in self.replicas:
            if replica.process is not None and not replica.runs and not replica.expected_to_end:
                self._start_again(replica)

    def _start_again(self, replica: Replica) -> None:
        """One that cannot reach Postgres when it starts says so and ends; one that has started must not end."""
        assert replica.process is not None
        has_started = self._last_at_work.get(replica.pid, 0.0) > replica.started_at
        died = has_started or replica.process.returncode != REFUSED
        self._refusals[replica.name] = 0 if has_started else self._refusals[replica.name] + 1
        if died or self._refusals[replica.name] > MOST_REFUSALS:
            self.died.append(f"{replica.name} ended by itself with {replica.process.returncode}")
        kind, now = "died" if died else "refused_to_start", time.time()
        facts: dict[str, Any] = {"scope": "replica", "replica": replica.name, "pid": replica.pid, "kills": True}
        self.journal.note(Disturbance(kind=kind, at=now, until=now, **facts))
        self.sleep(1)
        replica.start()

    def await_alive(self, replica: Replica) -> bool:
        """Until it has said that it lives since it was started; False when it does not in time."""
        deadline = time.monotonic() + ALIVE_SECONDS
        while time.monotonic() < deadline and not self._closing.is_set():
            if replica.process is not None and self._last_seen.get(replica.pid, 0.0) > replica.started_at:
                return True
            self._closing.wait(0.2)
        return False

    def sleep(self, seconds: float) -> None:
        """Of a fault; ends at once when the run does."""
        self._closing.wait(seconds)

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def _look(self) -> None:
        """Who lives, by Postgres."""
        while not self._closing.is_set():
            with suppress(psycopg2.Error), self.session(10) as connection, connection.cursor() as cursor:
                while not self._closing.wait(0.5):
                    cursor.execute(LIVING)
                    seen = cursor.fetchall()
                    self._last_seen = {pid: at for pid, at, _ in seen}
                    self._last_at_work |= {pid: at for pid, _, at in seen if at is not None}
            self._closing.wait(0.5)

    # --- the servers ---

    @contextmanager
    def session(self, statement_timeout_seconds: float = 60) -> Iterator[Any]:
        """Somebody's session, past all doors, in autocommit mode."""
        connection = workload.connect(self.database_url, statement_timeout_seconds)
        try:
            yield connection
        finally:
            connection.close()

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self.session() as connection, connection.cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall())

    def stall_postgres(self, seconds: float) -> None:
        """Stop every process of the server; each backend is a session of its own, so no group has them all."""
        server = self._servers.addresses.postgres_pid
        if server is not None:
            self._stall(lambda: [server, *_children(server)], seconds)

    def stall_redis(self, seconds: float) -> None:
        server = self._servers.addresses.redis_pid
        if server is not None:
            self._stall(lambda: [server], seconds)

    def restart_postgres(self) -> None:
        self._servers.restart_postgres("immediate")

    def flush_redis(self) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(unquote(urlsplit(self._redis_url).path))
            connection.sendall(b"*1\r\n$8\r\nFLUSHALL\r\n")
            connection.recv(64)

    def _stall(self, processes: Callable[[], Sequence[int]], seconds: float) -> None:
        stopped: set[int] = set()
        for _ in range(3):  # a backend may be born while we look
            for pid in processes():
                if pid not in stopped and _signal(pid, signal.SIGSTOP):
                    stopped.add(pid)
        self._stalled |= stopped
        # Should we be killed now, nobody else would thaw them.
        guard = subprocess.Popen(["sh", "-c", f"sleep {seconds + 5:.0f}; kill -CONT {' '.join(map(str, stopped))}"],
                                 start_new_session=True, stderr=subprocess.DEVNULL)  # fmt: skip
        self.sleep(seconds)
        for pid in stopped:
            _signal(pid, signal.SIGCONT)
        self._stalled -= stopped
        with suppress(ProcessLookupError):
            os.killpg(guard.pid, signal.SIGKILL)
        guard.wait(10)

    def thaw(self) -> None:
        for pid in list(self._stalled):
            _signal(pid, signal.SIGCONT)
        for replica in self.replicas:
            if replica.runs:
                replica.send(signal.SIGCONT)
            replica.postgres.plug_in()


def _signal(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            after_name = path.read_text().rpartition(") ")[2].split()
            if int(after_name[1]) == parent:
                found.append(int(path.parent.name))
    return found
