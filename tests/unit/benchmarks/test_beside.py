"""`--beside DIR`: the same scenario here and in another checkout. The checkouts of these tests measure nothing, but are
run like real ones: as processes with a `benchmarks` package of their own.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.beside import Checkout, compare, summary
from benchmarks.scale import QUICK
from benchmarks.sheet import Sheet

SCALE = replace(QUICK, rounds=2, bursts=(100,), replicas=(3, 12))
CATALOGUE = "OURS = 'ours'\n"
BURST = """
from pathlib import Path
from types import SimpleNamespace

def _measure(count, design):
    assert design == "ours"
    with Path({log!r}).open("a") as log:
        log.write({name!r} + " ")
    return SimpleNamespace(last_start={seconds}, last_end={seconds}, p99={seconds}, cpu=0.0002, twice=0, missing=0)
"""
REPLICAS = """
from types import SimpleNamespace

def measure(number, settle, idle, fires):
    cost = SimpleNamespace(replicas=0.0001 * number**{power}, postgres=0.0001, redis=0.0001)
    found = SimpleNamespace(percentile=lambda percent: 0.02, twice=0, missing=0)
    return SimpleNamespace(per_fire=cost, idle=cost, found=found, loaded=[200] * number)
"""


def checkout(directory: Path, **modules: str) -> Checkout:
    designs = directory / "benchmarks" / "designs"
    designs.mkdir(parents=True)
    for package in (designs.parent, designs):
        (package / "__init__.py").touch()
    (designs / "catalogue.py").write_text(CATALOGUE)
    for name, text in modules.items():
        (designs.parent / f"{name}.py").write_text(text)
    return Checkout(directory)


def burst(directory: Path, seconds: float) -> Checkout:
    log = str(directory.parent / "log")
    return checkout(directory, burst=BURST.format(log=log, name=directory.name, seconds=seconds))


def one(name: str, here: Checkout, there: Checkout) -> Sheet:
    (sheet,) = compare(name, SCALE, there, here)
    return sheet


def test_each_figure_is_shown_here_and_there_with_their_ratio(tmp_path: Path) -> None:
    sheet = one("burst", burst(tmp_path / "new", 1.5), burst(tmp_path / "old", 2))
    assert sheet.columns == ["", "figure", "here new", "there old", "here / there"]
    assert sheet.rows[0] == ["100 fires", "last start, s", "1.5", "2", "0.75"]
    assert sheet.notes == []


def test_the_checkouts_take_turns_and_the_one_that_begins_changes(tmp_path: Path) -> None:
    one("burst", burst(tmp_path / "new", 1), burst(tmp_path / "old", 1))
    assert (tmp_path / "log").read_text().split() == ["old", "new", "new", "old"]


def test_a_time_is_the_median_of_its_turns_and_a_count_the_worst() -> None:
    turns = [{"last start, s": seconds, "run twice": twice} for seconds, twice in ((1.0, 0), (9.0, 3), (2.0, 1))]
    assert summary(turns) == {"last start, s": 2.0, "run twice": 3}


def test_replicas_are_compared_by_their_growth_too(tmp_path: Path) -> None:
    new, old = (checkout(tmp_path / str(power), replicas=REPLICAS.format(power=power)) for power in (0.1, 0.6))
    rows = {row[1]: row for row in one("replicas", new, old).rows}
    assert rows["growth exponent, replicas"] == ["3 to 12", "growth exponent, replicas", "0.10", "0.60", ""]


@pytest.mark.parametrize("name", ["burst", "replicas"])
def test_a_checkout_of_another_time_is_told_in_one_line_with_the_reason(name: str, tmp_path: Path) -> None:
    sheet = one(name, burst(tmp_path / "new", 1), Checkout(tmp_path))
    assert sheet.rows == []
    assert sheet.notes == [f"{tmp_path.name} in {tmp_path} lacks what {name} needs: No module named 'benchmarks'"]
