"""The wheel in a fresh environment, as a user has it. Its dependencies come from our own environment: all of them, by a
.pth file, or as links only those that pip would install for some extras.
"""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from config import PROJECT_ROOT
from hatch_build import dependencies

SECONDS = 900  # only a hanging program takes that long, whatever else the machine does


@dataclass(frozen=True, slots=True)
class Installed:
    """One environment. Every program in it gets only the variables that are named here."""

    home: Path

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    @property
    def command(self) -> Path:
        return self.home / "bin" / "enhanced-scheduler"

    @property
    def packages(self) -> Path:
        return self.home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"

    def run(
        self, *words: str | Path, cwd: Path, environment: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, cwd=cwd, env=variables(environment), capture_output=True, text=True, timeout=SECONDS, check=False
        )

    def scheduler(
        self, *words: str, cwd: Path, environment: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        return self.run(self.command, *words, cwd=cwd, environment=environment)

    def answer(self, *words: str, cwd: Path, environment: Mapping[str, str] | None = None) -> Any:
        """What the command prints with --json."""
        done = self.scheduler(*words, "--json", cwd=cwd, environment=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)


def variables(environment: Mapping[str, str] | None) -> dict[str, str]:
    return {"PATH": os.defpath, "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}


def build_wheel(directory: Path) -> Path:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=PROJECT_ROOT, check=True, capture_output=True, timeout=SECONDS)
    (wheel,) = directory.glob("*.whl")
    return wheel


def install(wheel: Path, home: Path, extras: Iterable[str] | None = None) -> Installed:
    """Without `extras` it finds every package of ours; with some, only what pip would install for these."""
    installed = Installed(home)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=SECONDS)
    if extras is None:
        (installed.packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    else:
        for name in needed(extras):
            _link(name, installed.packages)
    pip = [sys.executable, "-m", "pip", "--python", str(installed.python), "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--quiet", str(wheel)], check=True, capture_output=True, timeout=SECONDS)
    return installed


def needed(extras: Iterable[str]) -> set[str]:
    """The distributions that pip installs for the base and these extras, ours excluded."""
    groups = dependencies(PROJECT_ROOT)
    waiting = [Requirement(line) for extra in ("", *extras) for line in groups[extra]]
    seen: set[tuple[str, str]] = set()
    while waiting:
        asked = waiting.pop()
        name = canonicalize_name(asked.name)
        for extra in ("", *asked.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            further = map(Requirement, distribution(asked.name).requires or ())
            waiting += [each for each in further if each.marker is None or each.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen}


def _link(name: str, packages: Path) -> None:
    found = distribution(name)
    tops = {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}
    for top in tops:
        if not (place := packages / top).exists():
            place.symlink_to(str(found.locate_file(top)))
