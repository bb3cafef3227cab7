"""The fields of a rule: one check each, and those between fields. Every wrong field is named. Pure."""

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from services.errors import InvalidInput, Problem
from services.schedules.field_rules import DAY_SECONDS, NOTE, Flag, Id, Label, OrNone, Rule, Tags, Text, Whole, excerpt
from services.triggers.local_time import zone_names

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
HOUR_MINUTE = r"([01]\d|2[0-3]):[0-5]\d"
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MOST_SCHEDULES, MOST_WORDS = 1000, 50
SCHEDULE_FILTERS = ("schedule_ids", "tags", "job_types")


class Event(StrEnum):
    """What a rule may report, in the order of lists."""

    FAILED = "failed"
    FAILING = "failing"
    RECOVERED = "recovered"
    LATE = "late"
    SLOW = "slow"
    NO_SUCCESS = "no_success"
    MISSED = "missed"
    PARKED = "parked"
    NOBODY_ABLE = "nobody_able"
    REPLICA_LOST = "replica_lost"
    QUEUE_OPEN = "queue_open"
    SCAN_CHANGED = "scan_changed"
    AUDIT_FAILED = "audit_failed"


MEANINGS = {
    Event.FAILED: "a fire failed for good: its last attempt failed",
    Event.FAILING: "after_failures consecutive fires of a schedule failed for good",
    Event.RECOVERED: "a problem reported before is over",
    Event.LATE: "an execution starts more than late_seconds after it was due",
    Event.SLOW: "an execution takes longer than slower_than_seconds, or slower_than_usual times the usual duration",
    Event.NO_SUCCESS: "a schedule has had no success for no_success_seconds",
    Event.MISSED: "a fire was missed",
    Event.PARKED: "a schedule is parked: its row is invalid",
    Event.NOBODY_ABLE: "executions wait that no live replica can run",
    Event.REPLICA_LOST: "a replica stopped sending heartbeats",
    Event.QUEUE_OPEN: "the circuit breaker of a workflow's queue is open",
    Event.SCAN_CHANGED: "a cookie scan found new or changed cookies",
    Event.AUDIT_FAILED: "the hourly audit found fires that are not accounted for",
}
OF_THE_FLEET = {  # what they are about belongs to no schedule: these filters cannot apply
    Event.NOBODY_ABLE: ("schedule_ids", "tags"),
    Event.REPLICA_LOST: (*SCHEDULE_FILTERS, "queues"),
    Event.QUEUE_OPEN: SCHEDULE_FILTERS,
    Event.AUDIT_FAILED: (*SCHEDULE_FILTERS, "queues"),
}
NEEDS = {
    Event.FAILING: ("after_failures",),
    Event.LATE: ("late_seconds",),
    Event.SLOW: ("slower_than_seconds", "slower_than_usual"),
    Event.NO_SUCCESS: ("no_success_seconds",),
}


@dataclass(frozen=True, slots=True)
class Word:
    """One of these words; a close one is suggested."""

    known: Collection[str]

    def __call__(self, value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"must be text, got {excerpt(value)}")
        word = value.strip().lower().replace("-", "_")
        if word not in self.known:
            raise ValueError(
                f"{excerpt(value)} is unknown{suggestion(word, self.known)} (known: {', '.join(self.known)})"
            )
        return word

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.known)}


@dataclass(frozen=True, slots=True)
class ListOf:
    """Without duplicates. `order`: in which they are kept; as given without it."""

    item: Rule
    most: int
    least: int = 0
    order: Callable[[list[Any]], list[Any]] = list

    def __call__(self, value: Any) -> list[Any]:
        if not isinstance(value, list | tuple | set) or not self.least <= len(value) <= self.most:
            raise ValueError(f"must be a list of {self.least} to {self.most} items, got {excerpt(value)}")
        return self.order(list(dict.fromkeys(self.item(each) for each in value)))

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.item.schema, "minItems": self.least, "maxItems": self.most}


@dataclass(frozen=True, slots=True)
class Matching:
    pattern: str
    words: str

    def __call__(self, value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value.strip()):
            raise ValueError(f"must be {self.words}, got {excerpt(value)}")
        return value.strip()

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{self.pattern}$"}


class Zone:
    def __call__(self, value: Any) -> str:
        if value not in zone_names():
            meant = suggestion(str(value), {name.lower(): name for name in zone_names()})
            raise ValueError(f"must be an IANA time zone, such as Europe/Berlin, got {excerpt(value)}{meant}")
        return str(value)

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


@dataclass(frozen=True, slots=True)
class Factor:
    least: float
    most: float

    def __call__(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"must be a number, got {excerpt(value)}")
        if not self.least <= value <= self.most:
            raise ValueError(f"must be between {self.least:g} and {self.most:g}, got {excerpt(value)}")
        return float(value)

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": self.least, "maximum": self.most}


def suggestion(word: str, known: Collection[str] | Mapping[str, str]) -> str:
    close = difflib.get_close_matches(word.lower()[:100], list(known), 1, 0.6)
    if not close:
        return ""
    meant = known[close[0]] if isinstance(known, Mapping) else close[0]
    return f", did you mean {meant!r}?"


def _in_order(events: list[str]) -> list[str]:
    return [event.value for event in Event if event in events]


NAME_RULE = Matching(NAME, "1 to 63 letters, digits, '.', '_' and '-', beginning with a letter or digit")
TIME = Matching(HOUR_MINUTE, "a time of day, such as 22:30")
SECONDS = Whole(1, 366 * DAY_SECONDS)
DIGESTS = ("none", "daily", "weekly")
RULES: dict[str, Rule] = {
    "name": NAME_RULE,
    "channels": ListOf(Matching(NAME, "the name of a channel"), 10, 1),
    "events": ListOf(Word(tuple(event.value for event in Event)), len(Event), 1, _in_order),
    "schedule_ids": ListOf(Id(), MOST_SCHEDULES),
    "tags": Tags(MOST_WORDS, Text(64)),
    "job_types": Tags(MOST_WORDS, Text(64)),
    "queues": ListOf(Label(), MOST_WORDS),
    "after_failures": OrNone(Whole(2, 1000)),
    "late_seconds": OrNone(SECONDS),
    "slower_than_seconds": OrNone(SECONDS),
    "slower_than_usual": OrNone(Factor(1.1, 1000)),
    "no_success_seconds": OrNone(Whole(60, 366 * DAY_SECONDS)),
    "quiet_from": OrNone(TIME),
    "quiet_to": OrNone(TIME),
    "quiet_timezone": Zone(),
    "quiet_errors_pass": Flag(),
    "digest": Word(DIGESTS),
    "digest_at": TIME,
    "digest_day": Word(DAYS),
    "digest_timezone": Zone(),
    "enabled": Flag(),
    "note": NOTE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSpec:
    name: str
    channels: list[str]
    events: list[str] = field(default_factory=lambda: [Event.FAILED.value, Event.RECOVERED.value])
    schedule_ids: list[Any] = field(default_factory=list)  # any of them; empty: every schedule
    tags: list[str] = field(default_factory=list)
    job_types: list[str] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    after_failures: int | None = None
    late_seconds: int | None = None
    slower_than_seconds: int | None = None
    slower_than_usual: float | None = None
    no_success_seconds: int | None = None
    quiet_from: str | None = None
    quiet_to: str | None = None
    quiet_timezone: str = "UTC"
    quiet_errors_pass: bool = False
    digest: str = "none"
    digest_at: str = "08:00"
    digest_day: str = "monday"
    digest_timezone: str = "UTC"
    enabled: bool = True
    note: str | None = None


FIELDS = tuple(RULES)


def parse_rule(given: Mapping[str, Any]) -> RuleSpec:
    """Raises InvalidInput with every wrong field."""
    problems = [Problem(name, "is required") for name in ("name", "channels") if name not in given]
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in RULES:
            problems.append(Problem(name, f"is unknown{suggestion(name, FIELDS)} (known: {', '.join(FIELDS)})"))
            continue
        try:
            values[name] = RULES[name](value)
        except ValueError as error:
            problems.append(Problem(name, str(error)))
    problems += _between(values, {problem.field for problem in problems})
    if problems:
        raise InvalidInput(*problems)
    return RuleSpec(**values)


def _between(values: Mapping[str, Any], broken: Collection[str]) -> list[Problem]:
    problems = []
    events = [] if "events" in broken else values.get("events", [Event.FAILED, Event.RECOVERED])
    for event, needed in NEEDS.items():
        have = any(values.get(name) is not None or name in broken for name in needed)
        if event in events and not have:
            problems.append(Problem(needed[0], f"is required for the event {event.value}"))
        if "events" not in broken and event not in events:
            problems += [
                Problem(name, f"has no effect without the event {event.value}: add it to events")
                for name in needed
                if values.get(name) is not None
            ]
    for event in events:
        for name in OF_THE_FLEET.get(Event(event), ()):
            if values.get(name):
                reason = (
                    f"cannot be combined with the event {event}, which concerns no schedule: give it a rule of its own"
                )
                problems.append(Problem(name, reason))
    if list(events) == [Event.RECOVERED]:
        problems.append(Problem("events", "recovered alone reports nothing: add the events whose end it reports"))
    return problems + _quiet(values, broken)


def _quiet(values: Mapping[str, Any], broken: Collection[str]) -> list[Problem]:
    begin, end = values.get("quiet_from"), values.get("quiet_to")
    if {"quiet_from", "quiet_to"} & set(broken):
        return []
    if (begin is None) != (end is None):
        missing = "quiet_from" if begin is None else "quiet_to"
        return [Problem(missing, "is required: quiet hours have a start and an end")]
    if begin is not None and begin == end:
        return [Problem("quiet_to", "must differ from quiet_from; to send nothing at all, disable the rule")]
    return []
