"""What a rule knows about one subject from a problem's beginning to its end, and how equal problems share a message.

A new problem is collected for a few seconds before it is reported: equal incidents of several subjects become one
storm, one message, which later ones join in silence. Ends are collected likewise. Pure: notifier.py loads and saves.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from services.notifications.rule_fields import OF_THE_FLEET, Event
from services.notifications.rules import RuleRecord

GROUPED_FROM = 3  # equal incidents that are one message
DIFFERENT_FROM = 50  # messages of one rule at one time: more of them are one message, however much they differ
DIFFERENT = "different"
JOINED_WITHIN = timedelta(minutes=30)  # of the one that joined last; what comes later is news
TOLD_AGAIN = 10  # times as large as when it was told
STORM = "storm"
ERRORS = (Event.FAILED, Event.FAILING)
LONGEST_GATHER = timedelta(seconds=10)
NAMED = 100  # subjects that a storm remembers by name

Key = tuple[UUID, str, str]  # rule, event, subject
Fire = tuple[datetime, int]  # scheduled for, attempt
_Group = tuple[UUID, str, str, str]  # rule, event, phase, pattern


class Phase(StrEnum):
    COUNTING = "counting"  # failures in a row, not enough of them yet
    GATHERING = "gathering"  # told soon
    TOLD = "told"
    ENDING = "ending"  # its end is reported soon
    OVER = "over"  # kept for a while: what is found a second time is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What rules filter by. For a deleted schedule only the id is known."""

    name: str
    schedule_id: UUID | None = None
    tags: tuple[str, ...] = ()
    job_type: str | None = None
    queue: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """A problem that began, or was found."""

    event: Event
    subject: str
    key: str  # of this beginning; part of the delivery's unique key
    at: datetime
    about: Subject
    words: str  # `failed: connection refused`
    gist: str = ""  # what a storm says, if it is the same for all: `connection refused`
    pattern: str = ""  # equal for incidents that share a message
    severity: str = "error"
    noun: str = ""  # of several of them: `replica`
    fire: Fire | None = None
    is_instant: bool = False  # it has no end
    text: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    path: str | None = None  # of the dashboard


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """All is well with the subject, whether or not it was before."""

    event: Event
    subject: str
    at: datetime
    about: Subject | None
    fire: Fire | None = None


@dataclass(slots=True, kw_only=True)
class Incident:
    """A row of `notification_incidents`."""

    rule_id: UUID
    event: str
    subject: str
    phase: str
    began_at: datetime
    key: str
    pattern: str = ""
    streak: int = 1
    fire_at: datetime | None = None
    attempt: int | None = None
    flush_at: datetime | None = None
    storm: str | None = None
    content: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> Key:
        return self.rule_id, self.event, self.subject

    @property
    def fire(self) -> Fire | None:
        return None if self.fire_at is None else (self.fire_at, self.attempt or 1)

    @property
    def is_open(self) -> bool:
        return self.phase != Phase.OVER

    @property
    def ended_at(self) -> str | None:
        return self.content.get("ended_at")

    def judged(self, fire: Fire | None) -> None:
        if fire is not None:
            self.fire_at, self.attempt = fire


class Kind(StrEnum):
    """The kind of a message."""

    BEGUN = "begun"
    OVER = "over"
    STORM = "storm"
    STORM_OVER = "storm_over"
    OVER_TOGETHER = "over_together"


@dataclass(frozen=True, slots=True)
class Telling:
    """What `flush` found to report: one incident, a storm, or several that ended together."""

    kind: Kind
    rule: RuleRecord
    incident: Incident
    together: tuple[Incident, ...] = ()
    is_update: bool = False  # of what may not have been sent yet


class Incidents:
    """Those that matter at the moment, by their keys; `changed` are to be saved."""

    def __init__(self, known: Iterable[Incident] = (), gather: timedelta = LONGEST_GATHER) -> None:
        self.known: dict[Key, Incident] = {incident.id: incident for incident in known}
        self._gather = gather
        self._changed: dict[Key, None] = {}

    def take_changed(self) -> list[Incident]:
        changed, self._changed = [self.known[key] for key in self._changed], {}
        return changed

    def begin(self, rule: RuleRecord, found: Occurrence, now: datetime) -> None:
        incident = self.known.get((rule.rule_id, found.event, found.subject))
        if incident is not None and (_was_judged(incident, found.fire) or _is_over_already(incident, found)):
            return
        needed = (rule.after_failures or 1) if found.event == Event.FAILING else 1
        if incident is None or not incident.is_open:
            self._open(rule, found, now, needed)
            return
        incident.judged(found.fire)
        incident.streak += 1
        match incident.phase:
            case Phase.COUNTING if incident.streak >= needed:
                self._gather_again(incident, found, now)
            case Phase.GATHERING:
                incident.content.pop("ended_at", None)
            case Phase.ENDING:  # not for long: its end was not reported
                incident.phase, incident.flush_at = Phase.TOLD, None
                incident.content.pop("ended_at", None)
        if incident.fire_at is not None or incident.phase != Phase.TOLD:
            self._note(incident)

    def end(self, rule: RuleRecord, over: Over, now: datetime) -> None:
        incident = self.known.get((rule.rule_id, over.event, over.subject))
        if incident is None or not incident.is_open or _is_later(incident, over.fire):
            return
        incident.judged(over.fire)
        match incident.phase:
            case Phase.COUNTING:
                incident.phase = Phase.OVER
            case Phase.GATHERING:  # one message tells both
                if incident.ended_at is not None:
                    return
                incident.content["ended_at"] = over.at.isoformat()
            case Phase.TOLD:
                incident.content["ended_at"] = over.at.isoformat()
                is_told = incident.storm is None and rule.tells(Event.RECOVERED)
                incident.phase = Phase.ENDING if is_told else Phase.OVER
                incident.flush_at = now + self._gather if is_told else None
            case _:
                return
        self._note(incident)

    def close(self, incident: Incident) -> None:
        """Close it silently: its schedule is deleted or disabled."""
        incident.phase, incident.flush_at = Phase.OVER, None
        self._note(incident)

    def flush(self, rules: Mapping[UUID, RuleRecord], now: datetime) -> Iterator[Telling]:
        """Incidents collected for long enough, and all that are equal to them."""
        groups: dict[_Group, list[Incident]] = defaultdict(list)
        for incident in self.known.values():
            if incident.flush_at is not None and incident.event not in (STORM, "digest"):
                pattern = incident.pattern if incident.phase == Phase.GATHERING else ""
                groups[incident.rule_id, incident.event, incident.phase, pattern].append(incident)
        due = {key: group for key, group in groups.items() if _is_due(group, now) and key[0] in rules}
        for (rule_id, _, _, pattern), group in self._bounded(due, now).items():
            yield from self._flush(rules[rule_id], pattern, sorted(group, key=_by_begin), now)

    def end_storm(self, storm: Incident, rule: RuleRecord, now: datetime) -> Iterator[Telling]:
        """Called when none of its incidents is open any more."""
        storm.phase, storm.flush_at = Phase.OVER, None
        storm.content["ended_at"] = now.isoformat()
        self._note(storm)
        if rule.tells(Event.RECOVERED) and not storm.content.get("is_instant"):
            yield Telling(Kind.STORM_OVER, rule, storm)

    def _storm_of(self, rule_id: UUID, event: str, pattern: str) -> Incident | None:
        found = self.known.get((rule_id, STORM, storm_subject(event, pattern)))
        return found if found is not None and found.is_open else None

    def _takes(self, storm: Incident | None, now: datetime) -> bool:
        """Nothing silently joins a storm reported long ago, nor one of replicas or queues: each of them matters."""
        return (
            storm is not None
            and storm.content.get("event") not in OF_THE_FLEET
            and now < _joined_at(storm) + JOINED_WITHIN
        )

    def _bounded(self, groups: dict[_Group, list[Incident]], now: datetime) -> dict[_Group, list[Incident]]:
        """For one rule and event: too many messages become one group, and so do those that follow."""
        small: dict[tuple[UUID, str], list[_Group]] = defaultdict(list)
        for (rule_id, event, phase, pattern), group in groups.items():
            storm = self._storm_of(rule_id, event, pattern)
            if phase == Phase.GATHERING and len(group) < GROUPED_FROM and not self._takes(storm, now):
                small[rule_id, event].append((rule_id, event, phase, pattern))
        for (rule_id, event), keys in small.items():
            count = sum(len(groups[key]) for key in keys)
            if count >= DIFFERENT_FROM or self._takes(self._storm_of(rule_id, event, DIFFERENT), now):
                together = [incident for key in keys for incident in groups.pop(key)]
                groups[rule_id, event, Phase.GATHERING, DIFFERENT] = together
        return groups

    def _flush(self, rule: RuleRecord, pattern: str, group: list[Incident], now: datetime) -> Iterator[Telling]:
        first = group[0]
        if first.phase == Phase.ENDING:
            for incident in group:
                incident.phase, incident.flush_at = Phase.OVER, None
                self._note(incident)
            if len(group) >= GROUPED_FROM:
                yield Telling(Kind.OVER_TOGETHER, rule, first, tuple(group))
            else:
                yield from (Telling(Kind.OVER, rule, incident) for incident in group)
            return
        storm, is_update = self._storm_of(rule.rule_id, first.event, pattern), False
        if storm is not None and self._takes(storm, now):
            is_update = self._join(storm, group)
        elif len(group) >= GROUPED_FROM:
            storm = self._new_storm(rule, pattern, group, storm)
        else:
            for incident in group:
                incident.storm = None
                self._told(incident)
                yield Telling(Kind.BEGUN, rule, incident)
            return
        for incident in group:
            incident.storm = storm.key
            self._told(incident)
        storm.content["joined_at"] = now.isoformat()
        self._note(storm)
        yield Telling(Kind.STORM, rule, storm, is_update=is_update)

    def _join(self, storm: Incident, group: list[Incident]) -> bool:
        """In silence, unless it is much larger than reported; a subject that left it and returns is not news."""
        new = [incident for incident in group if incident.storm != storm.key]
        storm.streak += len(new)
        _remember(storm, new)
        if storm.streak < TOLD_AGAIN * storm.content.get("told", storm.streak):
            return True
        storm.content |= {"told": storm.streak, "tellings": storm.content.get("tellings", 0) + 1}
        return False

    def _new_storm(self, rule: RuleRecord, pattern: str, group: list[Incident], former: Incident | None) -> Incident:
        """One that lasts from long ago keeps its key: its end is that of all of them."""
        first = group[0]
        words = gist = first.content.get("gist")
        if pattern == DIFFERENT:
            words = f"different {'errors' if first.event in ERRORS else 'messages'}, such as: {gist}"
        elif any(each.content.get("gist") != gist for each in group):
            words = pattern
        subject = storm_subject(first.event, pattern)
        storm = Incident(
            rule_id=rule.rule_id,
            event=STORM,
            subject=subject,
            phase=Phase.TOLD,
            began_at=first.began_at,
            key=f"{subject}:{first.key}" if former is None else former.key,
            pattern=pattern,
            streak=len(group),
            content={
                **{name: first.content.get(name) for name in ("severity", "noun", "path", "is_instant")},
                "event": first.event,
                "words": words,
                "names": [],
                "told": len(group),
                "tellings": 0 if former is None else former.content.get("tellings", 0) + 1,
            },
        )
        _remember(storm, group)
        self.known[storm.id] = storm
        return storm

    def _open(self, rule: RuleRecord, found: Occurrence, now: datetime, needed: int) -> None:
        former = self.known.get((rule.rule_id, found.event, found.subject))
        incident = Incident(
            rule_id=rule.rule_id,
            event=found.event.value,
            subject=found.subject,
            phase=Phase.COUNTING,
            began_at=found.at,
            key=found.key,
            storm=None if former is None else former.storm,
        )
        incident.judged(found.fire)
        self.known[incident.id] = incident
        if needed == 1:
            self._gather_again(incident, found, now)
        self._note(incident)

    def _gather_again(self, incident: Incident, found: Occurrence, now: datetime) -> None:
        incident.phase, incident.flush_at, incident.pattern = Phase.GATHERING, now + self._gather, found.pattern
        incident.content = {
            "name": found.about.name,
            "words": found.words,
            "gist": found.gist or found.words,
            "severity": found.severity,
            "text": found.text,
            "facts": dict(found.facts),
            "data": dict(found.data),
            "path": found.path,
            "noun": found.noun or ("schedule" if found.about.schedule_id else "job"),
            "is_instant": found.is_instant,
        }

    def _told(self, incident: Incident) -> None:
        is_over = incident.ended_at is not None or incident.content.get("is_instant")
        incident.phase, incident.flush_at = Phase.OVER if is_over else Phase.TOLD, None
        self._note(incident)

    def _note(self, incident: Incident) -> None:
        self._changed[incident.id] = None


def matches(rule: RuleRecord, about: Subject) -> bool:
    return (
        (not rule.schedule_ids or about.schedule_id in rule.schedule_ids)
        and (not rule.tags or any(tag in rule.tags for tag in about.tags))
        and (not rule.job_types or about.job_type in rule.job_types)
        and (not rule.queues or about.queue in rule.queues)
    )


def apply(incidents: Incidents, rules: Iterable[RuleRecord], found: Iterable[Occurrence | Over], now: datetime) -> None:
    """In their order. The end of an incident goes where its beginning was reported, whatever the filters say by now."""
    rules = list(rules)
    for each in found:
        for rule in rules:
            if not rule.tells(each.event):
                continue
            if isinstance(each, Over):
                incidents.end(rule, each, now)
            elif matches(rule, each.about):
                incidents.begin(rule, each, now)


def storm_subject(event: str, pattern: str) -> str:
    return f"{event}:{hashlib.sha256(pattern.encode()).hexdigest()[:16]}"


def _remember(storm: Incident, group: Iterable[Incident]) -> None:
    names = storm.content["names"]
    names += [each.content.get("name", each.subject) for each in group][: NAMED - len(names)]


def _is_due(group: Iterable[Incident], now: datetime) -> bool:
    return min(each.flush_at for each in group if each.flush_at) <= now


def _joined_at(storm: Incident) -> datetime:
    at = storm.content.get("joined_at")
    return storm.began_at if at is None else datetime.fromisoformat(at)


def _is_over_already(incident: Incident, found: Occurrence) -> bool:
    """The very same beginning, found once more."""
    return not incident.is_open and found.fire is None and incident.key == found.key


def _was_judged(incident: Incident, fire: Fire | None) -> bool:
    return fire is not None and incident.fire is not None and fire <= incident.fire


def _is_later(incident: Incident, fire: Fire | None) -> bool:
    """A fire later than this one was judged."""
    return fire is not None and incident.fire is not None and fire < incident.fire


def _by_begin(incident: Incident) -> datetime:
    return incident.began_at
