"""What an import of schedules says about itself: one line per change, then the counts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from services.cli.output import actor, console, error_console, print_note
from services.jobs.credentials import credential_warnings
from services.schedule_repository import get_schedule_repository
from services.schedules.batch import Action, Saved
from services.schedules.summaries import BulkSummary

SHOWN = 20  # changes printed; the rest is only counted


def save_items(items: Iterator[dict[str, Any]], *, dry_run: bool, on_saved: Callable[[Saved], None]) -> BulkSummary:
    with progress("checking" if dry_run else "writing", None) as advance:
        return get_schedule_repository().save_schedules(
            (advance(item) for item in items), actor=actor(), dry_run=dry_run, on_saved=on_saved
        )


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[[Any], Any]]:
    """A progress bar on stderr, in a terminal only; the yielded function counts the items that pass through it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    out = error_console()
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task(what, total=total)

        def advance(item: Any) -> Any:
            bar.advance(task)
            return item

        yield advance


def counts(summary: BulkSummary) -> dict[str, int]:
    return {
        "created": summary.created,
        "updated": summary.updated,
        "unchanged": summary.unchanged,
        "refused": len(summary.refused),
    }


class ImportReport:
    """The report of an import: one line per change, up to a limit."""

    def __init__(self) -> None:
        self._shown: dict[int, Saved] = {}
        self.written = 0
        self._more = 0
        self._warnings: list[str] = []

    @property
    def shown(self) -> list[Saved]:
        return list(self._shown.values())

    def note_credentials(self, item: dict[str, Any]) -> dict[str, Any]:
        if len(self._warnings) < SHOWN and (found := credential_warnings(item.get("job_config"))):
            self._warnings += [f"{item.get('name') or item.get('domain')}: {warning}" for warning in found]
        return item

    def note(self, saved: Saved) -> None:
        if saved.action is Action.UNCHANGED:
            return
        if len(self._shown) < SHOWN or saved.action is Action.REFUSED:
            self._shown[saved.index] = saved
        else:
            self._more += 1

    def note_written(self, saved: Saved) -> None:
        if saved.action in (Action.CREATED, Action.UPDATED):
            self.written += 1
        elif saved.action is Action.REFUSED:
            self._shown[saved.index] = saved  # valid when checked, refused when written: a concurrent change

    def print(self, summary: BulkSummary, *, dry_run: bool, refused: bool, way_out: str, also_refused: int = 0) -> None:
        """`also_refused`: entries that never became a schedule to be saved."""
        for saved in self.shown:
            self._print_one(saved)
        for warning in self._warnings[:SHOWN]:
            print_note(warning)
        if self._more:
            console().print(f"… and {self._more} more changes")
        numbers = counts(summary)
        numbers["refused"] += also_refused
        text = ", ".join(f"{count} {what}" for what, count in numbers.items())
        if refused:
            error_console().print(f"nothing was written; it would be: {text}; {way_out}", style="red")
        else:
            console().print(f"{'would be: ' if dry_run else ''}{text}")

    @staticmethod
    def _print_one(saved: Saved) -> None:
        match saved.action:
            case Action.REFUSED:
                for problem in saved.problems:
                    error_console().print(f"! item {saved.index + 1} ({saved.label}): {problem}", style="red")
            case Action.CREATED:
                console().print(f"+ {saved.label}", style="green")
            case Action.UPDATED:
                changes = ", ".join(f"{name}: {old} -> {new}" for name, (old, new) in saved.changes.items())
                console().print(f"~ {saved.label}: {changes}", style="yellow")
            case Action.UNCHANGED:
                pass
