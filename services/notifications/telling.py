"""Turns events into deliveries: the words, the quiet hours, the digests, one delivery for each channel."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urljoin

from services.notifications.deliveries import NewDelivery
from services.notifications.hours import digest_due, quiet_until
from services.notifications.incidents import Incident, Kind, Phase, Telling
from services.notifications.messages import Message, Severity
from services.notifications.rule_fields import MEANINGS, Event
from services.notifications.rules import RuleRecord
from services.wording.counts import counted
from services.wording.durations import duration

DIGEST = "digest"
DIGEST_LINES = 100
SHOWN_NAMES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A message with its place in `(rule, event, subject)`."""

    rule: RuleRecord
    event: str
    subject: str
    message: Message
    is_update: bool = False


class Teller:
    """`public_url`: of the dashboard."""

    def __init__(self, public_url: str | None) -> None:
        self._public_url = public_url

    def tell(self, telling: Telling, now: datetime) -> Told:
        rule, incident = telling.rule, telling.incident
        match telling.kind:
            case Kind.BEGUN:
                return Told(
                    rule=rule,
                    event=incident.event,
                    subject=f"{incident.subject}:{incident.key}",
                    message=self._begun(rule, incident),
                )
            case Kind.OVER:
                subject = f"{incident.event}:{incident.subject}:{incident.key}"
                return Told(rule=rule, event="recovered", subject=subject, message=self._over(rule, incident, now))
            case Kind.OVER_TOGETHER:
                subject = f"{incident.event}:{incident.subject}:{incident.key}:together"
                message = self._over_together(rule, telling.together)
                return Told(rule=rule, event="recovered", subject=subject, message=message)
            case Kind.STORM:
                message, again = self._storm(rule, incident), incident.content.get("tellings", 0)
                subject = f"{incident.key}:{again}" if again else incident.key
                return Told(rule=rule, event="storm", subject=subject, message=message, is_update=telling.is_update)
            case Kind.STORM_OVER:
                subject = f"storm:{incident.key}"
                return Told(
                    rule=rule, event="recovered", subject=subject, message=self._storm_over(rule, incident, now)
                )

    def digest(self, rule: RuleRecord, digest: Incident) -> Told:
        counts: dict[str, int] = digest.content["counts"]
        total, lines = sum(counts.values()), list(digest.content["lines"])
        if total > len(lines):
            lines.append(f"and {total - len(lines):,} more")
        message = Message(
            event=DIGEST,
            title=f"{counted(total, 'notification')} since {_at(digest.began_at)} ({rule.name})",
            text="\n".join(lines),
            severity=Severity.INFO,
            link=self._link("/"),
            facts={event: f"{count:,}" for event, count in sorted(counts.items())},
            data={"rule": rule.name, "since": digest.began_at.isoformat(), "counts": counts},
        )
        return Told(rule=rule, event=DIGEST, subject=digest.key, message=message)

    def _begun(self, rule: RuleRecord, incident: Incident) -> Message:
        content, over = incident.content, incident.ended_at
        ended = {} if over is None else {"Recovered at": _at(datetime.fromisoformat(over))}
        return Message(
            event=incident.event,
            title=f"{content['name']} {content['words']}" + (" (recovered since)" if over else ""),
            text=content["text"],
            severity=Severity(content["severity"]),
            link=self._link(content["path"]),
            facts={**content["facts"], **ended},
            data=_data(rule, incident, **content["data"], recovered_at=over),
        )

    def _over(self, rule: RuleRecord, incident: Incident, now: datetime) -> Message:
        content = incident.content
        ended_at = datetime.fromisoformat(incident.ended_at) if incident.ended_at else now
        facts = {"Was": content["words"], "Since": _at(incident.began_at), "Until": _at(ended_at)}
        if incident.event in (Event.FAILED, Event.FAILING):
            facts["Failures in a row"] = f"{incident.streak:,}"
        return Message(
            event="recovered",
            title=f"{content['name']} recovered after {_lasted(incident.began_at, ended_at)}",
            text=f"{content['words']}",
            severity=Severity.RESOLVED,
            link=self._link(content["path"]),
            facts=facts,
            data=_data(rule, incident, **content["data"], recovered_at=ended_at.isoformat(), of=incident.event),
        )

    def _over_together(self, rule: RuleRecord, group: Iterable[Incident]) -> Message:
        group = tuple(group)
        first = group[0]
        names = [each.content.get("name", each.subject) for each in group]
        return Message(
            event="recovered",
            title=f"{_many(first, len(group))} recovered: {MEANINGS[Event(first.event)].partition(':')[0]}",
            text=_listed(names, len(group)),
            severity=Severity.RESOLVED,
            link=self._link(first.content.get("path") if len(group) == 1 else "/"),
            data=_data(rule, first, of=first.event, count=len(group)),
        )

    def _storm(self, rule: RuleRecord, storm: Incident) -> Message:
        content = storm.content
        return Message(
            event="storm",
            title=f"{_many(storm, storm.streak)}: {content['words']}, since {_at(storm.began_at)}",
            text=_listed(content["names"], storm.streak),
            severity=Severity(content["severity"]),
            link=self._link("/"),
            facts={"Event": content["event"]},
            data=_data(rule, storm, of=content["event"], count=storm.streak),
        )

    def _storm_over(self, rule: RuleRecord, storm: Incident, now: datetime) -> Message:
        content = storm.content
        return Message(
            event="recovered",
            title=f"{_many(storm, storm.streak)}: over after {_lasted(storm.began_at, now)}: {content['words']}",
            text=_listed(content["names"], storm.streak),
            severity=Severity.RESOLVED,
            link=self._link("/"),
            facts={"Since": _at(storm.began_at), "Until": _at(now)},
            data=_data(rule, storm, of=content["event"], count=storm.streak),
        )

    def _link(self, path: str | None) -> str | None:
        if self._public_url is None or path is None:
            return None
        return urljoin(self._public_url.rstrip("/") + "/", path.lstrip("/"))


def deliveries(told: Told, now: datetime) -> list[NewDelivery]:
    """One for each channel of the rule, after its quiet hours."""
    rule, due_at = told.rule, None
    if not (rule.quiet_errors_pass and told.message.severity is Severity.ERROR):
        due_at = quiet_until(rule, now)
    return [
        NewDelivery(
            channel_id=channel_id,
            rule_id=rule.rule_id,
            event=told.event,
            subject=delivery_subject(told.subject, channel_id, is_first=place == 0),
            message=told.message,
            due_at=due_at,
        )
        for place, channel_id in enumerate(rule.channel_ids)
    ]


def delivery_subject(subject: str, channel_id: Any, *, is_first: bool) -> str:
    """The unique key of deliveries does not contain the channel."""
    return subject if is_first else f"{subject}@{channel_id}"


def put_into_digest(digest: Incident | None, told: Told, now: datetime) -> Incident | None:
    """The digest of the rule with this message in it; None: the rule has no digests."""
    due_at = digest_due(told.rule, now)
    if due_at is None:
        return None
    if digest is None or not digest.is_open:
        digest = Incident(
            rule_id=told.rule.rule_id,
            event=DIGEST,
            subject=DIGEST,
            phase=Phase.GATHERING,
            began_at=now,
            key=due_at.isoformat(),
            flush_at=due_at,
            content={"counts": {}, "lines": []},
        )
    counts, lines = Counter(digest.content["counts"]), digest.content["lines"]
    counts[told.event] += 1
    digest.content["counts"] = dict(counts)
    if len(lines) < DIGEST_LINES:
        lines.append(f"{_at(now)}  {told.message.title}")
    return digest


def _data(rule: RuleRecord, incident: Incident, **more: Any) -> dict[str, Any]:
    found = {"rule": rule.name, "since": incident.began_at.isoformat(), **more}
    return {name: value for name, value in found.items() if value is not None}


def _many(incident: Incident, count: int) -> str:
    return counted(count, incident.content.get("noun") or "subject")


def _listed(names: list[str], count: int) -> str:
    shown = names[:SHOWN_NAMES]
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def _lasted(since: datetime, until: datetime) -> str:
    return duration(max(until - since, until - until))


def _at(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
