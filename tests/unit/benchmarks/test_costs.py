"""The CPU seconds of a family of processes: a session of Postgres must count while it lives and after it has ended."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.costs import Cost, family_cpu_seconds

# Each line that it hears is done, then answered: `burn` in a child that ends, `keep` in one that stays.
PARENT = """
import os, sys, time

def burn():
    while time.process_time() < 0.3:
        pass

for line in sys.stdin:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        burn()
        os.write(writing, b"done")
        if line == "keep\\n":
            time.sleep(60)
        os._exit(0)
    os.read(reading, 4)
    if line == "burn\\n":
        os.waitpid(child, 0)
    print("done", flush=True)
"""


@contextmanager
def parent() -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def growth(process: "subprocess.Popen[str]", order: str) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    before = family_cpu_seconds([process.pid])
    process.stdin.write(f"{order}\n")
    process.stdin.flush()
    process.stdout.readline()
    return family_cpu_seconds([process.pid]) - before


@pytest.mark.parametrize("order", ["burn", "keep"])
def test_a_child_counts_while_it_lives_and_after_it_has_ended(order: str) -> None:
    with parent() as process:
        assert growth(process, order) == pytest.approx(0.3, abs=0.1)


def test_a_process_that_is_gone_is_not_taken_for_an_idle_one() -> None:
    with parent() as process:
        pass
    with pytest.raises(OSError, match="Invalid argument"):
        family_cpu_seconds([process.pid])


def test_the_idle_cost_of_as_many_seconds_is_subtracted() -> None:
    idle = Cost(replicas=0.25, postgres=0.5, redis=0.0, clock=10)
    used = Cost(replicas=3.75, postgres=1.75, redis=0.5, clock=30)
    assert used.beyond(idle) == Cost(replicas=3.0, postgres=0.25, redis=0.5, clock=30)
