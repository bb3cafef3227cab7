"""What `make bench` says while it measures."""

import re

import pytest

from benchmarks.progress import doing, scenario


def test_a_scenario_says_what_it_is_each_of_its_steps_and_how_long_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    with scenario("burst", 2, 7, "10,000 fires at once"):
        doing("round 1 of 3: our replicas")
        doing("round 1 of 3: the naive design")
    doing("nothing is measured now")
    said = capsys.readouterr()
    assert said.out == "", "what was measured can be piped elsewhere"
    *steps, end = said.err.splitlines()
    assert steps == [
        "", "[2/7] burst: 10,000 fires at once", "  round 1 of 3: our replicas", "  round 1 of 3: the naive design",
    ]  # fmt: skip
    assert re.fullmatch(r"burst: \d+ s", end)
