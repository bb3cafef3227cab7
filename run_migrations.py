"""Upgrade the database to the newest schema, once, under a Postgres advisory lock.

The whole upgrade is one transaction: it is applied entirely or not at all. A second process that starts in the
meantime waits for it and finds nothing to do. It never waits long for a table: replicas would wait behind it. Indexes
of tables in use are built after it, without locking out writers.
"""

import io
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from alembic.util.exc import CommandError
from rich.console import Console
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from database.connection import DatabaseConnection, get_db_connection
from database.late_indexes import build_indexes
from database.schema import schema_problem
from database.sqlstates import LOCK_TIMEOUT, sqlstate
from services.cli.output import ClearHelp, console, error_console
from services.errors import ConfigurationError, SchedulerError
from services.schedules.adoption import after_adoption, before_adoption

logger = logging.getLogger(__name__)

# Any fixed number that no other program uses in the same database: "sched" in ASCII.
LOCK_KEY = 0x7363686564
LOCK_WAIT_SECONDS = 2  # for a table: meanwhile the replicas wait behind us
PAUSE_SECONDS = 3.0
PATIENCE_SECONDS = 300.0
SCRIPTS = Path(__file__).resolve().parent / "migrations"


@dataclass(frozen=True, slots=True)
class SchemaState:
    current: str | None
    newest: str  # of this program
    pending: list[Script]
    is_newer: bool = False  # newer than this program, which still works with it

    @property
    def is_current(self) -> bool:
        return not self.pending


@dataclass(slots=True)
class _Applied:
    """Collects the steps that Alembic reports."""

    lines: list[str] = field(default_factory=list)

    def note(self, *, step: Any, **_: Any) -> None:
        verb = "applied" if step.is_upgrade else "reverted"
        script = step.up_revision
        self.lines.append(f"{verb} {script.revision}: {script.doc}")


def upgrade(db: DatabaseConnection, to: str = "head") -> list[str]:
    """Apply the missing revisions up to `to`; returns a line for each, and for the rows that were adopted."""
    if schema_state(db).is_newer:
        return []

    def once(connection: Connection) -> list[str]:
        applied, adopted = _Applied(), before_adoption(connection)
        command.upgrade(_config(connection=connection, on_version_apply=applied.note), to)
        if adopted is not None and to == "head":
            applied.lines += after_adoption(connection, adopted)
        return applied.lines

    return _patiently(db, once) + build_indexes(db, schema_state(db).current or "", LOCK_KEY + 1)


def downgrade(db: DatabaseConnection, to: str) -> list[str]:
    if (state := schema_state(db)).is_newer:
        raise ConfigurationError(
            f"the database schema is at revision {state.current}, which this program does not know (its newest is "
            f"{state.newest}); only a program that contains this revision can revert it"
        )

    def once(connection: Connection) -> list[str]:
        applied = _Applied()
        command.downgrade(_config(connection=connection, on_version_apply=applied.note), to)
        return applied.lines

    return _patiently(db, once)


def schema_state(db: DatabaseConnection) -> SchemaState:
    scripts = ScriptDirectory(str(SCRIPTS))
    newest = scripts.get_current_head()
    if newest is None:
        raise CommandError(f"no migrations found in {SCRIPTS}")
    with db.transaction() as connection:
        heads = MigrationContext.configure(connection).get_current_heads()
    current = ", ".join(heads) or None
    known = {script.revision for script in scripts.walk_revisions()}
    if current is not None and current not in known:
        if (problem := schema_problem(db)) is not None:
            raise ConfigurationError(problem)
        return SchemaState(current, newest, [], is_newer=True)
    pending = [] if current == newest else list(scripts.iterate_revisions(newest, current or "base"))
    return SchemaState(current, newest, pending[::-1])


def upgrade_sql(to: str = "head") -> str:
    """The SQL of a complete upgrade of an empty database, for operators who apply it themselves."""
    output = io.StringIO()
    command.upgrade(_config(output=output), to, sql=True)
    return output.getvalue()


def downgrade_sql(db: DatabaseConnection, to: str) -> str:
    """The SQL that reverts this database to `to`."""
    output = io.StringIO()
    command.downgrade(_config(output=output), f"{schema_state(db).current}:{to}", sql=True)
    return output.getvalue()


def _patiently(db: DatabaseConnection, once: Callable[[Connection], list[str]]) -> list[str]:
    """The transaction, again and again while another session holds a table of ours.

    Whoever waits for a table makes everybody behind it wait, so it never waits long: a dump would stop the replicas.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with _locked(db) as connection:
                return once(connection)
        except DBAPIError as error:
            if sqlstate(error) != LOCK_TIMEOUT:
                raise
            if time.monotonic() > deadline:
                raise SchedulerError(
                    f"another session has held a table of the scheduler for {PATIENCE_SECONDS:.0f} s (a dump, an open "
                    "transaction: see pg_stat_activity); nothing was changed; run it again"
                ) from None
            logger.warning("another session holds a table of the scheduler: trying again")
            time.sleep(PAUSE_SECONDS)


@contextmanager
def _locked(db: DatabaseConnection) -> Iterator[Connection]:
    """One transaction that holds the lock and releases it at its end, also behind a transaction pooler."""
    with db.transaction() as connection:
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
        connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_WAIT_SECONDS}s'"))
        yield connection


def _config(**attributes: Any) -> Config:
    config = Config(output_buffer=attributes.get("output"), attributes=attributes)
    config.set_main_option("script_location", str(SCRIPTS))
    return config


def main(
    status: Annotated[
        bool, typer.Option("--status", help="Show applied and missing revisions without changing anything.")
    ] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL instead of running it.")] = False,
    to: Annotated[str, typer.Option("--to", help="Upgrade to this revision.", metavar="REVISION")] = "head",
    down: Annotated[
        str | None, typer.Option("--down", help="Downgrade to this revision, or by steps: -1.", metavar="REVISION")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a downgrade.")] = False,
) -> None:
    """Upgrade the database to the newest schema. Safe to run at every start and from several processes at once.

    Examples:

      python run_migrations.py             apply the missing revisions

      python run_migrations.py --status    check first

      python run_migrations.py --down -1   revert the last revision (asks first; --sql prints the SQL)
    """
    out = console()
    try:
        if sql:
            typer.echo(upgrade_sql(to) if down is None else downgrade_sql(get_db_connection(), down))
            return
        db = get_db_connection()
        if status:
            _print_status(out, schema_state(db))
        elif down is not None:
            if not yes:
                typer.confirm(
                    f"Downgrade {db.where} to {down}? Data that the older schema has no column for is lost.",
                    abort=True,
                )
            _print_applied(out, downgrade(db, down), schema_state(db))
        else:
            _print_applied(out, upgrade(db, to), schema_state(db))
    except (SchedulerError, CommandError) as error:
        _print_error(str(error))
        raise typer.Exit(1) from None
    except DBAPIError as error:
        _print_error(f"nothing was changed: {error.orig}")
        raise typer.Exit(1) from None


def _print_error(message: str) -> None:
    error_console().print(message, style="red")


def _print_applied(out: Console, lines: list[str], state: SchemaState) -> None:
    for line in lines:
        out.print(line)
    out.print(f"the database schema is at revision {state.current}" + ("" if lines else ", nothing to do"))


def _print_status(out: Console, state: SchemaState) -> None:
    out.print(f"applied: {state.current or 'none'}   newest: {state.newest}")
    if state.is_newer:
        out.print("the database schema is newer than this program, but compatible; finish the upgrade")
    for script in state.pending:
        out.print(f"missing  {script.revision}: {script.doc}")
    if not state.is_current:
        out.print("run: python run_migrations.py")
        raise typer.Exit(1)


app = typer.Typer(add_completion=False)
app.command(cls=ClearHelp)(main)

if __name__ == "__main__":
    app()
