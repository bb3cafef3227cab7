"""Which failures CI looks at again: few, of single tests, and never of a guarantee."""

import importlib.util
from types import ModuleType

import pytest

from config import PROJECT_ROOT

PROMISED = {"tests/acceptance/test_a.py::test_once"}


@pytest.fixture(scope="module")
def again() -> ModuleType:
    spec = importlib.util.spec_from_file_location("again", PROJECT_ROOT / ".ci/again.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_few_failed_tests_get_a_second_look(again: ModuleType) -> None:
    assert again.refusal(["tests/unit/test_a.py::test_b", "tests/unit/test_a.py::test_c[2]"], PROMISED) == ""


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        ([], "without naming a test"),
        ([f"tests/unit/test_a.py::test_{number}" for number in range(4)], "4 tests failed; at most 3"),
        (["tests/unit/test_a.py"], "not a single test: tests/unit/test_a.py"),
        (["tests/acceptance/test_a.py::test_once"], "a test of a guarantee failed"),
        (["tests/acceptance/test_a.py::test_once[redis]"], "a test of a guarantee failed"),
    ],
)
def test_other_failures_stay_failures(again: ModuleType, failed: list[str], reason: str) -> None:
    assert reason in again.refusal(failed, PROMISED)
