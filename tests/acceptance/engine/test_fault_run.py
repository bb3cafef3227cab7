"""A short run of mixed faults: the tool that measures the guarantees works, and the guarantees hold."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from config import PROJECT_ROOT
from tests.support.waiting import eventually

PROGRAM = [sys.executable, "-m", "tests.proof.fault_run"]
MILD = "kill,freeze,freeze_in_transaction,late_answer,slow_answers,lost_answer,cut,flap,redis_flush,redis_lost_replies"


def test_nothing_is_broken_by_a_short_run_of_mild_faults(tmp_path: Path) -> None:
    command = ["--minutes", "0.3", "--seed", "7", "--strength", "0.25", "--fires-per-second", "15", "--replicas", "3"]
    command += ["--set", "GAP_SCAN_SECONDS=5"]  # the run waits for one at its end
    done = subprocess.run(
        [*PROGRAM, *command, "--only", MILD, "--json", str(tmp_path / "found.json")],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["clean"]
    assert found["audit"]["clean"]
    assert found["calls"] > 100
    assert sum(found["faults"].values()) >= 3
    assert "nothing is broken" in done.stdout


@pytest.fixture
def running() -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [*PROGRAM, "--minutes", "5", "--replicas", "1", "--fires-per-second", "2"],
        cwd=PROJECT_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield process
        process.kill()


def test_a_run_that_is_interrupted_leaves_no_process_behind(running: "subprocess.Popen[str]") -> None:
    assert running.stdout is not None
    directory = running.stdout.readline().split()[-1]
    eventually(lambda: processes_of(directory), 30)
    running.send_signal(signal.SIGINT)
    assert running.wait(90) != 0
    eventually(lambda: processes_of(directory) == [], 20)


def processes_of(directory: str) -> list[int]:
    """Whoever has a file of that directory open, or was started with its name."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "cmdline").read_bytes()
            files = [str(file.readlink()) for file in (process / "fd").iterdir()]
        except OSError:  # it has ended, or is not ours
            continue
        if directory.encode() in told or any(file.startswith(directory) for file in files):
            found.append(int(process.name))
    return found
