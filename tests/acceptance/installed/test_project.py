"""A web application with its own `services`, `config` and `database` beside the installed wheel."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from services.embedded import Addresses
from tests.support.installed import Installed, variables
from tests.support.waiting import eventually

# scope="module": the environment is made once
FILES = {
    "config.py": 'CURRENCY = "EUR"\n',
    "database.py": "def prices() -> list[int]:\n    return [1, 2, 3]\n",
    "services/__init__.py": "",
    "services/billing.py": "import database\n\n\ndef total() -> int:\n    return sum(database.prices())\n",
    "shop_jobs.py": '''
import os
import time
from pathlib import Path

import config
from enhanced_scheduler import JobFailed, job
from pydantic import BaseModel, PositiveInt
from services import billing


class Invoice(BaseModel):
    copies: PositiveInt


@job("invoice", config_model=Invoice)
def invoice(context, config_):
    """Write the invoice."""
    context.hide("hunter2")
    context.log("writing, with hunter2")
    context.progress(1, config_.copies)
    return {"total": billing.total() * config_.copies, "currency": config.CURRENCY, "pid": os.getpid()}


@job("refused")
def refused(context, config_):
    raise JobFailed("no paper", retryable=False, details={"tray": 2})


@job("patient")
def patient(context, config_):
    Path("begun").touch()
    while True:
        context.check()
        time.sleep(0.01)
''',
    "app.py": """
import os
from contextlib import asynccontextmanager

import config
from enhanced_scheduler import Scheduler
from fastapi import FastAPI
from services import billing

scheduler = Scheduler(["shop_jobs"])


@asynccontextmanager
async def lifespan(app):
    with scheduler:
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/")
def facts() -> dict[str, object]:
    own = {"total": billing.total(), "currency": config.CURRENCY}
    return {**own, "replica": scheduler.pid, "ready": scheduler.is_ready}
""",
}


class Shop:
    """The project, its environment variables, and the commands that people run in its directory."""

    def __init__(self, installed: Installed, directory: Path, environment: Mapping[str, str]) -> None:
        self.installed, self.directory, self.environment = installed, directory, environment
        for name, text in FILES.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text)
        self._made = 0

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self.installed.scheduler(*words, cwd=self.directory, environment=self.environment)

    def schedule(self, job_type: str, **job_config: Any) -> str:
        self._made += 1
        name = f"{job_type}-{self._made}"
        words = ["schedule", "add", name, "--name", name, "--when", "monthly 1 00:00", "--job-type", job_type]
        done = self.command(*words, "--job-config", json.dumps(job_config), "--set", "timeout_seconds=60")
        assert done.returncode == 0, done.stderr
        return name

    def run(self, job_type: str, **job_config: Any) -> dict[str, Any]:
        """The execution, once it has ended."""
        name = self.schedule(job_type, **job_config)
        done = self.command("schedule", "run", name, "--wait", "--timeout", "10m", "--json")
        return dict(json.loads(done.stdout))


@pytest.fixture
def shop(installed: Installed, tmp_path: Path, database_url: str, servers: Addresses) -> Shop:
    directory = tmp_path / "shop"
    directory.mkdir()
    environment = {
        "DATABASE_URL": database_url,
        "REDIS_URL": servers.redis_url,
        "JOB_PROJECT": ".",
        "JOB_MODULES": "shop_jobs",
        "METRICS_PORT": "0",
        "SHUTDOWN_GRACE_SECONDS": "2",
    }
    return Shop(installed, directory, environment)


@pytest.fixture
def app(shop: Shop, free_port: int) -> Iterator["App"]:
    """The web application, with the replica that its lifespan has started."""
    app = App(shop, free_port)
    yield app
    app.end()


class App:
    def __init__(self, shop: Shop, port: int) -> None:
        self._shop, self._address = shop, f"http://127.0.0.1:{port}/"
        self.log = shop.directory / "app.log"
        serve = ["-m", "uvicorn", "app:app", "--port", str(port)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(shop.installed.python), *serve], cwd=shop.directory, env=variables(shop.environment),
                stdout=log, stderr=log,
            )  # fmt: skip
        eventually(self.facts, 300)

    def facts(self) -> dict[str, Any] | None:
        program = f"import urllib.request as r; print(r.urlopen({self._address!r}, timeout=5).read().decode())"
        done = self._shop.installed.run(self._shop.installed.python, "-c", program, cwd=self._shop.directory)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def test_an_application_with_our_names_starts_a_replica_that_runs_its_handlers(shop: Shop, app: App) -> None:
    facts = app.facts()
    assert facts is not None
    assert (facts["total"], facts["currency"], facts["ready"]) == (6, "EUR", True)

    done = shop.run("invoice", copies=2)
    kept = done["details"]
    assert (done["status"], kept["result"]["total"], kept["result"]["currency"]) == ("success", 12, "EUR")
    assert kept["result"]["pid"] not in (facts["replica"], app.process.pid)
    assert kept["progress"] == {"done": 1, "total": 2}
    assert kept["log"][0].endswith("Z writing, with ***")

    failed = shop.run("refused")
    assert (failed["status"], failed["error_message"], failed["error_details"]["tray"]) == ("failed", "no paper", 2)

    name = shop.schedule("patient")
    execution = shop.command("schedule", "run", name).stdout.strip()
    eventually((shop.directory / "begun").exists, 300)
    shop.command("cancel", execution)
    eventually(lambda: '"status": "cancelled"' in shop.command("execution", execution, "--json").stdout, 300)

    os.kill(facts["replica"], signal.SIGKILL)
    eventually(lambda: (now := app.facts()) and now["ready"] and now["replica"] != facts["replica"], 300)
    assert app.end() in (0, -signal.SIGTERM)  # uvicorn ends by the signal that it was sent, after its shutdown
    assert "stopped with 0 unfinished" in app.log.read_text()


def test_a_configuration_is_checked_by_the_models_of_the_project(shop: Shop) -> None:
    words = ["schedule", "add", "bad", "--when", "daily 01:00", "--job-type", "invoice", "--job-config"]
    done = shop.command(*words, '{"copies": 0, "isolation": "process"}')
    assert (done.returncode, done.stderr.strip()) == (2, "job_config.copies: input should be greater than 0")
    done = shop.command(*words, '{"copies": 1, "isolation": "thread"}')
    assert "job_config.isolation: must be 'process', got 'thread'" in done.stderr
    (described,) = [job for job in json.loads(shop.command("jobs", "--json").stdout) if job["job_type"] == "invoice"]
    assert described["summary"] == "Write the invoice."
    assert "copies" in described["job_config"]["properties"]


def test_a_project_that_cannot_be_imported_ends_the_program_with_the_reason(shop: Shop) -> None:
    (shop.directory / "shop_jobs.py").write_text("import services.nothing\n")
    done = shop.command("jobs")
    assert done.returncode == 1
    assert (
        "JOB_MODULES: 'shop_jobs' cannot be imported: ModuleNotFoundError: No module named 'services.nothing'"
        in done.stderr
    )
