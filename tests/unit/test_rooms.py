"""The house: what importing a part of the core loads, and that every room says what it is."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

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
    assert len(ours) <= 31, sorted(ours)
    assert not {"lxml", "defusedxml", "protego", "requests", "redis", "apscheduler", "fastapi", "nicegui"} & loaded
    assert not {name for name in ours if name.startswith(("services.job_types", "services.scanning", "services.web"))}


def test_the_engine_loads_no_feature() -> None:
    loaded = loaded_by("services.engine.dispatcher")
    features = ("scanning", "fetching", "queues", "workflows", "api_sync", "job_types", "web")
    assert not {name for name in loaded if name.startswith(tuple(f"services.{name}." for name in (*features, "cli")))}


def test_the_corridor_is_short() -> None:
    """Counted as `ls services` counts."""
    entries = [path.name for path in SERVICES.iterdir() if path.name != "__pycache__"]
    assert len(entries) < 30, entries


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_says_what_it_is(room: str) -> None:
    """In its own words, and in one line of ARCHITECTURE.md's map."""
    assert (SERVICES / room / "__init__.py").read_text().startswith('"""')
    assert f"\n  {room}/ " in (PROJECT_ROOT / "ARCHITECTURE.md").read_text()


def test_tests_live_in_the_rooms_of_what_they_test() -> None:
    others = {"support", "proof", "benchmarks", "database", "installed"}
    for kind in ("unit", "integration", "acceptance"):
        rooms = {path.name for path in (PROJECT_ROOT / "tests" / kind).iterdir() if path.is_dir()} - {"__pycache__"}
        assert rooms - others <= set(ROOMS), f"tests/{kind}"


# --- a fire in six files ---

STEP = re.compile(r"^\d\. `(?P<path>services/\S+\.py)` `(?P<name>[\w.]+)`", re.MULTILINE)
STEPS = [match.groupdict() for match in STEP.finditer((PROJECT_ROOT / "ARCHITECTURE.md").read_text())]
# Who calls whom: by an import, or because assembly.py or workplace.py hands over a method of the second to the first.
IMPORTS = [("dispatcher", "claims"), ("claims", "claims_sql"), ("dispatcher", "pool"), ("dispatcher", "finisher")]
WIRED = [("parts.timer", "dispatcher.hand_over"), ("self.staff", "dispatcher.done"), ("WorkerPool", "gate.may_run")]


def test_the_story_of_a_fire_names_six_files_in_order() -> None:
    names = [Path(step["path"]).stem for step in STEPS]
    assert names == ["timer", "dispatcher", "claims", "claims_sql", "pool", "finisher"]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step["path"])
def test_what_the_story_names_is_there(step: dict[str, str]) -> None:
    found: object = importlib.import_module(step["path"].removesuffix(".py").replace("/", "."))
    for name in step["name"].split("."):
        found = getattr(found, name)


@pytest.mark.parametrize(("caller", "called"), IMPORTS)
def test_the_story_follows_the_imports(caller: str, called: str) -> None:
    paths = {Path(step["path"]).stem: step["path"] for step in STEPS}
    tree = ast.parse((PROJECT_ROOT / paths[caller]).read_text())
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported = {str(node.module) for node in froms}
    imported |= {f"{node.module}.{name.name}" for node in froms for name in node.names}
    assert paths[called].removesuffix(".py").replace("/", ".") in imported


@pytest.mark.parametrize(("caller", "called"), WIRED)
def test_the_story_follows_the_wires(caller: str, called: str) -> None:
    tree = ast.parse("".join((SERVICES / "engine" / f"{name}.py").read_text() for name in ("assembly", "workplace")))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == caller]
    given = [ast.unparse(each) for call in calls for each in (*call.args, *(word.value for word in call.keywords))]
    assert f"self.{called}" in given


# --- what import-linter cannot see ---


def test_the_settings_know_nothing_of_the_services_but_errors_and_checks() -> None:
    """import-linter reads packages only, and config.py is a module: through it a room could reach any other one."""
    tree = ast.parse((PROJECT_ROOT / "config.py").read_text())
    modules = [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = [module for module in modules if module.startswith(("services", "database"))]
    assert [module for module in ours if not module.startswith(("services.checks.", "services.errors"))] == []


def test_the_tree_of_errors_names_every_one() -> None:
    drawn = re.findall(r"[├└]── (\w+)", str(importlib.import_module("services.errors").__doc__))
    bases: dict[str, list[str]] = {}
    for path in (*SERVICES.rglob("*.py"), *(PROJECT_ROOT / "database").rglob("*.py")):
        classes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
        bases |= {node.name: [ast.unparse(base) for base in node.bases] for node in classes}
    errors = {"SchedulerError"}
    while more := {name for name, above in bases.items() if errors & set(above)} - errors:
        errors |= more
    assert sorted(drawn) == sorted(errors - {"SchedulerError"})
