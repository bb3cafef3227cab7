"""Makes mutants in a copy of the tree and runs tests there, against embedded servers of its own.

A mutant is caught only if its test fails by what it asserts. A test that cannot even run proves nothing.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree

from config import PROJECT_ROOT

LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".embedded", ".peers", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis",
    ".import_linter_cache", ".env",
)  # fmt: skip
PATIENCE_SECONDS = 120.0  # beyond the test's own time: servers have to start, and the machine may be busy
PATIENCE_FACTOR = 10.0
# The mutant does not even work: a test that stumbles over this has not noticed what is missing.
STUMBLES = (
    "SyntaxError", "IndentationError", "ImportError", "ModuleNotFoundError", "NameError", "UnboundLocalError",
    "AttributeError", "TypeError", "UndefinedColumn", "UndefinedTable", "UndefinedFunction", "UndefinedObject",
    "AmbiguousColumn", "InvalidColumnReference", "DatatypeMismatch", "ProgrammingError",
)  # fmt: skip


class Outcome(StrEnum):
    GREEN = "green"
    RED = "red"  # by an assertion, or by an error that the product raised
    BROKEN = "broken"
    HUNG = "hung"


@dataclass(frozen=True, slots=True)
class Report:
    outcome: Outcome
    why: str = ""
    seconds: dict[str, float] = field(default_factory=dict)  # by node id
    red: tuple[str, ...] = ()


class Workshop:
    """One directory with a clean copy of the tree, from which each mutant gets its own. For one thread."""

    def __init__(self, directory: Path) -> None:
        self._clean, self._work, self._servers = directory / "clean", directory / "work", directory / "servers"
        self._servers.mkdir()
        shutil.copytree(PROJECT_ROOT, self._clean, ignore=LEFT_OUT, symlinks=True)
        (self._clean / ".embedded").symlink_to(self._servers)

    @property
    def clean(self) -> Path:
        """With what Python compiled from it, so that later copies start fast."""
        return self._clean

    def fresh(self) -> Path:
        """A copy in which a mutant may be made. Times of files are kept, so compiled ones are valid as long as the
        source is untouched."""
        if self._work.exists():
            shutil.rmtree(self._work)
        shutil.copytree(self._clean, self._work, symlinks=True)
        return self._work

    def run_tests(self, tree: Path, tests: Sequence[str], *options: str, limit_seconds: float = 3600.0) -> Report:
        results = self._servers / "results.xml"
        results.unlink(missing_ok=True)
        fixed = (
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:randomly",
            f"--junit-xml={results}",
            "-o",
            "junit_family=xunit1",
        )
        code, said = _run(tree, ["-m", "pytest", *fixed, *options, *tests], limit_seconds)
        if code is None:
            return Report(Outcome.HUNG, f"no end after {limit_seconds:.0f} s")
        if code not in (0, 1) or not results.is_file():
            return Report(Outcome.BROKEN, f"pytest ended with {code}: {_last_line(said)}")
        return judged(results)

    def run_simulation(self, tree: Path, arguments: Sequence[str], limit_seconds: float) -> Report:
        """Its exit code is 1 when a promise was broken; a program that does not even run ends with a traceback."""
        code, said = _run(tree, ["-m", "tests.proof.simulation", *arguments], limit_seconds)
        if code is None:
            return Report(Outcome.HUNG, f"no end after {limit_seconds:.0f} s")
        if code not in (0, 1) or "Traceback (most recent call last)" in said:
            return Report(Outcome.BROKEN, f"the simulation ended with {code}: {_last_line(said)}")
        return Report(Outcome.RED if code else Outcome.GREEN, _last_line(said))


@contextmanager
def workshops(count: int) -> Iterator[list[Workshop]]:
    """Their directories are short-lived, and their names short: a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as directory:
        made = []
        for number in range(count):
            (own := Path(directory) / str(number)).mkdir()
            made.append(Workshop(own))
        yield made


def patience(normal_seconds: float) -> float:
    return PATIENCE_SECONDS + PATIENCE_FACTOR * normal_seconds


def _run(tree: Path, command: Sequence[str], limit_seconds: float) -> tuple[int | None, str]:
    """In a session of its own, so that a run which hangs ends with everything that it has started."""
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=tree,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=limit_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ""
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, said


def judged(results: Path) -> Report:
    cases = list(ElementTree.parse(results).iter("testcase"))  # our own file
    seconds: dict[str, float] = {}
    for case in cases:
        node = f"{case.get('file')}::{(case.get('name') or '').partition('[')[0]}"
        seconds[node] = seconds.get(node, 0.0) + float(case.get("time") or 0.0)
    errors = [_first_line(each) for case in cases for each in case.iter("error")]
    failed = [(case, each) for case in cases for each in case.iter("failure")]
    failures = [_first_line(each) for _, each in failed]
    red = tuple(f"{case.get('file')}::{case.get('name')}" for case, _ in failed)
    if honest := [line for line in failures if not is_stumble(line)]:
        return Report(Outcome.RED, honest[0], seconds, red)
    if broken := [*failures, *errors]:
        return Report(Outcome.BROKEN, broken[0], seconds, red)
    if not cases or all(case.find("skipped") is not None for case in cases):
        return Report(Outcome.BROKEN, "no test was run", seconds)
    return Report(Outcome.GREEN, "", seconds)


def is_stumble(message: str) -> bool:
    kind = message.partition(":")[0]
    return any(each in kind for each in STUMBLES) or any(f"errors.{each})" in message for each in STUMBLES)


def _first_line(element: ElementTree.Element) -> str:
    return _last_line((element.get("message") or element.text or "").partition("\n")[0])


def _last_line(text: str) -> str:
    lines: Iterable[str] = (line for line in reversed(text.splitlines()) if line.strip())
    return next(iter(lines), "")[:160]
