"""Habits of the house: one version, a changelog by versions, answers that name files, hooks and CI that call make."""

import re
import subprocess
import tomllib
from typing import Any

import pytest
import yaml

from config import PROJECT_ROOT, VERSION
from services import enhanced_scheduler
from services.web import app

ANSWERS = re.findall(
    r"^\| (.+\?) \| (.+) \|$", (PROJECT_ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE
)
CHANGELOG = (PROJECT_ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)[1:]
HOOKS = PROJECT_ROOT / ".pre-commit-config.yaml"
WORKFLOW = PROJECT_ROOT / ".github/workflows/ci.yml"


def test_the_version_is_that_of_the_package() -> None:
    package = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())
    assert "version" in package["project"]["dynamic"]
    assert package["tool"]["hatch"]["version"] == {"path": "config.py"}


@pytest.mark.parametrize("module", [enhanced_scheduler, app])
def test_no_program_has_a_version_of_its_own(module: Any) -> None:
    assert module.VERSION is VERSION


def test_the_changelog_begins_with_this_version_and_dates_every_one() -> None:
    heads = [re.match(r"(\d+\.\d+\.\d+) \((\d{4}-\d\d-\d\d)\)\n", section) for section in SECTIONS]
    assert all(heads)
    versions = [head[1] for head in heads if head]
    assert versions[0] == VERSION
    assert versions == sorted(versions, key=lambda version: [int(part) for part in version.split(".")], reverse=True)


def test_each_version_says_first_what_an_upgrade_needs() -> None:
    assert {re.findall(r"^### (.+)$", section, re.MULTILINE)[0] for section in SECTIONS} == {"Upgrade notes"}


def test_ten_questions_have_one_file_each_as_their_answer() -> None:
    assert len({question for question, _ in ANSWERS}) == 10
    assert len({answer for _, answer in ANSWERS}) == 10


@pytest.mark.parametrize("answer", [answer for _, answer in ANSWERS])
def test_the_file_that_answers_a_question_exists(answer: str) -> None:
    assert re.fullmatch(r"`[\w/.]+`", answer)
    assert (PROJECT_ROOT / answer.strip("`")).is_file()


def test_hooks_call_make_and_download_nothing() -> None:
    (repository,) = yaml.safe_load(HOOKS.read_text())["repos"]
    assert repository["repo"] == "local"
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}
    for hook in repository["hooks"]:
        program, target = hook["entry"].split()
        assert program == "make"
        subprocess.run(["make", "--dry-run", target], cwd=PROJECT_ROOT, capture_output=True, check=True)


def test_the_workflow_runs_what_people_run() -> None:
    (job,) = yaml.safe_load(WORKFLOW.read_text())["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    lines = (PROJECT_ROOT / ".ci/run").read_text().splitlines()
    assert [line for line in lines if line.startswith("make ")] == [
        "make check",
        "make test || .venv/bin/python .ci/again.py",
    ]


def test_hooks_and_workflow_name_no_host() -> None:
    assert not re.findall(r"\w+://|\w\.(?:io|com|org|net)\b", HOOKS.read_text() + WORKFLOW.read_text())
