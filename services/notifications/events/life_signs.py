"""Events found by looking at the present: parked schedules, unmet needs, lost replicas, open queues, failed audits.

A look finds all present problems; one that was found before and is gone is over. A look that found more than it
reads ends nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Row

from services.insight.hourly_audit_sql import WRONG
from services.notifications.incidents import Occurrence, Subject
from services.notifications.rule_fields import Event
from services.notifications.rules import RuleRecord
from services.wording.commands import as_called_here
from services.wording.durations import duration

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Look:
    """`doubtful`: subjects neither in trouble nor over. `back`: only these are over; None: all that are not found.
    `here`: subjects not among these are forgotten in silence.
    """

    event: Event
    found: list[Occurrence]
    is_complete: bool = True
    doubtful: frozenset[str] = frozenset()
    back: frozenset[str] | None = None
    here: frozenset[str] | None = None

    def is_over(self, subject: str) -> bool:
        if not self.is_complete or subject in self.doubtful:
            return False
        return subject in self.back if self.back is not None else subject not in self.subjects

    def is_gone(self, subject: str) -> bool:
        return self.here is not None and subject not in self.here

    @property
    def subjects(self) -> frozenset[str]:
        return frozenset(each.subject for each in self.found)


def look(event: Event, rows: Iterable[Row[Any]], of_row: Callable[[Row[Any]], Occurrence], most: int) -> Look:
    found = [of_row(row) for row in rows]
    return Look(event, found, len(found) < most)


def parked(row: Row[Any]) -> Occurrence:
    return Occurrence(
        event=Event.PARKED,
        subject=str(row.schedule_id),
        key=f"{row.revision}:{row.now.isoformat()}",  # what was repaired may break again, of itself
        at=row.now,
        about=schedule_of(row),
        words=f"is parked: {row.invalid_reason}",
        pattern=row.invalid_reason,
        gist=f"parked: {row.invalid_reason}",
        facts={"Schedule": row.label},
        data={"schedule_id": str(row.schedule_id), "reason": row.invalid_reason},
        path=f"/schedules/{row.schedule_id}",
    )


def nobody_able(needs: tuple[str, ...], words: str, executions: int, now: datetime) -> Occurrence:
    """`needs`: `job:<type>`, `queue:<name>`, labels."""
    named = {kind: name for need in needs for kind, _, name in [need.partition(":")] if name}
    return Occurrence(
        event=Event.NOBODY_ABLE,
        subject=", ".join(needs),
        key=now.isoformat(),
        at=now,
        about=Subject(name=", ".join(needs), job_type=named.get("job"), queue=named.get("queue")),
        words=f"is needed, but no replica has it: {words}",
        pattern=", ".join(needs),
        noun="need",
        facts={"Needs": ", ".join(needs)},
        data={"needs": list(needs), "executions": executions},
        path="/replicas",
    )


def replica_lost(row: Row[Any]) -> Occurrence:
    return Occurrence(
        event=Event.REPLICA_LOST,
        subject=row.instance_id,
        key=f"{row.incarnation}:{row.heartbeat_at.isoformat()}",  # one life may be lost several times
        at=row.now,
        about=Subject(name=f"replica {row.instance_id}"),
        words=f"is lost: no heartbeat for {duration(row.age)}",
        pattern="replica lost",
        gist="replica lost",
        noun="replica",
        facts={"Last heartbeat": f"{row.heartbeat_at:%Y-%m-%d %H:%M:%S} UTC", "Host": row.host or "-"},
        data={"instance_id": row.instance_id, "running": row.running},
        path="/replicas",
    )


def queue_open(row: Row[Any]) -> Occurrence:
    return Occurrence(
        event=Event.QUEUE_OPEN,
        subject=row.queue,
        key=row.circuit_changed_at.isoformat(),
        at=row.now,
        about=Subject(name=f"queue {row.queue}", queue=row.queue),
        words="is not running: its circuit breaker opened because too many recent items failed",
        pattern="circuit open",
        gist="circuit breaker open",
        noun="queue",
        facts={"Since": f"{row.circuit_changed_at:%Y-%m-%d %H:%M:%S} UTC"},
        data={"queue": row.queue},
        path="/queues",
    )


def audit_failed(row: Row[Any], words: str) -> Occurrence:
    """`row`: an hour of which `words` say what is wrong."""
    since = row.since.astimezone(UTC)
    return Occurrence(
        event=Event.AUDIT_FAILED,
        subject=since.isoformat(),
        key=since.isoformat(),
        at=row.now,
        about=Subject(name=f"the audit of {since:%Y-%m-%d %H:00} to {since + HOUR:%H:00} UTC"),
        words=f"found {words}",
        pattern="audit failed",
        gist="the audit found fires that are not accounted for",
        noun="hour",
        text=as_called_here("python manage.py audit --since 48h lists them."),  # whoever reads it a day later, too
        facts={"Fires that were due": f"{row.expected:,}", "Accounted for": f"{row.accounted:,}"},
        data={"since": since.isoformat(), **{kind: getattr(row, kind) for kind in WRONG}},
        path="/",
    )


def no_success(row: Row[Any], last: Row[Any], rule: RuleRecord, most: int) -> Occurrence:
    seconds = rule.no_success_seconds or 0
    gist = f"no success for {duration(seconds)}"
    words = f"has had {gist}"
    if last.success_at is not None:
        known = f"{last.success_at:%Y-%m-%d %H:%M:%S} UTC"
    elif last.is_long:
        words, known = f"has had no success in its last {most:,} executions", f"before its last {most:,} executions"
    else:
        known = "none in its history"
    return Occurrence(
        event=Event.NO_SUCCESS,
        subject=str(row.schedule_id),
        key=last.since.isoformat(),
        at=row.now,
        about=schedule_of(row),
        words=words,
        pattern="no success",
        gist=gist,
        facts={"Schedule": row.label, "Last success": known},
        data={"schedule_id": str(row.schedule_id), "no_success_seconds": seconds},
        path=f"/schedules/{row.schedule_id}",
    )


def schedule_of(row: Row[Any]) -> Subject:
    tags = tuple(row.tags or ())
    return Subject(name=row.label, schedule_id=row.schedule_id, tags=tags, job_type=row.job_type, queue=row.queue)
