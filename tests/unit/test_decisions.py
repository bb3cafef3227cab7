"""docs/decisions.md: the tests that it names exist, and every defect of the seeds has its line."""

import re

import pytest

from config import PROJECT_ROOT

DECISIONS = (PROJECT_ROOT / "docs/decisions.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(test_\w+)`", DECISIONS)))
DEFECTS = [*(f"001 #{number}" for number in range(1, 8)), "001 AP1", "001 AP2"]


def test_every_test_that_a_decision_names_exists() -> None:
    sources = (path.read_text(encoding="utf-8") for path in (PROJECT_ROOT / "tests").rglob("test_*.py"))
    defined = {name for source in sources for name in re.findall(r"^def (test_\w+)\(", source, re.MULTILINE)}
    assert NAMED
    assert [name for name in NAMED if name not in defined] == []


@pytest.mark.parametrize("defect", DEFECTS)
def test_every_numbered_defect_of_the_seeds_has_a_line_with_a_test(defect: str) -> None:
    lines = [line for line in DECISIONS.splitlines() if line.startswith("|") and defect in line.split("|")[1]]
    assert lines
    assert all("`test_" in line for line in lines)


def test_every_line_about_a_seed_says_what_holds_it() -> None:
    lines = [line.split("|") for line in DECISIONS.splitlines() if re.match(r"\| 00\d", line)]
    assert len(lines) >= 25
    assert [line[2] for line in lines if "`test_" not in line[4] and "`make bench" not in line[4]] == []


def test_the_index_names_every_room_and_every_decision_in_their_order() -> None:
    index, rooms = re.split(r"^(?=## )", DECISIONS, maxsplit=1, flags=re.MULTILINE)
    headings = re.findall(r"^###? (.+)$", rooms, re.MULTILINE)
    assert re.findall(r"\[(.+)\]\(#", index) == headings
