"""The wheel in a fresh environment, as a user has it. Its dependencies come from our own environment by a .pth file."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config import PROJECT_ROOT

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


def install(wheel: Path, home: Path) -> Installed:
    installed = Installed(home)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=SECONDS)
    (installed.packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", str(installed.python), "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--quiet", str(wheel)], check=True, capture_output=True, timeout=SECONDS)
    return installed
