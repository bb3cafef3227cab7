"""The pytest fixture `scheduler`: one replica for the test run, on embedded servers whose data are thrown away.

    # pyproject.toml
    [tool.pytest.ini_options]
    scheduler_modules = ["shop.jobs"]

Your modules are imported in pytest's root directory by the interpreter that runs the tests.
"""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from enhanced_scheduler import Scheduler, application
from enhanced_scheduler.testing import RunningScheduler

STOP_SECONDS = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("scheduler_modules", "modules that declare the jobs of the fixture `scheduler`", type="args")


@pytest.fixture(scope="session")
def scheduler(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningScheduler]:
    """A replica that runs your jobs, and the commands to give it some."""
    servers = tmp_path_factory.mktemp("scheduler")
    modules: list[str] = pytestconfig.getini("scheduler_modules")
    settings = {"ENV_FILE": "", "DATABASE_URL": "", "REDIS_URL": "", "REDIS_HOST": "", "EMBEDDED_DIR": str(servers)}
    settings |= {"METRICS_PORT": "0", "SHUTDOWN_GRACE_SECONDS": "5"}
    if modules:
        settings |= {"JOB_PROJECT": str(pytestconfig.rootpath), "JOB_PROJECT_PYTHON": sys.executable}
        settings |= {"JOB_MODULES": ",".join(modules)}
    running = RunningScheduler(pytestconfig.rootpath, settings)
    try:
        running.migrate()
        del settings["METRICS_PORT"]  # the replica's own: it is how Scheduler sees that it is ready
        with Scheduler(directory=pytestconfig.rootpath, settings=settings):
            yield running
    finally:
        stop = application.command("services/embedded/__main__.py", "stop", str(servers))
        subprocess.run(stop, timeout=STOP_SECONDS, check=False, capture_output=True)  # noqa: S603 - our own program
