"""`manage.py executions`, `execution`, `cancel`, `retry`, `stats`: list, show, cancel, retry and count executions."""

import json
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.table import Table

from database.models import Cause, ExecutionStatus
from database.pages import MAX_PAGE
from services.cli.durations import EXAMPLES, ago
from services.cli.log_lines import AttemptLogs, follow_log, print_lines
from services.cli.output import FAILED, AsJson, actor, console, id_column, moment, plain, print_json
from services.cli.tables import Cursor, PageSize, plain_table, print_facts, print_page
from services.errors import ScheduleNotFound
from services.job_history import JobHistory, get_job_history
from services.ledger.listing import ExecutionFilter, ExecutionPage, ExecutionRecord
from services.schedule_repository import get_schedule_repository
from services.schedules.spec import parse_uuid
from services.wording.names import name_of
from services.wording.short_ids import ID_PREFIX

COLUMNS = ("id", "job", "scheduled for (UTC)", "attempt", "status", "seconds", "replica", "why")
WIDTHS = (ID_PREFIX, 24, 19, 9, 9, 8, 20, 0)  # of a line that is printed before the next one is known
FOLLOW_SECONDS = 1.0
LIVE = [status for status in ExecutionStatus if not status.is_terminal]
LATE_COMMIT = timedelta(seconds=10)  # a row may become visible this long after its created_at
STYLES = {"success": "green", "failed": "red", "timed_out": "red", "abandoned": "red", "running": "cyan"}

Execution = Annotated[str, typer.Argument(metavar="EXECUTION", help="Its id; the first 8 characters are enough.")]


def executions(
    schedule: Annotated[
        str | None, typer.Option("--schedule", "-s", help="Filter by schedule (id, name or domain).")
    ] = None,
    domain: Annotated[str | None, typer.Option(help="Filter by domain.")] = None,
    status: Annotated[str | None, typer.Option(help=f"Filter by status: {', '.join(ExecutionStatus)}.")] = None,
    cause: Annotated[str | None, typer.Option(help=f"Filter by cause: {', '.join(Cause)}.")] = None,
    job_type: Annotated[str | None, typer.Option(help="Filter by job type of the schedule.")] = None,
    tag: Annotated[str | None, typer.Option(help="Filter by tag of the schedule.")] = None,
    since: Annotated[str | None, typer.Option(help=f"Newer than {EXAMPLES}.")] = None,
    limit: PageSize = 50,
    cursor: Cursor = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Keep printing new and changed executions, and what they log, until Ctrl-C."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List executions, newest first.

    Examples:

      manage.py executions --since 1h --status failed

      manage.py executions --schedule nightly --limit 10

      manage.py executions --follow
    """
    where = ExecutionFilter(
        schedule_id=None if schedule is None else schedule_id_of(schedule),
        domain=domain,
        status=status,
        cause=cause,
        job_type=job_type,
        tag=tag,
        since=None if since is None else ago(since),
    )
    page = get_job_history().list_executions(where, limit=limit, cursor=cursor)
    if follow:
        _follow(where, page, as_json)
    else:
        print_page(page.items, page.next_cursor, as_json, lambda: execution_table(page.items), "no execution matches")


def execution(
    execution: Execution,
    log: Annotated[bool, typer.Option("--log", help="Show what its job logged, and follow it while it runs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one execution with all its fields, or its log.

    Examples:

      manage.py execution 3f2a90c1

      manage.py execution 3f2a90c1 --log
    """
    record = get_job_history().find_execution(execution)
    if log:
        follow_log(record, as_json)
    elif as_json:
        print_json(record)
    else:
        print_facts({name: _cell_text(value) for name, value in asdict(record).items() if value is not None})


def cancel(execution: Execution, as_json: AsJson = False) -> None:
    """Cancel an execution: a waiting one at once, a running one by asking its replica to stop it.

    Exit code 0 when it was cancelled or asked to stop, 1 when it had already ended.

    Example:

      manage.py cancel 3f2a90c1
    """
    history = get_job_history()
    found = history.find_execution(execution)
    requested = history.request_cancel(found.execution_id, actor())
    after = history.get_execution(found.execution_id) or found
    if as_json:
        print_json({"execution_id": after.execution_id, "requested": requested, "status": after.status})
    elif not requested:
        console().print(f"{after.execution_id} has already ended: {after.status}")
    elif after.is_terminal and after.status != "cancelled":
        console().print(f"{after.execution_id} ended as {after.status}; its retry is cancelled")
    elif after.status == ExecutionStatus.CANCELLED:
        console().print(f"cancelled {after.execution_id}")
    else:
        console().print(f"asked {after.instance_id or 'its program'} to stop {after.execution_id} ({after.status})")
    if not requested:
        raise typer.Exit(FAILED)


def retry(execution: Execution, as_json: AsJson = False) -> None:
    """Retry a failed execution: any replica may run the next attempt at its fire.

    Exit code 0 when the retry is queued, 1 when there is nothing to retry.

    Example:

      manage.py retry 3f2a90c1
    """
    history = get_job_history()
    found = history.find_execution(execution)
    answer = history.request_retry(found.execution_id, actor())
    if as_json:
        print_json(answer)
    elif answer.execution_id is not None:
        console().print(str(answer.execution_id))
    else:
        console().print(f"{found.execution_id} cannot be retried: {answer.outcome.value.replace('_', ' ')}")
    if answer.execution_id is None:
        raise typer.Exit(FAILED)


def stats(
    days: Annotated[int, typer.Option(help="Number of days to look back.")] = 7,
    as_json: AsJson = False,
) -> None:
    """Count the executions of the last days, with their durations and lateness.

    Examples:

      manage.py stats

      manage.py stats --days 1 --json
    """
    numbers = get_job_history().get_execution_statistics(days=days)
    if as_json:
        print_json(numbers)
        return
    table = Table.grid(padding=(0, 2))
    for name, value in numbers.items():
        seconds = name.endswith(("_duration", "_lateness"))
        unit = " s" if seconds else " %" if name == "success_rate" else ""
        table.add_row(name.replace("_", " "), f"{value:.3f}{unit}" if seconds else f"{value:g}{unit}")
    console().print(table)


def execution_table(records: list[ExecutionRecord]) -> Table:
    table = plain_table(id_column(), *COLUMNS[1:])
    for record in records:
        table.add_row(*_cells(record), style=STYLES.get(record.status))
    return table


def _cells(record: ExecutionRecord) -> tuple[str, ...]:
    seconds = "" if record.duration_seconds is None else f"{record.duration_seconds:.2f}"
    why = record.why.split("\n", 1)[0]
    asked = "cancel requested" if record.cancel_requested_at and not record.is_terminal else ""
    return (
        str(record.execution_id)[:ID_PREFIX],
        name_of(record),
        moment(record.scheduled_for).removesuffix(" UTC"),
        str(record.attempt) if record.cause == Cause.SCHEDULE else f"{record.attempt} {record.cause}",
        record.status,
        seconds,
        record.instance_id or "",
        why or asked,
    )


def _cell_text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(sep=" ", timespec="milliseconds")
    return json.dumps(value, default=plain, ensure_ascii=False) if isinstance(value, dict) else str(value)


def schedule_id_of(reference: str) -> UUID:
    """The id of an existing schedule, or the whole id of a deleted one, which still has its history."""
    try:
        return get_schedule_repository().find_schedule(reference).schedule_id
    except ScheduleNotFound:
        if len(reference) < 32:
            raise
        return parse_uuid(reference, "schedule")


# --- follow ---


class Follower:
    """Reports each execution when it appears and again when its status changes."""

    def __init__(self, history: JobHistory, where: ExecutionFilter, shown: list[ExecutionRecord]) -> None:
        self._history, self._where, self._looked_at = history, where, datetime.now(UTC)
        live = [record for status in LIVE for record in self._all(replace(where, status=status, since=None))]
        self._seen = {record.execution_id: record for record in (*live, *shown)}

    def news(self) -> list[ExecutionRecord]:
        since, self._looked_at = self._looked_at - LATE_COMMIT, datetime.now(UTC)
        found = {record.execution_id: record for record in self._all(replace(self._where, status=None, since=since))}
        still_open = [key for key, record in self._seen.items() if not record.is_terminal and key not in found]
        found |= {record.execution_id: record for record in self._history.get_executions(still_open)}
        changed = [record for record in found.values() if self._is_new(record)]
        self._seen = {
            key: record
            for key, record in {**self._seen, **found}.items()
            if not record.is_terminal or record.created_at >= since
        }
        wanted = [record for record in changed if self._where.status in (None, record.status)]
        return sorted(wanted, key=lambda record: record.completed_at or record.created_at)

    @property
    def running(self) -> list[ExecutionRecord]:
        return [record for record in self._seen.values() if not record.is_terminal]

    def _is_new(self, record: ExecutionRecord) -> bool:
        known = self._seen.get(record.execution_id)
        return known is None or known.status != record.status

    def _all(self, where: ExecutionFilter) -> list[ExecutionRecord]:
        records, cursor = list[ExecutionRecord](), None
        while True:
            page = self._history.list_executions(where, MAX_PAGE, cursor)
            records += page.items
            if (cursor := page.next_cursor) is None:
                return records


def _follow(where: ExecutionFilter, page: ExecutionPage, as_json: bool) -> None:
    follower, fresh = Follower(get_job_history(), where, page.items), page.items[::-1]
    said = AttemptLogs(get_job_history().logs)
    said.skip(follower.running)
    try:
        if not as_json:
            console().print(_in_columns(COLUMNS), style="bold")
        while True:
            for record in fresh:
                _print_line(record, as_json)
            if not as_json:
                print_lines(console(), said.news(follower.running, fresh), with_execution=True)
            time.sleep(FOLLOW_SECONDS)
            fresh = follower.news()
    except KeyboardInterrupt:
        return


def _print_line(record: ExecutionRecord, as_json: bool) -> None:
    """One line per execution, in JSON too: a reader of the stream gets whole records."""
    if as_json:
        typer.echo(json.dumps(record, default=plain, ensure_ascii=False))
    else:
        console().print(_in_columns(_cells(record)), style=STYLES.get(record.status))


def _in_columns(cells: tuple[str, ...]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()
