"""`manage.py sync`: sync schedules from the external API now, preview a sync, or show the last one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from config import get_settings
from database.connection import get_db_connection
from services.api_sync.edits import LocalEdits
from services.api_sync.report import SyncReport
from services.api_sync.state import SyncState
from services.api_sync.sync import ApiSync, open_api_sync
from services.api_sync.upsert import API_ACTOR
from services.cli.output import FAILED, INTERRUPTED, AsJson, actor, error_console, print_json
from services.cli.sync_view import print_diff, print_result, print_status, status_as_json
from services.errors import InvalidInput, Problem
from services.jobs.users import load_users_jobs


def sync(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change; write nothing.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Show the result of the last sync; call nothing.")] = False,
    allow_removals: Annotated[
        bool,
        typer.Option("--allow-removals", help="This time, disable every schedule that vanished, however many."),
    ] = False,
    local_edits: Annotated[
        LocalEdits | None,
        typer.Option(help="This time, keep or overwrite local edits; default: API_SYNC_LOCAL_EDITS."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create, update and disable schedules to match the external API (API_URL).

    A bad item is skipped with its reason. A schedule that vanished from the API is disabled, never deleted, and only if
    the response is complete and not too many are missing. Replicas do the same every API_SYNC_INTERVAL seconds.

    Exit code 0 when the whole response was applied (skipped items are listed), 1 without a usable response or when
    removals were refused; with --status the same for the last sync.

    Examples:

      manage.py sync --dry-run

      manage.py sync

      manage.py sync --status --json

      manage.py sync --allow-removals
    """
    if status:
        _status(dry_run, allow_removals, as_json)
        return
    with _api_sync(allow_removals, local_edits) as api, _progress() as on_progress:
        report = _interruptible(lambda: api.preview(on_progress) if dry_run else api.run(on_progress))
    if as_json:
        print_json({"dry_run": dry_run, **report.as_json()})
    elif dry_run:
        print_diff(report)
    else:
        print_result(report)
    if not report.outcome.is_good:
        raise typer.Exit(FAILED)


def _status(dry_run: bool, allow_removals: bool, as_json: bool) -> None:
    if dry_run or allow_removals:
        raise InvalidInput(Problem("--status", "cannot be combined with other options: it only shows the last sync"))
    state = SyncState(get_db_connection()).read()
    if as_json:
        print_json(status_as_json(state))
    else:
        print_status(state)
    if state.last is None or not state.last.outcome.is_good:
        raise typer.Exit(FAILED)


@contextmanager
def _api_sync(allow_removals: bool, local_edits: LocalEdits | None) -> Iterator[ApiSync]:
    settings = get_settings()
    if settings.api_url is None:
        raise InvalidInput(Problem("API_URL", "is not set: there is nothing to sync from"))
    load_users_jobs(settings)
    name = f"{API_ACTOR} ({actor()})"
    with open_api_sync(
        settings, get_db_connection(), local_edits=local_edits, allow_removals=allow_removals, actor=name
    ) as api:
        yield api


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, in a terminal only: first while waiting for the API, then item by item."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    out = error_console()
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task("calling the API", total=None)
        yield lambda done, total: bar.update(task, description="comparing", completed=done, total=total)


def _interruptible(work: Callable[[], SyncReport]) -> SyncReport:
    try:
        return work()
    except KeyboardInterrupt:
        error_console().print("interrupted; changes so far are kept, and the next sync continues")
        raise typer.Exit(INTERRUPTED) from None
