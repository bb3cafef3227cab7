"""What a notification says: the value that rules make, that a delivery keeps as JSON, and that channels send. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from enhanced_scheduler.texts import cut, json_size, masked, storable, storable_json

MAX_TITLE, MAX_TEXT, MAX_FACT = 300, 20_000, 2_000  # characters
MAX_FACTS = 50
MAX_DATA_BYTES = 64 * 1024


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    RESOLVED = "resolved"


_SEVERITIES = frozenset(Severity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Cleaned and bounded when it is made: errors of jobs are quoted in it, whatever they contain."""

    event: str  # failed, recovered, late, …, test
    title: str  # one line
    text: str = ""  # plain lines
    severity: Severity = Severity.INFO
    link: str | None = None  # to our dashboard
    facts: Mapping[str, str] = field(default_factory=dict)  # label -> what people read
    data: Mapping[str, Any] = field(default_factory=dict)  # what programs read

    def __post_init__(self) -> None:
        facts = [(_clean(str(label), MAX_TITLE), _clean(str(value), MAX_FACT)) for label, value in self.facts.items()]
        for name, value in {
            "title": _clean(" ".join(self.title.split()), MAX_TITLE),
            "text": _clean(self.text, MAX_TEXT),
            "severity": Severity(self.severity),
            "facts": dict(facts[:MAX_FACTS]),
            "data": _bounded(storable_json(dict(self.data), masked)),
        }.items():
            object.__setattr__(self, name, value)

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "text": self.text,
            "severity": self.severity.value,
            "event": self.event,
            "link": self.link,
            "facts": dict(self.facts),
            "data": dict(self.data),
        }

    def stored(self) -> dict[str, Any]:
        """For a jsonb column, which does not keep the order of keys."""
        return {**self.to_json(), "order": list(self.facts)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Tolerates a row of another version: missing fields have their defaults."""
        severity = str(found.get("severity"))
        facts = _object(found.get("facts"))
        order = [label for label in found.get("order") or () if label in facts]
        return cls(
            event=str(found.get("event", "")),
            title=str(found.get("title", "")),
            text=str(found.get("text", "")),
            severity=Severity(severity) if severity in _SEVERITIES else Severity.INFO,
            link=None if found.get("link") is None else str(found["link"]),
            facts={label: str(facts[label]) for label in dict.fromkeys([*order, *facts])},
            data=_object(found.get("data")),
        )

    @property
    def lines(self) -> str:
        """The text, then the facts, then the link: the body of a mail or a chat message."""
        facts = "\n".join(f"{label}: {value}" for label, value in self.facts.items())
        return "\n\n".join(part for part in (self.text, facts, self.link or "") if part)


def _object(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _bounded(data: dict[str, Any]) -> dict[str, Any]:
    return data if json_size(data) <= MAX_DATA_BYTES else {"cut": True}


def _clean(text: str, limit: int) -> str:
    return cut(storable(masked(text)), limit)
