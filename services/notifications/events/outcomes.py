"""How fires end: failed for good, failed several times in a row, recovered, missed."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Row

from services.insight.failures import pattern_of
from services.notifications.events.rows import about, facts_of, fire_of, path_of, subject_of
from services.notifications.incidents import Occurrence, Over
from services.notifications.rule_fields import Event

FAILED = ("failed", "timed_out", "abandoned")
LONGEST_ERROR = 160


def outcomes(row: Row[Any]) -> Iterator[Occurrence | Over]:
    if row.failure is not None:
        yield from _failed(row)
    elif row.status == "success":
        yield from (_over(row, event) for event in (Event.FAILED, Event.FAILING, Event.NO_SUCCESS))
    if row.status == "missed":
        reason = row.reason or "missed"
        yield Occurrence(
            event=Event.MISSED,
            subject=subject_of(row),
            key=str(row.execution_id),
            at=row.completed_at,
            about=about(row),
            words=f"missed a fire: {reason}",
            pattern=reason,
            severity="warning",
            fire=fire_of(row),
            facts=facts_of(row),
            data=_data(row),
            path=path_of(row),
        )
    elif row.status in (*FAILED, "success"):
        yield _over(row, Event.MISSED)


def _failed(row: Row[Any]) -> Iterator[Occurrence]:
    error = " ".join((row.failure or row.status).split())
    line = error if len(error) <= LONGEST_ERROR else f"{error[: LONGEST_ERROR - 1]}…"
    for event in (Event.FAILED, Event.FAILING):
        yield Occurrence(
            event=event,
            subject=subject_of(row),
            key=str(row.execution_id),
            at=row.completed_at,
            about=about(row),
            words=f"failed: {line}" if event is Event.FAILED else f"keeps failing: {line}",
            gist=line if event is Event.FAILED else f"keep failing: {line}",
            pattern=_pattern(event, row.failure),
            fire=fire_of(row),
            text=row.failure if len(row.failure) > LONGEST_ERROR else "",
            facts=facts_of(row),
            data=_data(row),
            path=path_of(row),
        )


def _pattern(event: Event, error: str) -> str:
    """A storm whose errors differ in numbers and names says this instead of one of them."""
    return pattern_of(error) if event is Event.FAILED else f"keep failing: {pattern_of(error)}"


def _over(row: Row[Any], event: Event) -> Over:
    return Over(event=event, subject=subject_of(row), at=row.completed_at, about=None, fire=fire_of(row))


def _data(row: Row[Any]) -> dict[str, Any]:
    return {
        "schedule_id": None if row.schedule_id is None else str(row.schedule_id),
        "execution_id": str(row.execution_id),
        "scheduled_for": row.scheduled_for.isoformat(),
        "attempt": row.attempt,
        "status": row.status,
        "reason": row.reason,
    }
