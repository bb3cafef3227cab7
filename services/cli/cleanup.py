"""`manage.py cleanup`: delete old history now; replicas also do it by themselves."""

from collections.abc import Callable
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from config import get_settings
from database.connection import get_db_connection
from services.cli.output import AsJson, console, error_console, print_json
from services.cli.tables import Yes, confirm
from services.job_history import get_job_history
from services.scanning.retention import ScanRetention

Numbers = dict[str, int]


def cleanup(
    days: Annotated[
        int | None, typer.Option(help="Delete history older than this many days; default: HISTORY_RETENTION_DAYS.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count, delete nothing.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete old history: finished executions, schedule changes and cookie scans.

    Running replicas are not disturbed. The newest scan of each domain and engine stays, for comparison.

    Examples:

      manage.py cleanup --dry-run

      manage.py cleanup --days 30 --yes
    """
    age = get_settings().history_retention_days if days is None else days
    found = _count(age)
    old = f"{_in_words(found)} older than {age} days"
    if dry_run or not any(found.values()):
        _print(as_json, {"days": age, "dry_run": dry_run, **found}, f"{old}; nothing was deleted")
        return
    confirm(f"Delete {old}?", yes)
    deleted = _delete(age, found)
    _print(as_json, {"days": age, "dry_run": False, **deleted}, f"deleted {_in_words(deleted)}")


def _count(days: int) -> Numbers:
    history = get_job_history()
    return {
        "executions": history.count_old_executions(days),
        "changes": history.count_old_changes(days),
        "scans": ScanRetention(get_db_connection()).count_old(days),
    }


def _delete(days: int, found: Numbers) -> Numbers:
    history = get_job_history()
    deleting: dict[str, Callable[..., int]] = {
        "executions": history.cleanup_old_executions,
        "changes": history.cleanup_old_changes,
        "scans": ScanRetention(get_db_connection()).delete_old,
    }
    return {what: _with_bar(what, found[what], delete, days) for what, delete in deleting.items()}


def _in_words(numbers: Numbers) -> str:
    return f"{numbers['executions']} executions, {numbers['changes']} schedule changes and {numbers['scans']} scans"


def _with_bar(what: str, total: int, delete: Callable[..., int], days: int) -> int:
    columns = (TextColumn(f"deleting {what}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=error_console(), transient=True) as bar:
        task = bar.add_task("", total=total)
        return delete(days=days, on_progress=lambda done: bar.update(task, completed=done))


def _print(as_json: bool, numbers: Numbers, words: str) -> None:
    if as_json:
        print_json(numbers)
    else:
        console().print(words)
