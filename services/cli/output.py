"""How commands speak: tables for people, JSON for programs, one line per error with the way out.

Every command loads this module, `--help` too: what knows the database is imported where it is used.
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
from services.wording.durations import whole_units
from services.wording.visible import visible

if TYPE_CHECKING:
    from sqlalchemy.exc import DBAPIError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

INVALID_INPUT, FAILED, INTERRUPTED = 2, 1, 130
_NOT_ASCII = re.compile(r"[^\x20-\x7e\n]")
PIPE_WIDTH = 180  # a table in a file or a pipe must not lose text to a terminal's 80 columns


def actor() -> str:
    """Whom the audit trail names. Asked by commands that write, and these need a schema that fits."""
    from database.connection import get_db_connection
    from database.schema import require_schema
    from services.schedule_repository import user_name

    require_schema(get_db_connection())
    return f"cli:{user_name()}"


class _Terminal(Console):
    """Errors quote strangers, who must not recolour a terminal, rename its window or turn text around."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str("\n".join(map(visible, text.split("\n"))), **how)


def console() -> Console:
    """A new one each time: sys.stdout may be another one by now. No markup: users' text may contain brackets."""
    interactive = sys.stdout.isatty()
    return _Terminal(
        highlight=False, markup=False, soft_wrap=not interactive, width=None if interactive else PIPE_WIDTH
    )


def id_column(width: int = 8) -> Column:
    """In a narrow terminal anything else may be cut: this is what other commands are given."""
    return Column("id", no_wrap=True, min_width=width)


def error_console() -> Console:
    return _Terminal(stderr=True, highlight=False, markup=False, soft_wrap=True)


def print_note(text: str) -> None:
    """What somebody should know, beside the output that programs read."""
    error_console().print(f"note: {text}", style="yellow")


class ClearErrors(TyperGroup):
    """Turns our own errors into lines on stderr and an exit code: 2 for bad input, 1 for everything else.

    Its help shows a switch without a type: `--json`, not `--json <bool>`, which reads as if a value were wanted.
    """

    def get_params(self, ctx: Any) -> Any:
        return without_types(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            without_types(command.get_params(ctx))
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except InvalidInput as error:
            for problem in error.problems:
                error_console().print(Text(f"{problem.field}: ", style="red bold") + Text(problem.reason))
            raise typer.Exit(INVALID_INPUT) from None
        except SchedulerError as error:
            error_console().print(Text(str(error), style="red"))
            raise typer.Exit(FAILED) from None
        except _database_errors() as error:
            reason = _reason(error)
            if reason is None:
                raise
            error_console().print(Text(reason, style="red"))
            raise typer.Exit(FAILED) from None


def _database_errors() -> "tuple[type[DBAPIError], ...]":
    """None of them can have been raised while SQLAlchemy is not loaded."""
    loaded = sys.modules.get("sqlalchemy.exc")
    return () if loaded is None else (loaded.DBAPIError,)


def _reason(error: "DBAPIError") -> str | None:
    from database.connection import get_db_connection
    from database.schema import schema_problem
    from services.wording.refusals import OLD_SCHEMA, refusal

    reason = refusal(error)
    return (schema_problem(get_db_connection()) or reason) if reason == OLD_SCHEMA else reason


class ClearHelp(TyperCommand):
    """The same for a program of one command."""

    def get_params(self, ctx: Any) -> Any:
        return without_types(super().get_params(ctx))


def without_types(parameters: Any) -> Any:
    """The same parameters; Typer prints `<bool>` behind every switch that has no other word for its value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


def print_json(value: Any) -> None:
    typer.echo(json_text(value, indent=2))


def json_text(value: Any, indent: int | None = None) -> str:
    """With every letter as it is, and as an escape what a terminal would obey or nobody can see."""
    text = json.dumps(value, default=plain, indent=indent, ensure_ascii=False)
    return _NOT_ASCII.sub(lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text)


def plain(value: Any) -> Any:
    """JSON for what json does not know."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID | StrEnum):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def moment(instant: datetime | None, timezone: str = "UTC") -> str:
    """An instant as people of that zone read it."""
    if instant is None:
        return "-"
    return instant.astimezone(ZoneInfo(timezone)).strftime("%Y-%m-%d %H:%M:%S %Z")


def until(instant: datetime, now: datetime | None = None) -> str:
    """`in 3 h 20 min`, or `due`."""
    seconds = int((instant - (now or datetime.now(UTC))).total_seconds())
    return f"in {whole_units(seconds)}" if seconds > 0 else "due"
