"""The README's own examples, run as they stand there."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import manage
from config import PROJECT_ROOT
from services.schedule_repository import ScheduleRepository

README = (PROJECT_ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_the_tour_works(own_process: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tour,) = [block for block in blocks("bash") if "schedule add" in block]
    monkeypatch.chdir(tmp_path)
    commands = [shlex.split(line, comments=True) for line in tour.replace("\\\n", " ").splitlines()]
    ours = [command[2:] for command in commands if command[:2] == ["python", "manage.py"]]
    assert len(ours) == 12
    for arguments in ours:
        result = CliRunner().invoke(manage.app, arguments)
        assert result.exit_code == 0, (arguments, result.output)


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_a_python_example_works(own_process: dict[str, str], repository: ScheduleRepository, number: int) -> None:
    exec(compile(blocks("python")[number], "README.md", "exec"), {"__name__": "readme"})
    assert repository.list_schedules().items == []


def test_the_refusal_reads_as_shown(own_process: dict[str, str]) -> None:
    ((command, *lines),) = [block.splitlines() for block in blocks("console")]
    result = CliRunner().invoke(manage.app, shlex.split(command)[3:])
    assert (result.exit_code, result.stderr.splitlines()) == (2, lines)


def test_it_leads_to_every_other_document_and_each_of_its_links_to_a_file() -> None:
    links = set(re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", README))
    documents = {f"docs/{path.name}" for path in (PROJECT_ROOT / "docs").glob("*.md")}
    assert {"docs/jobs.md", "docs/operations.md", "docs/security.md"} <= documents
    assert sorted(documents - links) == []
    assert [link for link in sorted(links) if not (PROJECT_ROOT / link).exists()] == []


@pytest.mark.parametrize("about", ["Docker", "Grafana", "alerts", "backup", "when not to use"])
def test_it_says_what_somebody_who_runs_it_looks_for(about: str) -> None:
    assert about.lower() in README.lower()
