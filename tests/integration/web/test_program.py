"""`manage.py web` and `manage.py token` as their users meet them: real processes, real signals."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from typer.testing import CliRunner, Result

import manage
from config import PROJECT_ROOT, load_settings
from database.connection import DatabaseConnection
from services.cli.dev_web import WebProcess
from services.errors import ConfigurationError
from services.job_history import JobHistory
from services.schedule_repository import ScheduleRepository
from services.web.auth.roles import Role
from services.web.auth.tokens import ApiTokens
from services.web.server import one_time_token
from tests.support.schedules import VALID
from tests.support.waiting import eventually
from tests.support.web import SECRET


class Program:
    """`manage.py web` with everything that it says in a file."""

    def __init__(self, environment: dict[str, str], log: Path, *arguments: str) -> None:
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "web", "--port", "0", *arguments],
                cwd=PROJECT_ROOT,
                env={"PATH": os.defpath, "LOG_FORMAT": "json", **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    @property
    def url(self) -> str:
        def serving() -> str | None:
            assert self.process.poll() is None, self.said
            found = re.search(r"serving on (http://\S+)", self.said)
            return found[1] if found else None

        url = str(eventually(serving, 60))
        eventually(lambda: self._answers(f"{url}/healthz"), 60)
        return url

    @staticmethod
    def _answers(url: str) -> bool:
        try:
            return requests.get(url, timeout=5).ok
        except requests.ConnectionError:
            return False

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


Start = Callable[..., Program]


@pytest.fixture
def start(own_process: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    started: list[Program] = []

    def start(*arguments: str, **environment: str) -> Program:
        log = tmp_path / f"web-{len(started)}.log"
        started.append(Program({**own_process, **environment}, log, *arguments))
        return started[-1]

    yield start
    for program in started:
        if program.process.poll() is None:
            program.process.kill()
            program.process.wait(30)


def _first_line(url: str, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60) as connection:
        connection.sendall(sent)
        return connection.recv(1000).partition(b"\r\n")[0]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_without_any_token_it_prints_one_that_works_until_it_ends(start: Start) -> None:
    program = start()
    url = program.url
    assert url.startswith("http://127.0.0.1:")
    (token,) = re.findall(r"^(once_\S+)$", program.said, re.MULTILINE)
    answer = requests.get(f"{url}/api/v3/session", headers=bearer(token), timeout=30)
    assert (answer.json()["actor"], answer.json()["role"]) == ("web:one-time-token", "admin")
    assert "server" not in answer.headers
    assert _first_line(url, b"GET / HTTP/1.1\r\nX: " + b"x" * 2**16) == b"HTTP/1.1 431 Request Header Fields Too Large"
    browser = requests.Session()
    browser.post(f"{url}/api/v3/session", json={"token": token}, timeout=30)
    assert browser.get(f"{url}/api/v3/replicas", timeout=30).status_code == 200
    assert requests.get(f"{url}/api/v3/replicas", timeout=30).status_code == 401
    assert program.stop() == 0
    assert program.said.count(token) == 1


def test_with_a_token_it_prints_none_and_believes_a_trusted_proxy(start: Start, db: DatabaseConnection) -> None:
    token = ApiTokens(db).create("ci", Role.VIEWER, "test").text
    program = start(WEB_TRUSTED_PROXIES="127.0.0.1")
    forwarded = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
    answer = requests.post(f"{program.url}/api/v3/session", json={"token": token}, headers=forwarded, timeout=30)
    assert "Secure" in answer.headers["Set-Cookie"]
    assert "Strict-Transport-Security" in answer.headers
    assert program.stop(signal.SIGINT) == 0
    assert '"address": "203.0.113.9"' in program.said
    assert "once_" not in program.said
    assert token not in program.said


def test_a_replica_in_the_same_process_runs_what_is_asked_for(
    start: Start, db: DatabaseConnection, repository: ScheduleRepository
) -> None:
    token = ApiTokens(db).create("ci", Role.OPERATOR, "test").text
    program = start("--with-replica", JOB_MODULES="tests.support.handlers", INSTANCE_ID="web-1")
    url = program.url
    made = requests.post(
        f"{url}/api/v3/schedules", json={**VALID, "job_type": "noop"}, headers=bearer(token), timeout=30
    ).json()
    run = requests.post(f"{url}/api/v3/schedules/{made['schedule_id']}/run", headers=bearer(token), timeout=30).json()
    ended = JobHistory(db).wait_for(run["execution_id"], 60)
    assert ended is not None
    assert (ended.status, ended.instance_id) == ("success", "web-1")
    (replica,) = requests.get(f"{url}/api/v3/replicas", headers=bearer(token), timeout=30).json()["items"]
    assert (replica["instance_id"], replica["is_live"]) == ("web-1", True)
    assert requests.get(f"{url}/readyz", timeout=30).json()["status"] == "ready"
    assert program.stop() == 0
    with db.transaction() as connection:  # it has said goodbye
        assert connection.exec_driver_sql("SELECT count(*) FROM scheduler_instances").scalar_one() == 0


def test_a_replica_that_cannot_start_ends_the_program_with_one_line(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        program = start("--with-replica", METRICS_HOST="127.0.0.1", METRICS_PORT=str(port))
        assert program.process.wait(60) == 1
    assert f"METRICS_PORT={port} is not available" in program.said
    assert "Traceback" not in program.said


def test_the_demo_s_dashboard_moves_when_somebody_took_its_port(own_process: dict[str, str], tmp_path: Path) -> None:
    web = WebProcess(tmp_path / "web.log", own_process)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        web.start(port)
        try:
            address, way_in = eventually(web.news, 60)
        finally:
            web.stop()
    assert address.startswith("dashboard: http://127.0.0.1:")
    assert not address.endswith(f":{port}")
    assert way_in.startswith("log in with once_")


# --- what is refused before anything is served ---

Cli = Callable[..., Result]


@pytest.fixture
def cli(own_process: dict[str, str]) -> Cli:
    return lambda *arguments: CliRunner().invoke(manage.app, list(arguments))


def test_others_cannot_reach_it_when_nobody_could_be_told_apart(
    own_process: dict[str, str], db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_HOST", "0.0.0.0")
    way_out = "python manage.py token create --name me --role admin"
    with pytest.raises(ConfigurationError, match=way_out):
        one_time_token(load_settings())
    ApiTokens(db).create("ci", Role.VIEWER, "test")
    with db.transaction() as connection:
        connection.exec_driver_sql("UPDATE api_tokens SET expires_at = now() - interval '1 s'")
    with pytest.raises(ConfigurationError, match=way_out):
        one_time_token(load_settings())


def test_others_can_reach_it_when_somebody_is_known(
    own_process: dict[str, str], db: DatabaseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_HOST", "0.0.0.0")
    monkeypatch.setenv("JWT_SECRET_KEY", SECRET)
    assert one_time_token(load_settings()) is None
    monkeypatch.delenv("JWT_SECRET_KEY")
    ApiTokens(db).create("ci", Role.VIEWER, "test")
    assert one_time_token(load_settings()) is None


def test_a_port_in_use_is_named(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = cli("web", "--port", str(taken.getsockname()[1]))
    assert (result.exit_code, "cannot be bound on WEB_HOST=127.0.0.1" in result.stderr) == (1, True)


def test_an_old_schema_is_named(cli: Cli, empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", empty_database_url)
    result = cli("web", "--port", "0")
    assert (result.exit_code, "run: python run_migrations.py" in result.stderr) == (1, True)


# --- tokens ---


def test_a_token_is_made_listed_and_revoked(cli: Cli, db: DatabaseConnection) -> None:
    made = cli("token", "create", "--name", "ci", "--role", "operator", "--expires", "90d")
    assert made.exit_code == 0, made.output
    token = made.stdout.strip()
    found = ApiTokens(db).verify(token)
    assert (getattr(found, "actor", None), getattr(found, "role", None)) == ("token:ci", Role.OPERATOR)
    assert "works until" in made.stderr
    listed = cli("token", "list")
    assert "ci" in listed.output
    assert token[16:] not in listed.output
    assert cli("token", "revoke", "ci").exit_code == 0
    again = cli("token", "revoke", "ci")
    assert (again.exit_code, "no valid token 'ci'" in again.stderr) == (2, True)
    assert "revoked" in cli("token", "list").output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--name", "", "--role", "viewer"], "name: must be 1 to 100 printable characters"),
        (["--name", "x", "--role", "viewer", "--expires", "soon"], "expires: cannot read 'soon'"),
        (["--name", "x", "--role", "king"], "'king' is not one of 'viewer', 'operator', 'admin'"),
    ],
)
def test_a_token_that_makes_no_sense_is_refused(cli: Cli, arguments: list[str], words: str) -> None:
    result = cli("token", "create", *arguments)
    assert (result.exit_code, words in " ".join(result.stderr.replace("│", " ").split())) == (2, True)


def test_a_failed_execution_is_tried_again_from_the_command_line(
    cli: Cli, db: DatabaseConnection, repository: ScheduleRepository
) -> None:
    schedule_id = repository.create_schedule(**VALID)
    history = JobHistory(db)
    failed = history.start_execution(schedule_id)
    history.complete_execution(failed, "failed")
    again = cli("retry", str(failed))
    assert again.exit_code == 0, again.output
    record = history.get_execution(again.stdout.strip())
    assert record is not None
    assert (record.attempt, record.status) == (2, "pending")
    refused = cli("retry", str(failed))
    assert (refused.exit_code, "cannot be retried: not ended" in refused.output) == (1, True)
