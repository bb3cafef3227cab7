"""A web application with its own `services`, `config` and `database` beside the installed wheel."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from enhanced_scheduler.client import ApiError, Client
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
import asyncio
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


@job("note")
def note(context, config_):
    with Path("notes").open("a") as notes:
        print(context.scheduled_for.isoformat(), context.schedule_id, billing.total(), file=notes)


@job("patient")
def patient(context, config_):
    Path("begun").touch()
    while True:
        context.check()
        time.sleep(0.01)


@job("prices")
async def prices(context, config_):
    context.log("asking")
    context.progress(1, 2)
    totals = await asyncio.gather(*(asyncio.to_thread(billing.total) for _ in range(2)))
    return {"totals": totals, "currency": config.CURRENCY, "pid": os.getpid()}


@job("awaiting")
async def awaiting(context, config_):
    Path("begun").touch()
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        context.log("told to stop")
        raise
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


WAITING = """
import asyncio
import os

from enhanced_scheduler import job

begun = 0
all_begun = asyncio.Event()


@job("wait")
async def wait(context, config):
    global begun
    begun += 1
    if begun == 5:
        all_begun.set()
    await all_begun.wait()
    return {"at_once": begun, "pid": os.getpid()}
"""


class Shop:
    """The project, its environment variables, and the commands that people run in its directory."""

    def __init__(self, installed: Installed, directory: Path, environment: Mapping[str, str]) -> None:
        self.installed, self.directory, self.environment = installed, directory, dict(environment)
        for name, text in FILES.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text)
        self._made = 0

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self.installed.scheduler(*words, cwd=self.directory, environment=self.environment)

    @contextmanager
    def program(self, *words: str) -> Iterator["Program"]:
        self._made += 1
        program = Program(self, f"{words[0]}-{self._made}", words)
        try:
            yield program
        finally:
            program.end()

    def schedule(self, job_type: str, timeout_seconds: int = 60, **job_config: Any) -> str:
        self._made += 1
        name = f"{job_type}-{self._made}"
        words = ["schedule", "add", name, "--name", name, "--when", "monthly 1 00:00", "--job-type", job_type]
        done = self.command(
            *words, "--job-config", json.dumps(job_config), "--set", f"timeout_seconds={timeout_seconds}"
        )
        assert done.returncode == 0, done.stderr
        return name

    def run(self, job_type: str, **job_config: Any) -> dict[str, Any]:
        """The execution, once it has ended."""
        name = self.schedule(job_type, **job_config)
        done = self.command("schedule", "run", name, "--wait", "--timeout", "10m", "--json")
        return dict(json.loads(done.stdout))

    def cancelled(self, job_type: str) -> dict[str, Any]:
        """An execution that was cancelled after its handler had begun, once it has ended."""
        begun = self.directory / "begun"
        begun.unlink(missing_ok=True)
        execution = self.command("schedule", "run", self.schedule(job_type)).stdout.strip()
        eventually(begun.exists, 300)
        self.command("cancel", execution)

        def ended() -> dict[str, Any]:
            found = json.loads(self.command("execution", execution, "--json").stdout)
            return dict(found) if found["status"] != "running" else {}

        return eventually(ended, 300)


class Program:
    """One of `enhanced-scheduler` that stays."""

    def __init__(self, shop: Shop, name: str, words: Sequence[str]) -> None:
        self.log = shop.directory / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(shop.installed.command), *words], cwd=shop.directory,
                env=variables({**shop.environment, "INSTANCE_ID": name}), stdout=log, stderr=log,
            )  # fmt: skip

    def says(self, words: str) -> None:
        eventually(lambda: words in self.log.read_text(), 60)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


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
    def __init__(self, shop: Shop, port: int, *options: str) -> None:
        self._shop, self._address = shop, f"http://127.0.0.1:{port}/"
        self.log = shop.directory / "app.log"
        serve = ["-m", "uvicorn", "app:app", "--port", str(port), *options]
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

    asked = shop.run("prices")
    kept = asked["details"]
    assert (asked["status"], kept["result"]["totals"], kept["result"]["currency"]) == ("success", [6, 6], "EUR")
    assert kept["result"]["pid"] not in (facts["replica"], app.process.pid)
    assert (kept["log"][0].endswith("Z asking"), kept["progress"]) == (True, {"done": 1, "total": 2})

    assert shop.cancelled("patient")["status"] == "cancelled"
    told = shop.cancelled("awaiting")
    assert (told["status"], told["details"]["log"][0].endswith("Z told to stop")) == ("cancelled", True)
    late = shop.run("awaiting", timeout_seconds=2)
    assert (late["status"], late["details"]["log"][0].endswith("Z told to stop")) == ("timed_out", True)

    os.kill(facts["replica"], signal.SIGKILL)
    eventually(lambda: (now := app.facts()) and now["ready"] and now["replica"] != facts["replica"], 300)
    assert app.end() in (0, -signal.SIGTERM)  # uvicorn ends by the signal that it was sent, after its shutdown
    assert "stopped with 0 unfinished" in app.log.read_text()


def test_a_project_without_our_names_has_its_async_handlers_wait_in_the_replica(shop: Shop) -> None:
    """As the page says: with JOB_MODULES alone they wait at once, and none takes a process or a thread."""
    (shop.directory / "waiting.py").write_text(WAITING)
    del shop.environment["JOB_PROJECT"]
    shop.environment["JOB_MODULES"] = "waiting"
    assert shop.command("migrate").returncode == 0
    words = ["schedule", "add", "wait", "--name", "wait", "--when", "monthly 1 00:00", "--job-type", "wait"]
    assert shop.command(*words, "--set", "max_instances=100").returncode == 0
    program = """
import json, subprocess, sys
from enhanced_scheduler import Scheduler

if __name__ == "__main__":
    with Scheduler(settings={"JOB_MODULES": "waiting", "MAX_WORKERS": "1"}) as scheduler:
        ask = [sys.argv[1], "schedule", "run", "wait"]
        for _ in range(4):
            subprocess.run(ask, check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run([*ask, "--wait", "--json"], check=True, capture_output=True, text=True)
        print(json.dumps({"pid": scheduler.pid, "result": json.loads(done.stdout)["details"]["result"]}))
"""
    words = [str(shop.installed.python), "-c", program, str(shop.installed.command)]
    done = shop.installed.run(*words, cwd=shop.directory, environment=shop.environment)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["result"] == {"at_once": 5, "pid": said["pid"]}


def test_two_replicas_and_the_dashboard_serve_a_project(shop: Shop, free_port: int) -> None:
    shop.command("migrate")
    token = shop.command("token", "create", "--name", "shop", "--role", "admin", "--json").stdout
    with (
        shop.program("replica"),
        shop.program("replica") as second,
        shop.program("web", "--port", str(free_port)) as web,
    ):
        web.says("serving on")
        client = Client(f"http://127.0.0.1:{free_port}", json.loads(token)["token"])
        timing: Any = {"domain": "notes", "frequency": "interval", "time_config": {"seconds": 2}, "job_type": "note"}
        for number in range(8):  # each replica is the first to try some of them
            schedule: Any = {**timing, "name": f"notes {number}"}
            client.create_schedule(schedule, idempotency_key=f"notes {number}")
        wrong: Any = {**timing, "job_type": "invoice", "job_config": {"copies": 0}}
        with pytest.raises(ApiError) as refused:
            client.create_schedule(wrong)
        assert "job_config.copies" in str(refused.value)
        notes = shop.directory / "notes"

        def who() -> set[object]:
            return {each["instance_id"] for each in client.list_executions(status="success")}

        eventually(lambda: len(who()) == 2, 60)
        second.process.kill()
        seen = len(notes.read_text().splitlines())
        eventually(lambda: len(notes.read_text().splitlines()) >= seen + 5, 60)
        lines = notes.read_text().splitlines()
        assert len(set(lines)) == len(lines), "no fire ran twice"
        assert {line.split()[-1] for line in lines} == {"6"}
        page = urlopen(f"http://127.0.0.1:{free_port}/login", timeout=60).read().decode()
        assert "Enhanced Scheduler" in page


def test_celery_workers_of_the_fleet_run_the_handlers_of_a_project(shop: Shop) -> None:
    shop.environment |= {"CELERY_QUEUES": "heavy"}
    shop.command("migrate")
    with shop.program("replica"), shop.program("worker", "--queues", "heavy", "--concurrency", "1") as worker:
        name = shop.schedule("invoice", copies=3)
        assert shop.command("schedule", "edit", name, "--queue", "heavy").returncode == 0
        words = ["schedule", "run", name, "--wait", "--timeout", "10m", "--json"]
        done = json.loads(shop.command(*words).stdout)
        kept = done["details"]["result"]
        assert (done["status"], kept["total"], kept["currency"]) == ("success", 18, "EUR"), worker.log.read_text()
        shop.command("schedule", "edit", name, "--job-type", "prices", "--job-config", "{}")
        asked = json.loads(shop.command(*words).stdout)
        assert (asked["status"], asked["details"]["result"]["totals"]) == ("success", [6, 6]), asked
        ran = [line for line in worker.log.read_text().splitlines() if done["execution_id"] in line]
        assert ran, "the worker ran it, and no replica"
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(60) == 0


def test_an_application_that_reloads_leaves_one_replica_and_loses_no_fire(shop: Shop, free_port: int) -> None:
    app = App(shop, free_port, "--reload")
    try:
        first = app.facts()
        assert first is not None
        words = ["schedule", "add", "notes", "--name", "notes", "--when", "every 1s", "--job-type", "note"]
        assert shop.command(*words, "--set", "catchup=all").returncode == 0
        notes = shop.directory / "notes"
        eventually(notes.exists, 60)
        for number in range(2):
            before = app.facts()
            assert before is not None
            (shop.directory / "config.py").write_text(f'CURRENCY = "C{number}"\n')
            eventually(partial(has_reloaded, app, f"C{number}", before["replica"]), 60)
        seen = len(notes.read_text().splitlines())
        eventually(lambda: len(notes.read_text().splitlines()) >= seen + 2, 60)
    finally:
        app.end()
    calls = notes.read_text().splitlines()
    assert len(set(calls)) == len(calls), "no fire ran twice"
    audit = shop.command("audit", "--since", "1h")
    assert "all accounted for" in audit.stdout, audit.stdout


def has_reloaded(app: App, currency: str, former_replica: int) -> bool:
    facts = app.facts()
    is_new = facts is not None and facts["currency"] == currency and facts["ready"]
    return is_new and not Path(f"/proc/{former_replica}").exists()


def test_a_configuration_is_checked_by_the_models_of_the_project(shop: Shop) -> None:
    words = ["schedule", "add", "bad", "--when", "daily 01:00", "--job-type", "invoice", "--job-config"]
    done = shop.command(*words, '{"copies": 0, "isolation": "process"}')
    assert (done.returncode, done.stderr.strip()) == (2, "job_config.copies: input should be greater than 0")
    done = shop.command(*words, '{"copies": 1, "isolation": "thread"}')
    assert "job_config.isolation: must be 'process', got 'thread'" in done.stderr
    (described,) = [job for job in json.loads(shop.command("jobs", "--json").stdout) if job["job_type"] == "invoice"]
    assert (described["summary"], described["handler"]) == ("Write the invoice.", "shop_jobs.invoice")
    assert "It declares no model" not in shop.command("jobs", "invoice").stdout
    assert "copies" in described["job_config"]["properties"]


def test_a_project_that_cannot_be_imported_ends_the_program_with_the_reason(shop: Shop) -> None:
    (shop.directory / "shop_jobs.py").write_text("import services.nothing\n")
    done = shop.command("jobs")
    assert done.returncode == 1
    assert (
        "JOB_MODULES: 'shop_jobs' cannot be imported: ModuleNotFoundError: No module named 'services.nothing'"
        in done.stderr
    )
