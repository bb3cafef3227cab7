"""The promises as data stay true: their tests exist, and no finding of the checker is nobody's."""

import ast
import re
from pathlib import Path

import pytest

from config import PROJECT_ROOT
from tests.proof.guarantees import page
from tests.proof.mutants.table import MUTANTS
from tests.proof.promises import PROMISES, Promise, promise_of

CHECKERS = [PROJECT_ROOT / "tests" / "proof" / name for name in ("checker.py", "queue_checker.py")]
CHECKER = "\n".join(path.read_text() for path in CHECKERS)
FINDINGS = sorted(set(re.findall(r'(?:_about\([^"]*|Violation\()"([a-z][^"]+)"', CHECKER)))


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.number)
def test_its_tests_exist(promise: Promise) -> None:
    for node in promise.tests:
        path, _, name = node.partition("::")
        tree = ast.parse(Path(PROJECT_ROOT, path).read_text())
        assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}, node


def test_every_finding_of_the_checker_breaks_one_promise() -> None:
    assert len(FINDINGS) > 15
    assert [kind for kind in FINDINGS if promise_of(kind) is None] == []


def test_every_finding_of_a_promise_is_one_of_the_checker() -> None:
    named = [kind for promise in PROMISES for kind in promise.findings]
    assert len(named) == len(set(named))
    assert [kind for kind in named if f'"{kind}"' not in CHECKER] == []


def test_readme_lists_the_same_promises() -> None:
    readme = (PROJECT_ROOT / "README.md").read_text()
    assert re.findall(r"\*\*(G\d)\*\* ([^|]+?) \|", readme) == [(each.number, each.title) for each in PROMISES]


def test_every_promise_has_a_mutant() -> None:
    assert {mutant.breaks for mutant in MUTANTS} == {promise.number for promise in PROMISES}


def test_the_page_of_guarantees_is_up_to_date() -> None:
    written = (PROJECT_ROOT / "docs" / "guarantees.md").read_text()
    assert written == page(), "run: python -m tests.proof.guarantees > docs/guarantees.md"
