"""How the tests of one run are spread over its workers: what stays together, and what begins first.

Half of the workers take the test that needs longest, which mostly waits; the others take the shortest, which computes.
So the cores have work from the first minute to the last, and no long test begins when all others have ended.
pytest-xdist's own groups have no effect under pytest 9.2 (pytest-xdist issue 1386): `--dist` is overruled here.
"""

from collections import OrderedDict
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from config import PROJECT_ROOT

# Files and tests that run on one worker, one after the other.
GROUPS = {
    "tests/acceptance/cli/test_dev.py": "dev",  # several at once would reach for the same readable ports
    "tests/integration/cli/test_command_line.py::test_dev_fills_an_empty_database_once": "dev",
    "tests/acceptance/scanning/test_cookie_scan_end_to_end.py": "browser",  # one Chromium at a time: two cores
    "tests/integration/scanning/test_browser_engine.py": "browser",
    "tests/integration/scanning/test_browser_lifetime.py": "browser",
    "tests/integration/scanning/test_browser_limits.py": "browser",
}

# The seconds of a test on a quiet machine. A wrong figure costs time, nothing else.
OF_A_DIRECTORY = {"tests/acceptance": 8.0, "tests/integration": 1.0, "tests/unit": 0.05}
OF_A_TEST = {
    "test_no_promise_is_broken_in_150_histories": 150.0,
    "test_the_documented_answer_is_synced_fired_and_scanned_and_the_next_scan_tells_what_changed": 110.0,
    "test_a_minute_of_overlapping_claims_and_finishes_without_redis_leaves_no_deadlock": 70.0,
    "test_a_replica_that_slept_longer_than_the_horizon_accounts_for_every_fire_of_that_time": 70.0,
    "test_nothing_is_broken_by_a_short_run_of_mild_faults": 50.0,
    "test_redis_may_vanish_and_come_back": 40.0,
    "test_an_application_with_our_names_starts_a_replica_that_runs_its_handlers": 25.0,
    "test_the_commands_of_the_readme_work_in_an_empty_folder": 25.0,
    "test_a_project_tests_its_jobs_alone_and_with_a_replica": 20.0,
    "test_no_seed_that_once_broke_a_promise_does_so_again": 30.0,
}


def unit_of(nodeid: str, root: Path = PROJECT_ROOT) -> str:
    """The name of what a worker is given at once: a group, a file, or one test."""
    path = nodeid.split("::")[0]
    return GROUPS.get(path) or GROUPS.get(nodeid) or (path if _stays_together(path, root) else nodeid)


@cache
def _stays_together(path: str, root: Path) -> bool:
    """Quick tests, and those that share what is costly to make: each worker would make its own."""
    files = root / path, (root / path).with_name("conftest.py")
    return path.startswith("tests/unit/") or any(
        'scope="module"' in file.read_text() for file in files if file.exists()
    )


def seconds_of(nodeid: str) -> float:
    name = nodeid.split("::", 1)[1].split("[")[0]
    place = "/".join(nodeid.split("/")[:2])
    return OF_A_TEST.get(name) or OF_A_DIRECTORY.get(place, 1.0)


class BothEnds(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """A queue of units, the longest first: half of the workers take from its beginning, the others from its end."""

    workqueue: OrderedDict[str, dict[str, bool]]
    _is_sorted = False

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid, self.config.rootpath)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if not self._is_sorted:
            self._sort()
        if self.nodes.index(node) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def _sort(self) -> None:
        seconds = {unit: sum(map(seconds_of, tests)) for unit, tests in self.workqueue.items()}
        self.workqueue = OrderedDict(sorted(self.workqueue.items(), key=lambda entry: -seconds[entry[0]]))
        self._is_sorted = True


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> BothEnds:
    """The hook by which pytest-xdist asks tests/conftest.py."""
    return BothEnds(config, log)
