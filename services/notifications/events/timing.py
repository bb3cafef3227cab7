"""When executions start and how long they take: late, slow. Both are found while they last, and again at the end."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from services.notifications.events.rows import about, facts_of, fire_of, path_of, subject_of
from services.notifications.incidents import Occurrence, Over, matches
from services.notifications.rule_fields import Event
from services.notifications.rules import RuleRecord
from services.wording.durations import duration

LEAST_SLOW_SECONDS = 1.0  # times the usual: of shorter ones the differences mean nothing
RAN = ("success", "failed", "timed_out", "abandoned")


@dataclass(frozen=True, slots=True)
class Judged:
    """For one rule only: its thresholds are its own."""

    rule: RuleRecord
    found: Occurrence | Over


def timing(row: Row[Any], rules: Collection[RuleRecord], usual: Mapping[UUID, float]) -> Iterator[Judged]:
    """Of an execution that has ended."""
    if row.status not in RAN or row.started_at is None:
        return
    for rule in rules:
        if rule.late_seconds is not None and row.lateness is not None:
            yield from _judge(
                rule, row, Event.LATE, late(row, row.lateness) if row.lateness > rule.late_seconds else None
            )
        if rule.tells(Event.SLOW) and row.duration_seconds is not None:
            limit = slow_after(rule, usual.get(row.schedule_id))
            if limit is not None:
                is_slow = row.duration_seconds > limit
                found = slow(row, row.duration_seconds, usual.get(row.schedule_id)) if is_slow else None
                yield from _judge(rule, row, Event.SLOW, found)


def still(rows: Collection[Row[Any]], rules: Collection[RuleRecord], usual: Mapping[UUID, float]) -> Iterator[Judged]:
    """For executions that wait or run: they may be late or slow already, but never end such an incident."""
    for row in rows:
        for rule in rules:
            if not matches(rule, about(row)):
                continue
            if row.status == "running":
                limit = slow_after(rule, usual.get(row.schedule_id)) if rule.tells(Event.SLOW) else None
                if limit is not None and row.seconds > limit:
                    yield Judged(rule, slow(row, row.seconds, usual.get(row.schedule_id), is_running=True))
            elif rule.late_seconds is not None and row.seconds > rule.late_seconds:
                yield Judged(rule, late(row, row.seconds, is_waiting=True))


def slow_after(rule: RuleRecord, usual: float | None) -> float | None:
    """Seconds, the smaller of the rule's two thresholds that are known."""
    limits = []
    if rule.slower_than_seconds is not None:
        limits.append(float(rule.slower_than_seconds))
    if rule.slower_than_usual is not None and usual is not None:
        limits.append(max(LEAST_SLOW_SECONDS, rule.slower_than_usual * usual))
    return min(limits, default=None)


def late(row: Row[Any], seconds: float, *, is_waiting: bool = False) -> Occurrence:
    words = f"is late: it has waited for {duration(seconds)}" if is_waiting else f"started {duration(seconds)} late"
    return _occurrence(row, Event.LATE, words, {"Late by": duration(seconds)}, {"late_seconds": round(seconds, 3)})


def slow(row: Row[Any], seconds: float, usual: float | None, *, is_running: bool = False) -> Occurrence:
    verb = "has been running for" if is_running else "took"
    facts = {"Duration": duration(seconds)} | ({} if usual is None else {"Usual (95 %)": duration(usual)})
    words = f"{verb} {duration(seconds)}" + ("" if usual is None else f", usually at most {duration(usual)}")
    return _occurrence(row, Event.SLOW, words, facts, {"duration_seconds": round(seconds, 3), "usual_seconds": usual})


def _judge(rule: RuleRecord, row: Row[Any], event: Event, found: Occurrence | None) -> Iterator[Judged]:
    over = Over(event=event, subject=subject_of(row), at=row.completed_at, about=None, fire=fire_of(row))
    if found is None:
        yield Judged(rule, over)
    elif matches(rule, found.about):
        yield Judged(rule, found)


def _occurrence(row: Row[Any], event: Event, words: str, facts: dict[str, str], data: dict[str, Any]) -> Occurrence:
    at: datetime = row.completed_at or row.now
    return Occurrence(
        event=event,
        subject=subject_of(row),
        key=str(row.execution_id),
        at=at,
        about=about(row),
        words=words,
        pattern=event.value,
        severity="warning",
        fire=fire_of(row),
        facts={**facts_of(row), **facts},
        data={"schedule_id": str(row.schedule_id), "execution_id": str(row.execution_id), **data},
        path=path_of(row),
    )
