"""`schedule show`: one schedule with its fires, executions and changes, on one screen."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select

from database.connection import get_db_connection
from database.models import JobExecution
from services.cli.output import console, disabled_state, moment, print_json, until
from services.cli.tables import print_facts
from services.errors import InvalidSchedule
from services.schedule_repository import ScheduleRepository
from services.schedules.batch import ScheduleRecord
from services.schedules.changes import Change
from services.schedules.spec import DEFINITION_FIELDS
from services.wording.durations import duration
from services.wording.streaks import with_streak

LAST = 10
POLICIES = DEFINITION_FIELDS[DEFINITION_FIELDS.index("max_instances") :]


def show_page(repository: ScheduleRepository, record: ScheduleRecord, as_json: bool) -> None:
    fires, problem = _fires(repository, record)
    executions = last_executions(record)
    changes = repository.get_changes(record.schedule_id, LAST)
    if as_json:
        listed = [
            {
                "changed_at": change.changed_at,
                "changed_by": change.changed_by,
                "operation": change.operation,
                "differences": change.differences,
            }
            for change in changes
        ]
        print_json(
            {"schedule": record, "next_fires": fires, "problem": problem, "executions": executions, "changes": listed}
        )
        return
    _print_definition(record, problem)
    _print_fires(record, fires)
    _print_executions(record, executions)
    _print_changes(changes)


def last_executions(record: ScheduleRecord) -> list[dict[str, Any]]:
    names = (
        "scheduled_for",
        "attempt",
        "status",
        "started_at",
        "duration_seconds",
        "instance_id",
        "error_message",
        "reason",
    )
    query = (
        select(*(getattr(JobExecution, name) for name in names))
        .where(JobExecution.schedule_id == record.schedule_id)
        .order_by(JobExecution.scheduled_for.desc(), JobExecution.attempt.desc())
        .limit(LAST)
    )
    with get_db_connection().transaction() as connection:
        return [dict(row._mapping) for row in connection.execute(query)]


def _fires(repository: ScheduleRepository, record: ScheduleRecord) -> tuple[list[datetime], str | None]:
    try:
        return repository.preview(record, 5), record.invalid_reason
    except InvalidSchedule as error:
        return [], record.invalid_reason or str(error)


def _print_definition(record: ScheduleRecord, problem: str | None) -> None:
    last = with_streak(record.last_status or "", record.failures_in_a_row)
    rows = {
        "id": record.schedule_id,
        "domain": record.domain,
        "name": record.name or "-",
        "timing": f"invalid: {problem}" if problem else record.trigger.describe(),
        "state": "enabled" if record.enabled else disabled_state(record.disabled_note),
        "job": f"{record.job_type} {dict(record.job_config) or ''}",
        "tags": ", ".join(record.tags) or "-",
        "queue": record.queue_name,
        "requires": ", ".join(record.requires) or "-",
        "limit keys": ", ".join(record.limit_keys) or "-",
        "source": f"{record.source} (domain config {record.external_id or record.domain_config_id})",
        "last run": f"{moment(record.last_run, 'UTC')} {last}",
        "revision": f"{record.revision}, changed {moment(record.updated_at)}",
    }
    if record.backs_off_until is not None and record.backs_off_until > datetime.now(UTC):
        rows["backoff"] = f"its fires before {moment(record.backs_off_until, record.timezone)} are skipped"
    if record.profile_id is not None:
        rows["profile"] = f"{record.profile_id} (manage.py scan-profile show {str(record.profile_id)[:8]})"
    rows |= {name: getattr(record, name) for name in POLICIES if getattr(record, name) is not None}
    print_facts({label: str(value) for label, value in rows.items()})


def _print_fires(record: ScheduleRecord, fires: list[datetime]) -> None:
    console().print("\nnext fires" if record.enabled else "\nnext fires, if it were enabled", style="bold")
    for fire in fires:
        local = "" if record.timezone == "UTC" else f"{moment(fire, record.timezone)}   "
        console().print(f"  {local}{moment(fire)}   {until(fire)}")
    if not fires:
        console().print("  none")
    else:
        for warning in record.trigger.warnings(datetime.now(UTC)):
            console().print(f"  note: {warning}", style="yellow")


def _print_executions(record: ScheduleRecord, executions: list[dict[str, Any]]) -> None:
    console().print("\nlast executions", style="bold")
    for row in executions:
        took = "" if row["duration_seconds"] is None else duration(row["duration_seconds"])
        why = row["error_message"] or row["reason"] or ""
        console().print(f"  {moment(row['scheduled_for'])}   {row['status']:<9} {took:>10}  {why}")
    if not executions:
        console().print("  none yet")


def _print_changes(changes: list[Change]) -> None:
    console().print("\nchanges", style="bold")
    for change in changes:
        what = change.operation
        if change.operation == "update":
            what = ", ".join(f"{name}: {old} -> {new}" for name, (old, new) in change.differences.items())
        console().print(f"  {moment(change.changed_at)}   {change.changed_by}   {what}")
