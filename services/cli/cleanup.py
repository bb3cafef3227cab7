"""`manage.py cleanup`: delete old history by hand, as the replicas do by themselves."""

from collections.abc import Callable
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from config import get_settings
from services.cli.output import AsJson, console, error_console, print_json
from services.job_history import get_job_history


def cleanup(
    days: Annotated[int | None, typer.Option(help="What is older goes; HISTORY_RETENTION_DAYS when absent.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete executions that ended, and schedule changes, older than some days. Running replicas do not notice.

    Examples:

      manage.py cleanup --dry-run

      manage.py cleanup --days 30 --yes
    """
    history = get_job_history()
    age = get_settings().history_retention_days if days is None else days
    found = {"executions": history.count_old_executions(age), "changes": history.count_old_changes(age)}
    what = f"{found['executions']} executions and {found['changes']} schedule changes older than {age} days"
    if dry_run or not any(found.values()):
        _tell(as_json, {"days": age, "dry_run": dry_run, **found}, f"{what}; nothing was deleted")
        return
    if not yes:
        typer.confirm(f"Delete {what}?", abort=True, err=True)
    deleted = {
        "executions": _with_bar("executions", found["executions"], history.cleanup_old_executions, age),
        "changes": _with_bar("changes", found["changes"], history.cleanup_old_changes, age),
    }
    told = f"deleted {deleted['executions']} executions and {deleted['changes']} schedule changes"
    _tell(as_json, {"days": age, "dry_run": False, **deleted}, told)


def _with_bar(what: str, total: int, delete: Callable[..., int], days: int) -> int:
    columns = (TextColumn(f"deleting {what}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=error_console(), transient=True) as bar:
        task = bar.add_task("", total=total)
        return delete(days=days, on_progress=lambda done: bar.update(task, completed=done))


def _tell(as_json: bool, numbers: dict[str, int], words: str) -> None:
    if as_json:
        print_json(numbers)
    else:
        console().print(words)
