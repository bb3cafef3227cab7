"""The page of `make prove` says what was broken, and says so only then."""

from dataclasses import replace
from typing import Any

import pytest

from tests.proof.page import Proof, html_page

SIMULATION: dict[str, Any] = {
    "histories": 120, "twice": 2, "different": [], "failed": {}, "counts": {"fault freeze": 30, "redis calls": 9},
    "statements": [500, 400], "calls": [10, 12], "fires": 1234, "rows": 1300, "virtual_seconds": 7200.0,
    "worst_takeover": 5.4, "worst_takeover_any": 9.9, "worst_lateness": 0.2, "cpu_seconds": 60.0,
}  # fmt: skip
FAULTS: dict[str, Any] = {
    "seconds": 150, "fires": 5000, "calls": 4900, "faults": {"freeze": 3, "kill": 7}, "found": {}, "troubles": [],
    "violations": [], "worst_takeover": 0.0, "worst_takeover_any": 14.0, "worst_lateness": 0.31,
    "audit": {"clean": True, "expected": 5000, "accounted": 5000},
}  # fmt: skip
CLEAN = Proof(
    when="2026-11-18 05:00 UTC", version="0.2.0", machine="2 cores", seed=7, minutes=5.0, simulation=SIMULATION,
    faults=FAULTS,
)  # fmt: skip


def test_a_clean_proof_says_so_with_its_figures() -> None:
    page = html_page(CLEAN)
    assert "No promise was broken." in page
    assert "6,234 fires under 40 faults" in page
    assert "2.0 virtual hours" in page
    assert "none happened" in page  # of a takeover that has no figure
    assert "make simulate SEED=7 RUNS=120" in page


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"simulation": {**SIMULATION, "failed": {"9": ["called twice: s1 attempt 1"]}}}, "called twice (1)"),
        ({"faults": {**FAULTS, "found": {"unaccounted": 3}}}, "unaccounted (3)"),
        ({"faults": {**FAULTS, "troubles": ["replica-1 did not stop within 90 s"]}}, "the run as a whole (1)"),
        ({"simulation": {**SIMULATION, "different": [200]}}, "a seed gave two histories (1)"),
        ({"faults": {**FAULTS, "audit": {"clean": False}}}, "Broken: the audit."),
    ],
)
def test_whatever_was_broken_is_in_the_verdict(broken: dict[str, Any], said: str) -> None:
    proof = replace(CLEAN, **broken)
    assert not proof.is_clean
    page = html_page(proof)
    assert said in page
    assert "No promise was broken." not in page


def test_a_broken_promise_is_counted_in_its_row() -> None:
    page = html_page(replace(CLEAN, faults={**FAULTS, "found": {"called twice": 2, "two rows": 1}}))
    row = page[page.index("One execution per fire") :]
    assert row[: row.index("</tr>")].endswith('<td class="number">3</td>')
