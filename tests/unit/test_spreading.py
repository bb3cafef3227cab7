"""How tests are spread over workers (tests/support/spreading.py)."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from config import PROJECT_ROOT
from tests.support.spreading import (
    GROUPS,
    OF_A_DIRECTORY,
    OF_A_TEST,
    pytest_xdist_make_scheduler,
    seconds_of,
    unit_of,
)

HOOK = "from tests.support.spreading import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler\n"
RECORDED = """
import os, pathlib, pytest

@pytest.fixture({scope})
def costly(): ...

@pytest.mark.parametrize("number", range(8))
def test_it(number, costly):
    with pathlib.Path("workers").open("a") as workers:
        workers.write(f"{name} {{os.environ['PYTEST_XDIST_WORKER']}}\\n")
"""


def test_a_file_with_something_costly_runs_on_one_worker(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(HOOK)
    (tmp_path / "test_shared.py").write_text(RECORDED.format(scope='scope="module"', name="shared"))
    (tmp_path / "test_apart.py").write_text(RECORDED.format(scope="", name="apart"))
    run = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "xdist", "--rootdir", ".", "-c", "/dev/null"]
    environment = {"PYTHONPATH": str(PROJECT_ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": ""}
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "16 passed" in done.stdout, done.stdout + done.stderr
    workers = defaultdict(set)
    for line in (tmp_path / "workers").read_text().splitlines():
        name, worker = line.split()
        workers[name].add(worker)
    assert len(workers["shared"]) == 1
    assert len(workers["shared"] | workers["apart"]) == 2


def test_the_suite_asks_for_this_order(request: pytest.FixtureRequest) -> None:
    asked = request.config.hook.pytest_xdist_make_scheduler.get_hookimpls()
    assert any(hook.function is pytest_xdist_make_scheduler for hook in asked)


def test_tests_of_one_group_are_one_unit() -> None:
    dev = "tests/acceptance/cli/test_dev.py::test_replicas_end_with_a_dev_that_was_killed"
    filled = "tests/integration/cli/test_command_line.py::test_dev_fills_an_empty_database_once"
    assert unit_of(dev) == unit_of(filled) == "dev"
    other = "tests/integration/cli/test_command_line.py::test_settings_are_shown_without_secrets"
    assert unit_of(other) == other


def test_a_long_test_counts_more_than_its_directory_says() -> None:
    directory = "tests/acceptance/engine/test_simulation.py"
    assert seconds_of(f"{directory}::test_no_promise_is_broken_in_150_histories") > 100
    assert seconds_of(f"{directory}::test_equal_seeds_give_equal_histories") == OF_A_DIRECTORY["tests/acceptance"]


def test_what_the_tables_name_exists() -> None:
    for name in GROUPS:
        path, _, test = name.partition("::")
        assert f"def {test}" in (PROJECT_ROOT / path).read_text()
    sources = [path.read_text() for path in (PROJECT_ROOT / "tests").rglob("test_*.py")]
    assert [name for name in OF_A_TEST if not any(f"def {name}(" in source for source in sources)] == []
