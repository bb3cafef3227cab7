"""The table of mutants is in step with the code, a mutant's test is judged strictly, and the draw is what it says."""

import ast
import re
import shutil
from pathlib import Path

import pytest

from config import PROJECT_ROOT
from tests.proof.mutants.mutant import Edit, Mutant, Simulated, Unfit
from tests.proof.mutants.sampling import ACCEPTED, Reach, Sample, draw
from tests.proof.mutants.table import MUTANTS
from tests.proof.mutants.workshop import Outcome, Report, judged

PROMISES = {f"G{number}" for number in range(1, 10)}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_edit_of_a_mutant_applies_once_and_leaves_python(mutant: Mutant, tmp_path: Path) -> None:
    for path in {edit.path for edit in mutant.edits}:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT_ROOT / path, tmp_path / path)
    mutant.apply(tmp_path)
    for path in {edit.path for edit in mutant.edits}:
        changed = (tmp_path / path).read_text()
        ast.parse(changed)
        assert changed != (PROJECT_ROOT / path).read_text()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_catches_a_mutant_exists(mutant: Mutant) -> None:
    if isinstance(mutant.caught_by, Simulated):
        assert mutant.caught_by.histories > 0
        return
    path, _, name = mutant.caught_by.partition("::")
    assert re.search(rf"^def {name}\(", (PROJECT_ROOT / path).read_text(), re.MULTILINE)


def test_every_promise_has_mutants() -> None:
    assert {mutant.breaks for mutant in MUTANTS} == PROMISES


def test_each_mutant_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30


@pytest.mark.parametrize(("source", "times"), [("nothing", 0), ("old and old", 2)])
def test_an_edit_that_does_not_fit_names_its_mutant(source: str, times: int, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(source)
    mutant = Mutant("of_a_test", "G1", "Nothing.", (Edit("code.py", "old", "new"),), "tests/nothing.py::test_nothing")
    with pytest.raises(Unfit, match=f"mutant of_a_test: code.py has this text {times} times"):
        mutant.apply(tmp_path)
    assert (tmp_path / "code.py").read_text() == source


# --- how a run is judged ---

CASE = '<testsuites><testsuite><testcase file="tests/test_it.py" name="test_it[1]" time="0.5">{}</testcase>'
END = "</testsuite></testsuites>"


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ("", Outcome.GREEN),
        ('<failure message="AssertionError: assert 1 == 2" />', Outcome.RED),
        ('<failure message="assert 1 == 2" />', Outcome.RED),
        ('<failure message="sqlalchemy.exc.IntegrityError: (psycopg2.errors.UniqueViolation) twice" />', Outcome.RED),
        ('<failure message="ImportError: no such name" />', Outcome.BROKEN),
        ('<failure message="AttributeError: no such attribute" />', Outcome.BROKEN),
        ('<failure message="sqlalchemy.exc.X: (psycopg2.errors.SyntaxError) at or near" />', Outcome.BROKEN),
        ('<error message="failed on setup with AssertionError" />', Outcome.BROKEN),
        ('<skipped message="no browser" />', Outcome.BROKEN),
    ],
)
def test_a_test_that_could_not_run_has_caught_nothing(result: str, outcome: Outcome, tmp_path: Path) -> None:
    (tmp_path / "results.xml").write_text(CASE.format(result) + END)
    report: Report = judged(tmp_path / "results.xml")
    assert report.outcome is outcome
    assert report.seconds == {"tests/test_it.py::test_it": 0.5}


# --- the draw ---


def test_the_same_seed_draws_the_same() -> None:
    assert draw(20, 7) == draw(20, 7) != draw(20, 8)


def test_what_is_drawn_is_of_every_kind_and_leaves_python() -> None:
    samples = draw(300, 1)
    for sample in samples:
        source = (PROJECT_ROOT / sample.path).read_bytes()
        changed = source[: sample.start] + sample.new.encode() + source[sample.end :]
        ast.parse(changed)
        assert changed != source
        assert sample.first <= sample.line <= sample.last, sample
    assert {sample.kind for sample in samples} == {
        "SQL", "and/or", "arithmetic", "comparison", "condition negated", "constant", "not removed",
        "statement removed",
    }  # fmt: skip


def test_what_only_tells_is_not_drawn() -> None:
    for sample in draw(10_000, 1):
        lines = (PROJECT_ROOT / sample.path).read_text().splitlines()
        assert not re.match(r"\s*(logger|metrics)\.", lines[sample.first - 1]), sample


def test_what_is_accepted_as_a_survivor_can_still_be_drawn() -> None:
    assert ACCEPTED.keys() <= {sample.key for sample in draw(10_000, 1)}


def test_no_signal_is_sent_to_others_than_before() -> None:
    for sample in draw(10_000, 1):
        line = (PROJECT_ROOT / sample.path).read_text().splitlines()[sample.line - 1]
        assert "os.kill" not in line or sample.kind == "statement removed", sample


def test_a_statement_in_sql_is_reached_by_those_who_reach_its_readers() -> None:
    """START is sent by the store; a number is a part of another statement first."""
    path = "services/ledger/claims.py"
    lines = (PROJECT_ROOT / path).read_text().splitlines()
    reach = Reach(
        {
            path: {
                number: [word]
                for word in ("sql.START", "sql.FORMER_TIMINGS", "sql.FINISH")
                for number, line in enumerate(lines, start=1)
                if word in line
            }
        },
        {"sql.START": 1.0, "sql.FORMER_TIMINGS": 2.0, "sql.FINISH": 3.0},
    )

    def of(name: str) -> Sample:
        return Sample("services/ledger/claims_sql.py", 1, "SQL", 0, 1, "", 1, 1, name)

    assert reach.tests_of(of("START")) == ["sql.START"]
    assert reach.tests_of(of("CHANGES_LOOKED_AT")) == ["sql.FORMER_TIMINGS"]
