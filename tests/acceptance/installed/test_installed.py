"""The wheel in an empty folder: what it brings, what it hides, and README's commands."""

import os
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from config import PROJECT_ROOT, VERSION
from hatch_build import dependencies
from tests.support.documentation import blocks
from tests.support.installed import Installed, install

# scope="module": the environment is made once
README, PAGE = PROJECT_ROOT / "README.md", PROJECT_ROOT / "docs" / "in-your-project.md"
OURS = ("services", "database", "config", "migrations", "manage", "run_migrations")


@pytest.fixture
def folder(tmp_path: Path, installed: Installed) -> Iterator[Path]:
    """Empty; the servers that a command has started there are gone after the test."""
    folder = tmp_path / "folder"
    folder.mkdir()
    yield folder
    application = installed.packages / "enhanced_scheduler" / "_application"
    stop = ["-m", "services.embedded", "stop", str(folder / ".embedded")]
    installed.run(installed.python, *stop, cwd=application)


def test_one_package_and_one_command_reach_the_environment(installed: Installed) -> None:
    names = {path.name for path in installed.packages.iterdir()} - {"dependencies.pth"}
    assert names == {"enhanced_scheduler", f"enhanced_scheduler-{VERSION}.dist-info"}
    assert installed.command.exists()


@pytest.mark.parametrize("name", OURS)
def test_no_module_of_ours_can_be_imported_by_its_bare_name(installed: Installed, name: str, tmp_path: Path) -> None:
    done = installed.run(installed.python, "-c", f"import enhanced_scheduler; import {name}", cwd=tmp_path)
    assert f"ModuleNotFoundError: No module named '{name}'" in done.stderr


def test_a_program_that_imports_the_package_loads_nothing_but_the_standard_library(
    installed: Installed, tmp_path: Path
) -> None:
    program = """
import sys
before = set(sys.modules)
import enhanced_scheduler, enhanced_scheduler.child
print(*{name.split(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)
print(*sys.modules)
"""
    ours, loaded = installed.run(installed.python, "-c", program, cwd=tmp_path).stdout.splitlines()
    assert ours.split() == ["enhanced_scheduler"]
    assert not {"asyncio", "ssl", "http.client", "sqlite3"} & set(loaded.split()), "each call in a process pays for it"


def test_the_application_is_the_tree_of_this_repository(installed: Installed) -> None:
    application = installed.packages / "enhanced_scheduler" / "_application"
    assert files_of(application, "") == {name for path in OURS for name in files_of(PROJECT_ROOT, path)}


def files_of(root: Path, path: str) -> set[str]:
    found = (root / path).rglob("*") if (root / path).is_dir() else [root / f"{path}.py"]
    return {str(file.relative_to(root)) for file in found if file.is_file() and file.suffix != ".pyc"}


def test_the_wheel_depends_on_what_the_requirements_files_say(installed: Installed) -> None:
    metadata = (installed.packages / f"enhanced_scheduler-{VERSION}.dist-info" / "METADATA").read_text().splitlines()
    said = {line.removeprefix("Requires-Dist: ") for line in metadata if line.startswith("Requires-Dist: ")}
    names = {line.split(";")[0].split("<")[0].split("=")[0] for line in said if "extra ==" not in line}
    groups = dependencies(PROJECT_ROOT)
    assert names == {line.split(">")[0].split("=")[0] for line in groups.pop("")}
    assert {line.removeprefix("Provides-Extra: ") for line in metadata if line.startswith("Provides-Extra")} == set(
        groups
    )
    assert f"Version: {VERSION}" in metadata


def test_the_commands_of_the_readme_work_in_an_empty_folder(wheel: Path, folder: Path) -> None:
    """Those of a fresh installation as they stand there, then the tour under the command's own name, then the call of a
    handler as the page says. What `pip install` names, and nothing else, is installed.
    """
    (start,) = [block for block in blocks(README, "bash") if "pip install" in block]
    (tour,) = [block for block in blocks(README, "bash") if "schedule add" in block and "manage.py" in block]
    (call,) = re.findall(r"`(enhanced-scheduler job run [^`]+)`", PAGE.read_text())
    pip, rest = start.split("\n", 1)
    (extras,) = re.findall(r"^pip install 'enhanced-scheduler\[(.+)\]'$", pip)
    installed = install(wheel, folder.parent / "environment", extras.split(","))
    (folder / "my_jobs.py").write_text(blocks(README, "python")[1])
    (folder / ".env").write_text("METRICS_PORT=0\n")
    path = {"PATH": f"{installed.home / 'bin'}:{os.defpath}"}
    ours = tour.replace("python manage.py", "enhanced-scheduler")
    done = installed.run("bash", "-ec", f"{rest}\n{ours}\n{call}\nkill $!; wait $!", cwd=folder, environment=path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("success after") >= 2
    assert done.stdout.count('"pages": 10') >= 1
    assert "all accounted for" in done.stdout
    assert "manage.py" not in done.stdout + done.stderr
    assert (folder / ".embedded" / "postgres").is_dir()


@pytest.mark.parametrize("words", [(), ("schedule", "add"), ("queue", "show"), ("jobs",), ("completion",)])
def test_help_and_refusals_name_the_command_that_is_there(
    installed: Installed, tmp_path: Path, words: tuple[str, ...]
) -> None:
    said = installed.scheduler(*words, "--help", cwd=tmp_path).stdout
    said += installed.scheduler(*words, "--no-such-option", cwd=tmp_path).stderr
    assert said.count(f"Usage: {' '.join(('enhanced-scheduler', *words))} ") == 2
    assert "manage.py" not in said


def test_the_tab_key_completes_the_command(installed: Installed, tmp_path: Path) -> None:
    pressed = """
        source <(enhanced-scheduler completion bash)
        COMP_WORDS=(enhanced-scheduler schedule ad); COMP_CWORD=2
        _enhanced_scheduler; printf '%s\\n' "${COMPREPLY[@]}"
    """
    path = {"PATH": f"{installed.home / 'bin'}:{os.defpath}"}
    done = installed.run("bash", "-ec", pressed, cwd=tmp_path, environment=path)
    assert done.stdout.split() == ["add"], done.stderr


TYPED = """
from enhanced_scheduler import ExecutionContext, job
from enhanced_scheduler.client import Client
from enhanced_scheduler.testing import RunningScheduler, run_job


@job("plain")
def plain(context: ExecutionContext, config: dict[str, int]) -> dict[str, int]:
    return {"left": config["pages"]}


@job("coroutine")
async def coroutine(context: ExecutionContext, config: dict[str, int]) -> None: ...


def names(client: Client) -> list[str | None]:
    return [schedule["name"] for schedule in client.list_schedules()]


def test_it(scheduler: RunningScheduler) -> None:
    assert run_job(coroutine).succeeded
    assert scheduler.run("plain")["status"] == "success"
"""
MISTAKES = """

@job("wrong")
def wrong(context: ExecutionContext) -> None: ...


Client("http://localhost", "token").create_schedule({"nmae": "x"})
"""


def test_the_types_of_the_package_are_those_that_a_users_checker_sees(installed: Installed, tmp_path: Path) -> None:
    def checked(text: str) -> list[str]:
        (tmp_path / "shop.py").write_text(text)
        words = ["-m", "mypy", "--strict", "--python-executable", str(installed.python), "--cache-dir", "cache"]
        return installed.run(sys.executable, *words, "shop.py", cwd=tmp_path).stdout.splitlines()

    assert checked(TYPED) == ["Success: no issues found in 1 source file"]
    mistakes = {line.rpartition("[")[2] for line in checked(TYPED + MISTAKES) if "error:" in line}
    assert mistakes == {"type-var]", "typeddict-item]", "typeddict-unknown-key]"}


def test_a_wheel_is_small(tmp_path_factory: pytest.TempPathFactory, installed: Installed) -> None:
    (wheel,) = installed.home.parent.glob("*.whl")
    assert os.path.getsize(wheel) < 1_500_000
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if "test" in name.split("/")[0]]
