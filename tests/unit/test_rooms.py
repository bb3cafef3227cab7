"""The house: what importing a part of the core loads, and that every room says what it is."""

import subprocess
import sys

import pytest

from config import PROJECT_ROOT

SERVICES = PROJECT_ROOT / "services"
ROOMS = sorted(path.name for path in SERVICES.iterdir() if path.is_dir() and path.name != "__pycache__")
LOADED = """
import sys
import {module}
print(*sorted(sys.modules), sep="\\n")
"""


def loaded_by(module: str) -> set[str]:
    command = [sys.executable, "-c", LOADED.format(module=module)]
    return set(subprocess.check_output(command, cwd=PROJECT_ROOT, text=True).split())


def test_a_value_of_the_core_loads_few_modules_and_no_feature() -> None:
    """It was 82 of ours, an HTML parser and a reader of robots.txt."""
    loaded = loaded_by("services.ledger.fires")
    ours = {name for name in loaded if name.split(".")[0] in ("services", "database", "config")}
    assert len(ours) <= 30, sorted(ours)
    assert not {"lxml", "defusedxml", "protego", "requests", "redis", "apscheduler", "fastapi", "nicegui"} & loaded
    assert not {name for name in ours if name.startswith(("services.job_types", "services.scanning", "services.web"))}


def test_the_engine_loads_no_feature() -> None:
    loaded = loaded_by("services.engine.dispatcher")
    features = ("scanning", "sites", "fetching", "queues", "workflows", "api_sync", "job_types", "web", "cli")
    assert not {name for name in loaded if name.startswith(tuple(f"services.{name}." for name in features))}


def test_the_corridor_is_short() -> None:
    entries = [path.name for path in SERVICES.iterdir() if path.name not in ("__pycache__", "__init__.py")]
    assert len(entries) < 30


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_says_what_it_is(room: str) -> None:
    """In its own words, and in one line of ARCHITECTURE.md's map."""
    assert (SERVICES / room / "__init__.py").read_text().startswith('"""')
    assert f"\n  {room}/ " in (PROJECT_ROOT / "ARCHITECTURE.md").read_text()


def test_tests_live_in_the_rooms_of_what_they_test() -> None:
    others = {"support", "proof", "benchmarks", "database"}
    for kind in ("unit", "integration", "acceptance"):
        rooms = {path.name for path in (PROJECT_ROOT / "tests" / kind).iterdir() if path.is_dir()} - {"__pycache__"}
        assert rooms - others <= set(ROOMS), f"tests/{kind}"
