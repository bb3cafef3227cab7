"""The timeline of one execution: scheduled, due, announced, claimed, started, cancellation requested, ended."""

from dataclasses import dataclass
from datetime import datetime

from services.ledger.listing import ExecutionRecord
from services.wording.durations import duration


@dataclass(frozen=True, slots=True)
class Moment:
    at: datetime
    what: str  # scheduled, due, announced, claimed, started, cancel_requested, or the status that it ended with
    text: str


def timeline(record: ExecutionRecord) -> list[Moment]:
    """The events so far; unknown instants are left out."""
    by = f" by {record.instance_id}" if record.instance_id else ""
    asker = (record.details or {}).get("requested_by")
    canceller = (record.details or {}).get("cancel_requested_by")
    cancelled = "cancellation requested" + (f" by {canceller}" if canceller else "")
    asked = f"requested by {asker}" if asker else "requested"
    known: list[tuple[datetime | None, str, str]] = [
        (record.scheduled_for, "scheduled", asked if record.cause == "manual" else "nominal time"),
        (record.due_at, "due", "due" if record.attempt == 1 else f"due as attempt {record.attempt}"),
        (record.published_at, "announced", "announced to the workers of its queue"),
        (record.claimed_at, "claimed", f"claimed{by}"),
        (record.started_at, "started", f"started{by}"),
        (record.cancel_requested_at, "cancel_requested", cancelled),
        (record.completed_at, record.status, _end(record)),
    ]
    moments = [Moment(at, what, text) for at, what, text in known if at is not None]
    return sorted(moments, key=lambda moment: moment.at)


def _end(record: ExecutionRecord) -> str:
    took = "" if record.duration_seconds is None else f" after {duration(record.duration_seconds)}"
    return f"{record.status}{took}" + (f": {record.why}" if record.why else "")
