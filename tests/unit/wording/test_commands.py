"""Our texts name the programs of a checkout; in an installation they name its one command."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from config import PROJECT_ROOT
from enhanced_scheduler.application import PRIVATE
from services.cli.completion import BASH, _script
from services.wording import commands
from services.wording.commands import as_called_here

PROGRAMS = ("manage.py", "run_migrations.py", "services/enhanced_scheduler.py")
ROOMS = [path for path in (PROJECT_ROOT / "services").iterdir() if path.name not in ("cli", "wording", "__pycache__")]


@pytest.fixture
def installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "ROOT", PRIVATE)


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("run: python run_migrations.py", "run: enhanced-scheduler migrate"),
        ("start one: python services/enhanced_scheduler.py", "start one: enhanced-scheduler replica"),
        ("`manage.py jobs` or python manage.py doctor", "`enhanced-scheduler jobs` or enhanced-scheduler doctor"),
    ],
)
def test_a_text_names_what_can_be_called_where_it_is_read(
    text: str, there: str, request: pytest.FixtureRequest
) -> None:
    assert as_called_here(text) == text
    request.getfixturevalue("installation")
    assert as_called_here(text) == there


@pytest.mark.usefixtures("installation")
def test_the_script_for_the_tab_key_is_that_of_the_command() -> None:
    script = _script(BASH)
    assert "manage" not in script
    assert script.endswith("complete -o default -F _enhanced_scheduler enhanced-scheduler\n")
    assert "_ENHANCED_SCHEDULER_COMPLETE=complete_bash" in script


def test_outside_the_command_line_no_text_names_a_program_without_asking_how_it_is_called() -> None:
    """The command line asks for everything that it prints (services/cli/output.py)."""
    files = [file for room in ROOMS for file in ([room] if room.suffix == ".py" else room.rglob("*.py"))]
    found = [f"{file.name}:{line}: {text}" for file in files for line, text in unasked(file)]
    assert [line for line in found if not line.startswith("adoption.py:")] == [], "adoption: printed by the migrations"


def unasked(file: Path) -> Iterator[tuple[int, str]]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    asked = {
        part
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "as_called_here"
        for part in ast.walk(call)
    }
    documentation = {statement.value for statement in ast.walk(tree) if isinstance(statement, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str() as text) if node not in asked | documentation:
                if any(program in text for program in PROGRAMS):
                    yield node.lineno, text
