"""README.md and docs/*.md for tests: their code blocks, commands and links."""

import re
import shlex
from itertools import takewhile
from pathlib import Path

from config import PROJECT_ROOT

PAGES = [PROJECT_ROOT / "README.md", *sorted((PROJECT_ROOT / "docs").glob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(PROJECT_ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def shell_commands(block: str) -> list[list[str]]:
    """The words of each command. A backslash or an open quotation mark continues it on the next line."""
    commands: list[list[str]] = []
    begun = ""
    for line in block.replace("\\\n", " ").splitlines():
        begun += f"{line}\n"
        try:
            words = shlex.split(begun, comments=True)
        except ValueError:  # no closing quotation mark yet
            continue
        commands += [words] if words else []
        begun = ""
    assert not begun, begun
    return commands


def manage_commands(block: str) -> list[list[str]]:
    """The arguments of `python manage.py`, and of `enhanced-scheduler`, which is the same in an installation."""
    commands = shell_commands(block)
    ours = [command[2:] for command in commands if command[:2] == ["python", "manage.py"]]
    return ours + [_until_an_operator(command[1:]) for command in commands if command[:1] == ["enhanced-scheduler"]]


def _until_an_operator(words: list[str]) -> list[str]:
    return list(takewhile(lambda word: word not in ("&", "|", ">"), words))
