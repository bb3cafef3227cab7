"""A sync on the screen: the diff of a dry run, the result, the stored status."""

import json
from typing import Any

from rich.text import Text

from services.api_sync.items import plain_line
from services.api_sync.report import Entry, Kind, Outcome, SyncReport
from services.api_sync.state import StoredState
from services.cli.output import console, error_console, moment
from services.cli.tables import plain_table
from services.wording.durations import duration

SHOWN = 20  # lines of each kind; the rest is only counted
STYLES = {
    Kind.CREATED: "green",
    Kind.UPDATED: "yellow",
    Kind.DISABLED: "red",
    Kind.REFUSED: "red bold",
    Kind.SKIPPED: "red",
    Kind.KEPT: "cyan",
    Kind.OVERWRITTEN: "magenta",
}
NOTEWORTHY = (Kind.DISABLED, Kind.REFUSED, Kind.SKIPPED, Kind.KEPT, Kind.OVERWRITTEN)
WORDS = {Kind.REFUSED: "not disabled", Kind.KEPT: "local edits kept", Kind.OVERWRITTEN: "local edits overwritten"}


def print_diff(report: SyncReport) -> None:
    _print_entries(report, *STYLES, hint="--json lists them all")
    console().print(f"would be: {_counts(report)}")
    _print_refusal(report)


def print_result(report: SyncReport) -> None:
    if report.outcome is Outcome.NOT_MODIFIED:
        console().print("the API has nothing new")
        return
    _print_entries(report, *NOTEWORTHY)
    console().print(_counts(report))
    _print_refusal(report)


def print_status(state: StoredState) -> None:
    out = console()
    if state.is_busy:
        out.print(f"{state.lease_owner} has been syncing since {moment(state.started_at)}", style="yellow")
    if state.last is None:
        out.print("never synced yet")
        return
    style = "green" if state.last.outcome.is_good else "red bold"
    took = duration(state.last.finished_at - state.last.started_at)
    out.print(f"last sync     {state.last.outcome.value}", style=style)
    out.print(f"              {moment(state.last.finished_at)} by {state.last.by}, {took}")
    if state.last.error:
        out.print(f"              {state.last.error}")
    out.print(f"last success  {moment(state.synced_at)}")
    if state.applied:
        out.print(f"last response {moment(state.applied.finished_at)}: {_counts(state.applied)}")
        _print_entries(state.applied, *NOTEWORTHY)
        _print_refusal(state.applied)


def status_as_json(state: StoredState) -> dict[str, Any]:
    return {
        "syncing": state.lease_owner if state.is_busy else None,
        "synced_at": state.synced_at,
        "age_seconds": state.synced_seconds_ago,
        "not_before": state.not_before,
        "last": state.last and state.last.as_json(),
        "applied": state.applied and state.applied.as_json(),
    }


def _print_entries(report: SyncReport, *kinds: Kind, hint: str = "") -> None:
    table = plain_table("what", "item", "schedule", "how")
    for kind in kinds:
        entries = report.of(kind)
        for entry in entries[:SHOWN]:
            item = "" if entry.item is None else str(entry.item)
            table.add_row(Text(_word(kind), style=STYLES[kind]), item, entry.label, _how(entry))
        more = report.count(kind) - min(len(entries), SHOWN)
        if more > 0:
            table.add_row(Text(_word(kind), style=STYLES[kind]), "", f"… and {more} more", hint)
    if table.row_count:
        console().print(table)


def _how(entry: Entry) -> str:
    if entry.reasons:
        return "; ".join(entry.reasons)
    form = "{}: {} here, {} in the API" if entry.kind is Kind.KEPT else "{}: {} → {}"
    return "; ".join(form.format(name, _value(old), _value(new)) for name, (old, new) in entry.changes.items())


def _value(value: object) -> str:
    if isinstance(value, str):
        return plain_line(value)
    return plain_line(json.dumps(value, ensure_ascii=False, default=str))


def _word(kind: Kind) -> str:
    return WORDS.get(kind, kind.value)


def _counts(report: SyncReport) -> str:
    told = ", ".join(f"{report.count(kind)} {_word(kind)}" for kind in Kind if report.count(kind))
    return told or "no schedules"


def _print_refusal(report: SyncReport) -> None:
    if report.refused:
        error_console().print(f"nothing was disabled: {report.refused}", style="red bold")
        error_console().print(
            "if these removals are intended: manage.py sync --dry-run, then manage.py sync --allow-removals"
        )
