"""What the commands share: tables, pages of a list, the facts of one thing, questions before a deletion."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Column, Table

from services.cli.output import console, print_json
from services.errors import InvalidInput, Problem

PageSize = Annotated[int, typer.Option(help="Rows per page.")]
Cursor = Annotated[str | None, typer.Option(help="Continue after the previous page.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def plain_table(*columns: str | Column) -> Table:
    """Without lines: rows can be selected and pasted."""
    return Table(*columns, header_style="bold", box=None, pad_edge=False)


def print_page(
    items: Sequence[Any], next_cursor: str | None, as_json: bool, table: Callable[[], RenderableType], none: str
) -> None:
    if as_json:
        print_json({"items": items, "next_cursor": next_cursor})
        return
    console().print(table() if items else none)
    if next_cursor:
        console().print(f"next page: --cursor {next_cursor}")


def print_facts(facts: Mapping[str, str | None]) -> None:
    """One line per fact; None: not known, no line."""
    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value is not None:
            table.add_row(name, value)
    console().print(table)


def print_changes(noun: str, lines: Sequence[str]) -> None:
    """What an edit changed: `max_running: 2 -> 4`."""
    for line in lines or [f"nothing changed: the {noun} already has these values"]:
        console().print(line)


def require_changes(given: Mapping[str, Any], what: str = "field") -> None:
    if not given:
        raise InvalidInput(Problem("edit", f"give at least one {what} to change; see --help"))


def confirm(question: str, yes: bool) -> None:
    """Ends the command unless the answer is yes."""
    if not yes:
        typer.confirm(question, abort=True, err=True)


def print_deleted(name: str, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        console().print(f"deleted {name}")
