"""`manage.py import …`: schedules from other schedulers."""

import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from config import get_settings
from services.checks.celery_apps import APP_NAME
from services.cli.import_report import ImportReport, counts, save_items
from services.cli.output import INVALID_INPUT, AsJson, ClearErrors, console, error_console, print_json, print_note
from services.errors import InvalidInput, Problem
from services.job_types.celery_apps.beat import (
    BeatEntry,
    BeatSchedule,
    load_app,
    read_beat_schedule,
    schedule_id_of,
    tag_of,
    variables_of,
)
from services.jobs.own_names import project_first
from services.schedule_repository import get_schedule_repository
from services.schedules.batch import ScheduleRecord
from services.schedules.listing import ScheduleFilter

app = typer.Typer(cls=ClearErrors, no_args_is_help=True, help="Schedules from other schedulers.")
UNTIL_BEAT_STOPS = "imported from Celery beat: stop beat, then enable"


@app.callback()
def group() -> None:
    """Keeps `celery-beat` a word of the command although it is the only one."""


@app.command("celery-beat")
def celery_beat(
    target: Annotated[str, typer.Argument(metavar="MODULE:app", help="Your Celery app, as `celery --app` takes it.")],
    name: Annotated[
        str | None, typer.Option(help="The app's name in CELERY_APPS_<NAME>_BROKER_URL; default: its own name.")
    ] = None,
    timezone: Annotated[str | None, typer.Option(help="Overrides the time zone of the app's configuration.")] = None,
    disabled: Annotated[
        bool, typer.Option("--disabled", help="Create new schedules disabled: beat may still be running.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change; write nothing.")] = False,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Import the other entries if some cannot be carried over.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create or update a schedule of type `celery_task` for each entry of an app's beat_schedule.

    An entry keeps its schedule: a second import changes it, and leaves alone what beat does not know (retries, timeout,
    enabled). What cannot be carried over is named; then nothing is written, unless --skip-invalid is given.

    Exit code 0 when every entry is carried over, 2 otherwise.

    Examples:

      manage.py import celery-beat shop.celery:app --dry-run

      manage.py import celery-beat shop.celery:app --name shop --disabled
    """
    with project_first(Path.cwd()):  # as the `celery` command does it
        loaded = load_app(target)
        app_name = _app_name(name, loaded.main)
        read = read_beat_schedule(loaded, app_name, timezone)
    existing = _existing(app_name, read.entries)
    items = [_item(entry, disabled and schedule_id_of(app_name, entry.name) not in existing) for entry in read.entries]
    wanted = [item for item in items if item is not None]
    report = ImportReport()
    checked = save_items(map(report.note_credentials, wanted), dry_run=True, on_saved=report.note)
    failed = [entry for entry in read.entries if entry.problems]
    refused = bool(failed or checked.refused) and not skip_invalid
    summary = checked
    if not dry_run and not refused and checked.created + checked.updated:
        summary = save_items(iter(wanted), dry_run=False, on_saved=report.note_written)
    gone = _gone(existing.values(), app_name, read.entries)
    if as_json:
        said = {**counts(summary), "changes": report.shown, "not_carried_over": [_told(entry) for entry in failed]}
        notes = {"notes": read.notes, "gone": gone, "environment": _missing_variables(app_name, read)}
        print_json({"dry_run": dry_run, "written": not dry_run and not refused, **said, **notes})
    else:
        _print_entries(read, failed)
        report.print(
            summary,
            dry_run=dry_run,
            refused=refused,
            way_out="fix the entries or use --skip-invalid",
            also_refused=len(failed),
        )
        _print_what_remains(app_name, read, gone)
    if failed or checked.refused or summary.refused:
        raise typer.Exit(INVALID_INPUT)


def _app_name(given: str | None, main: str | None) -> str:
    name = given or re.sub(r"[^a-z0-9_]", "_", (main or "").lower())
    if not re.fullmatch(APP_NAME, name):
        reason = f"must be lower-case letters, digits and _, beginning with a letter, got {name!r}"
        raise InvalidInput(Problem("name", reason if given else f"name the app with --name: its own name {reason}"))
    return name


def _item(entry: BeatEntry, disabled: bool) -> dict[str, Any] | None:
    if entry.schedule is None:
        return None
    return {**entry.schedule, **({"enabled": False, "disabled_note": UNTIL_BEAT_STOPS} if disabled else {})}


def _existing(app_name: str, entries: Iterable[BeatEntry]) -> dict[Any, ScheduleRecord]:
    """Schedules of earlier imports, also those whose tag somebody removed."""
    ids = [schedule_id_of(app_name, entry.name) for entry in entries]
    repository = get_schedule_repository()
    found = [*repository.iter_schedules(ScheduleFilter(schedule_ids=ids))] if ids else []
    found += repository.iter_schedules(ScheduleFilter(tag=tag_of(app_name)))
    return {record.schedule_id: record for record in found}


def _gone(records: Iterable[ScheduleRecord], app_name: str, entries: Iterable[BeatEntry]) -> list[str]:
    wanted = {schedule_id_of(app_name, entry.name) for entry in entries}
    return sorted(record.label for record in records if record.schedule_id not in wanted)


def _missing_variables(app_name: str, read: BeatSchedule) -> list[str]:
    """Of this process, which may not be a replica; but here it can be asked."""
    known = get_settings().celery_apps.get(app_name)
    if known is not None and not any(known.refusal(task) for task in read.tasks):
        return []
    return variables_of(app_name, read.tasks)


def _told(entry: BeatEntry) -> dict[str, Any]:
    return {name: value for name, value in asdict(entry).items() if name in ("name", "task", "problems")}


def _print_entries(read: BeatSchedule, failed: list[BeatEntry]) -> None:
    for entry in failed:
        for problem in entry.problems:
            error_console().print(f"! {entry.name}: {problem}", style="red")
    for entry in read.entries:
        for note in entry.notes:
            print_note(f"{entry.name}: {note}")


def _print_what_remains(app_name: str, read: BeatSchedule, gone: list[str]) -> None:
    for label in gone:
        print_note(f"{label}: no longer in the beat schedule; delete it with manage.py schedule delete")
    for note in read.notes:
        print_note(note)
    if missing := _missing_variables(app_name, read):
        console().print("replicas that call these tasks need these variables in their environment:")
        for line in missing:
            console().print(f"  {line}")
