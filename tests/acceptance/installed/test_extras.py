"""The wheel with its base alone, and with each extra alone: what works, and what names the extra that it misses."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from config import PROJECT_ROOT
from hatch_build import dependencies
from services.embedded import Addresses
from tests.support.installed import Installed, install, needed, variables
from tests.support.scan_site import Answer, ScanSite
from tests.support.waiting import eventually

PARSERS = {"lxml", "defusedxml", "protego", "phonenumbers"}
FRAMEWORKS = {"fastapi", "starlette", "nicegui", "uvicorn", "jinja2"}
JOBS = """
import asyncio

from enhanced_scheduler import job


@job("plain")
def plain(context, config):
    return {"said": "plain"}


@job("coroutine")
async def coroutine(context, config):
    await asyncio.sleep(0.01)
    context.log("awaited")
    return {"said": "coroutine"}
"""
ASYNC_STEPS = """
from sqlalchemy.ext.asyncio import AsyncSession

from database.workflow_models import Place
from database.workflow_statuses import DeepScanStatus
from enhanced_scheduler import job
from services.queues.async_job_loop import run_job_loop


async def process(item_id: int, session: AsyncSession) -> None:
    async with session.begin():
        place = await session.get(Place, item_id)
        place.name = "Cafe"


@job("places")
async def places(context, config):
    done = await run_job_loop(
        model=Place, status_enum=DeepScanStatus, queued_status=DeepScanStatus.QUEUED,
        processing_status=DeepScanStatus.PROCESSING, completed_status=DeepScanStatus.COMPLETED,
        failed_status=DeepScanStatus.ERROR, processing_function=process,
        status_field_name="deep_scan_status", error_field_name="deep_scan_error", context=context,
    )
    return {"ended": done.ended}
"""


class Place:
    """An empty folder, and an environment that has the wheel with some extras."""

    def __init__(self, installed: Installed, folder: Path, environment: dict[str, str]) -> None:
        self.installed, self.folder, self.environment = installed, folder, environment
        self._made = 0

    def call(self, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return self.installed.scheduler(*words, cwd=self.folder, environment={**self.environment, **environment})

    @contextmanager
    def program(self, *words: str, **environment: str) -> Iterator[Path]:
        """One that stays; yields its log."""
        self._made += 1
        log = self.folder / f"{words[0]}-{self._made}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(self.installed.command), *words], cwd=self.folder,
                env=variables({**self.environment, **environment}), stdout=output, stderr=output,
            )  # fmt: skip
        try:
            yield log
        finally:
            process.terminate()
            process.wait(60)

    def ran(self, job_type: str, *options: str, config: str = "{}") -> tuple[str, object]:
        """The status and the result, or the error, of one run by a replica or a worker."""
        self._made += 1
        name = f"{job_type}-{self._made}"
        words = ["schedule", "add", name, "--name", name, "--when", "monthly 1 00:00", "--job-type", job_type]
        added = self.call(*words, "--job-config", config, *options)
        assert added.returncode == 0, added.stderr
        done = self.call("schedule", "run", name, "--wait", "--timeout", "5m", "--json")
        assert done.stdout, done.stderr
        execution = json.loads(done.stdout)
        return execution["status"], (execution["details"] or {}).get("result") or execution["error_message"]


@pytest.fixture(scope="module")
def base(wheel: Path) -> Installed:
    return install(wheel, wheel.parent / "base", ())


@pytest.fixture
def place(base: Installed, tmp_path: Path, database_url: str, servers: Addresses) -> Place:
    """With the base alone."""
    environment = {"DATABASE_URL": database_url, "REDIS_URL": servers.redis_url, "METRICS_PORT": "0"}
    (tmp_path / "folder").mkdir()
    return Place(base, tmp_path / "folder", environment)


@pytest.fixture
def with_extra(wheel: Path, tmp_path: Path, place: Place) -> Callable[[str], Place]:
    return lambda extra: Place(install(wheel, tmp_path / extra, (extra,)), place.folder, place.environment)


def test_the_base_is_small_and_brings_neither_a_parser_nor_a_web_framework() -> None:
    base = needed(())
    assert not base & (PARSERS | FRAMEWORKS)
    assert len(base) <= 35
    assert needed(("web",)) >= FRAMEWORKS - {"jinja2"}, "the test can see one"


@pytest.mark.parametrize("project", [{"JOB_PROJECT": "."}, {}], ids=["project", "modules"])
def test_the_base_alone_runs_plain_and_async_handlers(place: Place, project: dict[str, str]) -> None:
    (place.folder / "my_jobs.py").write_text(JOBS)
    place.environment |= {"JOB_MODULES": "my_jobs", **project}
    assert place.call("migrate").returncode == 0
    with place.program("replica"):
        for job_type in ("plain", "coroutine"):
            assert place.ran(job_type) == ("success", {"said": job_type})


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("web",), "web"),
        (("dev", "--reload"), "web"),
        (("scan", "example.com"), "scan"),
        (("jobs", "cookie_scan"), "scan"),
        (("schedule", "add", "example.com", "--when", "daily 03:00", "--job-type", "cookie_scan"), "scan"),
        (("queues",), "workflows"),
        (("job", "run", "celery_task"), "celery"),
        (("worker", "--queues", "heavy"), "celery"),
        (("import", "celery-beat", "shop:app"), "celery"),
        (("channel", "add", "chat", "apprise", "--url", "ntfy://topic"), "apprise"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_what_misses_an_extra_says_in_one_line_how_to_install_it(
    place: Place, words: tuple[str, ...], extra: str
) -> None:
    done = place.call(*words)
    assert done.returncode in (1, 2)
    assert f"pip install 'enhanced-scheduler[{extra}]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("setting", "extra"),
    [
        ({"CELERY_QUEUES": "heavy"}, "celery"),
        ({"WORKFLOWS_ENABLED": "true"}, "workflows"),
        ({"DATABASE_URL": "", "REDIS_URL": ""}, "embedded"),
    ],
    ids=["celery", "workflows", "embedded"],
)
def test_a_replica_whose_settings_need_an_extra_ends_with_one_line(
    place: Place, setting: dict[str, str], extra: str
) -> None:
    done = place.call("replica", **setting)
    assert done.returncode == 1
    assert not (place.folder / ".embedded").exists()
    assert f"pip install 'enhanced-scheduler[{extra}]'" in done.stderr.strip().splitlines()[-1]


def test_async_steps_without_their_extra_fail_with_one_line(place: Place) -> None:
    way_out = "`pip install 'enhanced-scheduler[async]'`"
    place.environment |= {"JOB_MODULES": "my_jobs"}
    (place.folder / "my_jobs.py").write_text(ASYNC_STEPS)
    refused = place.call("jobs").stderr.strip()
    assert refused == f"JOB_MODULES: 'my_jobs' cannot be imported: sqlalchemy.ext.asyncio needs {way_out}"
    untyped = ASYNC_STEPS.replace("from sqlalchemy.ext.asyncio import AsyncSession\n", "").replace(": AsyncSession", "")
    (place.folder / "my_jobs.py").write_text(untyped)
    with place.program("replica"):
        status, said = place.ran("places", "--set", "max_retries=0")
    assert (status, str(said).endswith(way_out)) == ("failed", True), said


# --- each extra alone ---


def test_every_extra_has_a_test_here() -> None:
    text = Path(__file__).read_text()
    extras = set(dependencies(PROJECT_ROOT)) - {""}
    assert {extra for extra in extras if f'with_extra("{extra}")' not in text} == set()


def test_every_extra_is_in_the_table_of_the_page() -> None:
    page = (PROJECT_ROOT / "docs" / "in-your-project.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert set(dependencies(PROJECT_ROOT)) - {""} <= named


def test_web_alone_serves_the_api_and_the_dashboard(with_extra: Callable[[str], Place], free_port: int) -> None:
    place = with_extra("web")
    with place.program("web", "--port", str(free_port)) as log:
        eventually(lambda: "serving on" in log.read_text(), 60)
        for path, words in {"/login": "Enhanced Scheduler", "/api/openapi.json": "list_schedules"}.items():
            page = urlopen(f"http://127.0.0.1:{free_port}{path}", timeout=60).read().decode()
            assert words in page
            assert "manage.py" not in page
        assert "enhanced-scheduler token create" in log.read_text()
        assert "manage.py" not in log.read_text()


@pytest.mark.parametrize("engine", ["http", "browser"])
def test_scan_and_browser_alone_scan_with_their_engine(with_extra: Callable[[str], Place], engine: str) -> None:
    place = with_extra("scan") if engine == "http" else with_extra("browser")
    with ScanSite() as site:
        site.answer("/", Answer("<p>Shop</p>", cookies=("basket=1; Path=/",)))
        words = ["scan", "shop.example", "--base-url", site.url, "--engine", engine, "--no-save", "--json"]
        done = place.call(*words, FETCH_ALLOW_PRIVATE_ADDRESSES="true")
    assert done.returncode == 0, done.stderr
    assert '"basket"' in done.stdout


def test_workflows_alone_run_the_queues(with_extra: Callable[[str], Place]) -> None:
    place = with_extra("workflows")
    queues = json.loads(place.call("queues", "--json").stdout)
    with place.program("replica", WORKFLOWS_ENABLED="true"):
        status, _ = place.ran("workflow", config=json.dumps({"queue": queues[0]["name"]}))
    assert status == "success"


def test_celery_alone_runs_a_handler_on_a_worker(with_extra: Callable[[str], Place]) -> None:
    place = with_extra("celery")
    (place.folder / "my_jobs.py").write_text(JOBS)
    place.environment |= {"JOB_MODULES": "my_jobs", "JOB_PROJECT": ".", "CELERY_QUEUES": "heavy"}
    with place.program("replica"), place.program("worker", "--queues", "heavy", "--concurrency", "1") as log:
        assert place.ran("coroutine", "--queue", "heavy") == ("success", {"said": "coroutine"})
        eventually(lambda: "coroutine" in log.read_text(), 60)


def test_embedded_alone_needs_no_server(with_extra: Callable[[str], Place]) -> None:
    place = with_extra("embedded")
    (place.folder / "my_jobs.py").write_text(JOBS)
    place.environment |= {"JOB_MODULES": "my_jobs", "DATABASE_URL": "", "REDIS_URL": ""}
    try:
        assert place.call("migrate").returncode == 0
        with place.program("replica"):
            assert place.ran("coroutine") == ("success", {"said": "coroutine"})
    finally:
        application = place.installed.packages / "enhanced_scheduler" / "_application"
        stop = ["-m", "services.embedded", "stop", str(place.folder / ".embedded")]
        place.installed.run(place.installed.python, *stop, cwd=application)


def test_async_alone_brings_steps_with_an_async_session(with_extra: Callable[[str], Place]) -> None:
    place = with_extra("async")
    (place.folder / "my_jobs.py").write_text(ASYNC_STEPS)
    place.environment |= {"JOB_MODULES": "my_jobs"}
    with place.program("replica"):
        assert place.ran("places") == ("success", {"ended": "empty"})


def test_apprise_alone_brings_its_kind_of_channel(with_extra: Callable[[str], Place]) -> None:
    done = with_extra("apprise").call("channel", "add", "chat", "apprise", "--url", "ntfy://topic")
    assert done.returncode == 0, done.stderr
