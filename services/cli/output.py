"""Output of the commands: tables for people, JSON for programs, one line per error with its remedy.

Every command loads this module, even `--help`, so whatever needs the database is imported where it is used.
"""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID
from zoneinfo import ZoneInfo

import typer
from rich.console import Console
from rich.table import Column
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from services.errors import InvalidInput, SchedulerError
from services.wording.commands import as_called_here
from services.wording.durations import whole_units
from services.wording.visible import visible

if TYPE_CHECKING:
    from sqlalchemy.exc import DBAPIError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

INVALID_INPUT, FAILED, INTERRUPTED = 2, 1, 130
_NOT_ASCII = re.compile(r"[^\x20-\x7e\n]")
PIPE_WIDTH = 180  # a table in a file or a pipe must not be cut at 80 columns


def actor() -> str:
    """The author in the audit trail. Only commands that write need it, so it also checks the schema's version."""
    from database.connection import get_db_connection
    from database.schema import require_schema
    from services.schedule_repository import user_name

    require_schema(get_db_connection())
    return f"cli:{user_name()}"


class _Terminal(Console):
    """Escapes control characters: errors quote foreign text, which must not recolour a terminal or reorder its text."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str("\n".join(map(visible, as_called_here(text).split("\n"))), **how)


def console() -> Console:
    """A new console per call, since sys.stdout may have changed. No markup: users' text may contain brackets."""
    interactive = sys.stdout.isatty()
    return _Terminal(
        highlight=False, markup=False, soft_wrap=not interactive, width=None if interactive else PIPE_WIDTH
    )


def id_column(width: int = 8) -> Column:
    """The id column is never cut in a narrow terminal: other commands take the id as an argument."""
    return Column("id", no_wrap=True, min_width=width)


def error_console() -> Console:
    return _Terminal(stderr=True, highlight=False, markup=False, soft_wrap=True)


def print_note(text: str) -> None:
    """A note for people, on stderr: stdout is read by programs."""
    error_console().print(f"note: {text}", style="yellow")


class ClearErrors(TyperGroup):
    """Prints our own errors as lines on stderr; the exit code is 2 for bad input and 1 for everything else.

    Help shows a flag without a type: `--json` rather than `--json <bool>`, which would suggest a value.
    """

    def get_params(self, ctx: Any) -> Any:
        return as_shown(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            as_shown(command.get_params(ctx))
            command.help = as_called_here(command.help or "") or None
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except InvalidInput as error:
            for problem in error.problems:
                told = as_called_here(problem.reason)
                error_console().print(Text(f"{problem.field}: ", style="red bold") + Text(told))
            raise typer.Exit(INVALID_INPUT) from None
        except SchedulerError as error:
            error_console().print(Text(as_called_here(str(error)), style="red"))
            raise typer.Exit(FAILED) from None
        except _database_errors() as error:
            reason = _reason(error)
            if reason is None:
                raise
            error_console().print(Text(as_called_here(reason), style="red"))
            raise typer.Exit(FAILED) from None


def _database_errors() -> "tuple[type[DBAPIError], ...]":
    """Empty while SQLAlchemy is not loaded: nothing can have raised its errors then."""
    loaded = sys.modules.get("sqlalchemy.exc")
    return () if loaded is None else (loaded.DBAPIError,)


def _reason(error: "DBAPIError") -> str | None:
    from database.connection import get_db_connection
    from database.schema import schema_problem
    from services.wording.refusals import OLD_SCHEMA, refusal

    reason = refusal(error)
    return (schema_problem(get_db_connection()) or reason) if reason == OLD_SCHEMA else reason


class ClearHelp(TyperCommand):
    """The help of `ClearErrors` for a program with a single command."""

    def get_params(self, ctx: Any) -> Any:
        return as_shown(super().get_params(ctx))


def as_shown(parameters: Any) -> Any:
    """The same parameters, with the calls that work here, and without the `<bool>` that Typer prints after a flag."""
    for parameter in parameters:
        if said := getattr(parameter, "help", None):
            parameter.help = as_called_here(said)
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


def print_json(value: Any) -> None:
    typer.echo(json_text(value, indent=2))


def json_text(value: Any, indent: int | None = None) -> str:
    """Readable letters stay as they are; control and invisible characters become escapes."""
    text = json.dumps(value, default=plain, indent=indent, ensure_ascii=False)
    return _NOT_ASCII.sub(lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text)


def plain(value: Any) -> Any:
    """The `default` of json.dumps: instants, ids, enums, dataclasses, mappings."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID | StrEnum):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def disabled_state(note: str | None) -> str:
    """`disabled`, with the note of the operator who disabled it."""
    return f"disabled: {note}" if note else "disabled"


def moment(instant: datetime | None, timezone: str = "UTC") -> str:
    """An instant in the local time of that zone."""
    if instant is None:
        return "-"
    return instant.astimezone(ZoneInfo(timezone)).strftime("%Y-%m-%d %H:%M:%S %Z")


def until(instant: datetime, now: datetime | None = None) -> str:
    """`in 3 h 20 min`, or `due`."""
    seconds = int((instant - (now or datetime.now(UTC))).total_seconds())
    return f"in {whole_units(seconds)}" if seconds > 0 else "due"
