"""`manage.py cleanup`: delete old history by hand, as the replicas do by themselves."""

from collections.abc import Callable
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from config import get_settings
from database.connection import get_db_connection
from services.cli.output import AsJson, console, error_console, print_json
from services.job_history import get_job_history
from services.scanning.retention import ScanRetention

Numbers = dict[str, int]


def cleanup(
    days: Annotated[int | None, typer.Option(help="What is older goes; HISTORY_RETENTION_DAYS when absent.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete executions that ended, schedule changes and cookie scans older than some days.

    Running replicas do not notice. The newest scan of each domain and engine stays: the next one is compared with it.

    Examples:

      manage.py cleanup --dry-run

      manage.py cleanup --days 30 --yes
    """
    age = get_settings().history_retention_days if days is None else days
    found = _count(age)
    what = f"{_in_words(found)} older than {age} days"
    if dry_run or not any(found.values()):
        _tell(as_json, {"days": age, "dry_run": dry_run, **found}, f"{what}; nothing was deleted")
        return
    if not yes:
        typer.confirm(f"Delete {what}?", abort=True, err=True)
    deleted = _delete(age, found)
    _tell(as_json, {"days": age, "dry_run": False, **deleted}, f"deleted {_in_words(deleted)}")


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


def _tell(as_json: bool, numbers: Numbers, words: str) -> None:
    if as_json:
        print_json(numbers)
    else:
        console().print(words)
