"""The examples of README.md and docs/*.md, run as they stand there, and what else these pages must hold to."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import manage
from config import PROJECT_ROOT
from services.schedule_repository import ScheduleRepository
from tests.support.documentation import PAGES, blocks, manage_commands, name_of

URL = "url: https://example.com"
README = PROJECT_ROOT / "README.md"
SCHEDULES = PROJECT_ROOT / "docs" / "schedules.md"
PYTHON_EXAMPLES = [(page, number) for page in PAGES for number in range(len(blocks(page, "python")))]
IN_A_SENTENCE = re.compile(r"`(?:(?:python )?manage\.py|enhanced-scheduler) ([^`]+)`")
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize(("page", "number_of_commands"), [(README, 6), (SCHEDULES, 12)], ids=["README", "schedules"])
def test_the_tour_works(
    own_process: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Path, number_of_commands: int
) -> None:
    (tour,) = [block for block in blocks(page, "bash") if "manage.py schedule add" in block]
    monkeypatch.chdir(tmp_path)
    ours = manage_commands(tour)
    assert len(ours) == number_of_commands
    for arguments in ours:
        result = CliRunner().invoke(manage.app, arguments)
        assert result.exit_code == 0, (arguments, result.output)


def test_the_commands_for_those_who_come_from_elsewhere_work(
    own_process: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PROJECT_ROOT / "docs" / "coming-from.md"
    monkeypatch.chdir(tmp_path)
    (schedules,) = blocks(page, "yaml")
    Path("schedules.yaml").write_text(schedules.replace("send_report", "http_request").replace("customer: anna", URL))
    commands = [command for block in blocks(page, "bash") for command in manage_commands(block)]
    assert [command[:2] for command in commands] == [["schedule", "fires"], ["schedule", "import"]]
    for arguments in commands:
        result = CliRunner().invoke(manage.app, arguments)
        assert result.exit_code == 0, (arguments, result.output)


@pytest.mark.parametrize(
    ("page", "number"), PYTHON_EXAMPLES, ids=[f"{page.stem}-{number}" for page, number in PYTHON_EXAMPLES]
)
def test_a_python_example_works(
    own_process: dict[str, str], repository: ScheduleRepository, page: Path, number: int
) -> None:
    exec(compile(blocks(page, "python")[number], page.name, "exec"), {"__name__": "documentation"})
    assert repository.list_schedules().items == []


def test_the_refusal_reads_as_shown(own_process: dict[str, str]) -> None:
    ((command, *lines),) = [block.splitlines() for block in blocks(README, "console")]
    result = CliRunner().invoke(manage.app, shlex.split(command)[3:])
    assert (result.exit_code, result.stderr.splitlines()) == (2, lines)


def documented_commands(page: Path) -> list[str]:
    """In blocks of code and in sentences."""
    in_sentences = [" ".join(text.split()) for text in IN_A_SENTENCE.findall(page.read_text())]
    return [
        *(shlex.join(command) for block in blocks(page, "bash") for command in manage_commands(block)),
        *in_sentences,
    ]


@pytest.mark.parametrize("text", sorted({text for page in PAGES for text in documented_commands(page)}))
def test_the_program_understands_every_documented_command(text: str) -> None:
    command: Any = typer.main.get_command(manage.app)
    context, words = typer.Context(command), shlex.split(text)
    while words and isinstance(command, typer.core.TyperGroup) and command.get_command(context, words[0]):
        _, command, words = command.resolve_command(context, words)
    assert words != shlex.split(text)
    if words or not isinstance(command, typer.core.TyperGroup):  # else a sentence names the group
        command.make_context(command.name, words)  # parses; calls nothing


def anchors(page: Path) -> set[str]:
    """The names that a reader's browser gives to the headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    dead = []
    for path, anchor in LINK.findall(page.read_text()):
        if path.startswith(("http://", "https://")):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(f"{path}#{anchor}" if anchor else path)
    assert dead == []


def test_every_page_is_found_from_the_readme() -> None:
    linked = {path for path, _ in LINK.findall(README.read_text())}
    assert [name_of(page) for page in PAGES if page != README and name_of(page) not in linked] == []


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len(README.read_text().splitlines()) <= 220
