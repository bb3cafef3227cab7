"""What the families read from a row of an execution with its schedule, if that exists."""

from typing import Any

from sqlalchemy import Row

from services.notifications.incidents import Fire, Subject
from services.schedules.spec import DEFAULT_QUEUE


def about(row: Row[Any]) -> Subject:
    return Subject(
        name=row.label,
        schedule_id=row.schedule_id,
        tags=tuple(row.tags or ()),
        job_type=row.job_type,
        queue=row.queue or DEFAULT_QUEUE,
    )


def subject_of(row: Row[Any]) -> str:
    """A schedule, or the job of an execution without one."""
    return str(row.schedule_id or f"job {row.label}")


def fire_of(row: Row[Any]) -> Fire:
    return row.scheduled_for, row.attempt


def path_of(row: Row[Any]) -> str:
    return f"/executions/{row.execution_id}"


def facts_of(row: Row[Any]) -> dict[str, str]:
    facts = {"Schedule": row.label, "Due": f"{row.due_at or row.scheduled_for:%Y-%m-%d %H:%M:%S} UTC"}
    if row.attempt > 1:
        facts["Attempt"] = str(row.attempt)
    if row.instance_id:
        facts["Replica"] = row.instance_id
    if row.tags:
        facts["Tags"] = ", ".join(row.tags)
    return facts
