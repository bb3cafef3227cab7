"""`manage.py dev --reload` as a developer meets it: a project's own jobs, saved while they run."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from config import PROJECT_ROOT
from services.embedded import Addresses
from tests.support.waiting import eventually

JOBS = """
import os
import time
from pathlib import Path

from enhanced_scheduler import job


@job("greet")
def greet(context, config):
    return {"said": "%s"}


@job("stubborn")
def stubborn(context, config):
    Path("begun").touch()
    time.sleep(600)
"""
MORE = """

@job("part")
def part(context, config):
    return {"said": "goodbye"}
"""


class Project:
    def __init__(self, directory: Path, database_url: str, redis_url: str) -> None:
        self.directory = directory
        self.environment = {
            "PATH": os.defpath, "ENV_FILE": "", "EMBEDDED_DIR": str(directory / "embedded"),
            "DATABASE_URL": database_url, "REDIS_URL": redis_url,
            "JOB_PROJECT": str(directory), "JOB_MODULES": "my_jobs", "JOB_PROJECT_PYTHON": sys.executable,
        }  # fmt: skip
        self.log = directory / "dev.log"
        self.process: subprocess.Popen[bytes] | None = None

    def save(self, text: str) -> None:
        (self.directory / "my_jobs.py").write_text(text)

    def start(self) -> None:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "dev", "--reload"],
                cwd=PROJECT_ROOT, env=self.environment, stdout=log, stderr=log,
            )  # fmt: skip

    def said(self, words: str, times: int = 1) -> None:
        def is_said() -> bool:
            text = self.log.read_text()
            assert text.count(words) >= times, text
            return True

        eventually(is_said, 60)

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "manage.py", *words], cwd=PROJECT_ROOT, env=self.environment, capture_output=True,
            text=True, timeout=300, check=False,
        )  # fmt: skip

    def run(self, job_type: str) -> dict[str, Any]:
        self.add(job_type)
        return dict(json.loads(self.command("schedule", "run", job_type, "--wait", "--json").stdout))

    def add(self, job_type: str) -> None:
        words = ["--name", job_type, "--when", "monthly 1 00:00", "--job-type", job_type]
        done = self.command("schedule", "add", job_type, *words, "--set", "catchup=all")
        assert done.returncode == 0, done.stderr

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)


@pytest.fixture
def project(tmp_path: Path, database_url: str, servers: Addresses) -> Iterator[Project]:
    project = Project(tmp_path, database_url, servers.redis_url)
    yield project
    project.end()


def test_a_saved_module_runs_and_the_dashboard_knows_its_new_jobs(project: Project) -> None:
    project.save(JOBS % "hello")
    project.start()
    project.said("the replica is ready")
    assert project.run("greet")["details"]["result"] == {"said": "hello"}
    project.said("log in with")
    project.save(JOBS % "HELLO" + MORE)
    project.said("changed: my_jobs.py; the replica is restarted")
    project.said("the replica is ready", 2)
    assert project.command("schedule", "run", "greet", "--wait", "--json").stdout.count('"said": "HELLO"') == 1
    (address,), (token,) = (re.findall(words, project.log.read_text()) for words in (r"dashboard: (\S+)", r"once_\S+"))

    def is_taken() -> bool:
        body = {"domain": "part", "frequency": "daily", "time_config": {"hour": 1, "minute": 0}, "job_type": "part"}
        headers = {"Authorization": f"Bearer {token}"}
        return requests.post(f"{address}/api/v3/schedules", json=body, headers=headers, timeout=30).status_code == 201

    eventually(is_taken, 30)
    project.end()
    assert "the replica has stopped" in project.log.read_text()
    assert project.process is not None
    assert project.process.returncode == 0


def test_a_syntax_error_is_one_line_and_nothing_runs_until_the_next_save(project: Project) -> None:
    project.save(JOBS % "hello")
    project.start()
    project.said("log in with")
    project.add("greet")
    project.save(JOBS % "hello" + "\n\ndef broken(:\n")
    project.said("nothing runs until the next save")
    (error,) = [line for line in project.log.read_text().splitlines() if "SyntaxError" in line]
    broken_line = (JOBS + "\n\n").count("\n") + 1
    assert error.startswith("JOB_MODULES: 'my_jobs' cannot be imported: SyntaxError: invalid syntax (")
    assert f"{project.directory / 'my_jobs.py'}, line {broken_line})" in error
    assert "Traceback" not in project.log.read_text()
    project.environment["JOB_MODULES"] = project.environment["JOB_PROJECT"] = ""  # another program, without the jobs
    execution = project.command("schedule", "run", "greet").stdout.strip()
    project.save(JOBS % "mended")
    project.said("the replica is ready", 2)
    eventually(lambda: '"mended"' in project.command("execution", execution, "--json").stdout, 60)


def test_a_handler_that_hears_nothing_does_not_hold_up_a_reload(project: Project) -> None:
    project.save(JOBS % "hello")
    project.start()
    project.said("the replica is ready")
    project.add("stubborn")
    project.command("schedule", "run", "stubborn")
    eventually((project.directory / "begun").exists, 60)
    begun = time.monotonic()
    project.save(JOBS % "again")
    project.said("the replica is ready", 2)
    assert time.monotonic() - begun < 60
    assert project.run("greet")["details"]["result"] == {"said": "again"}
