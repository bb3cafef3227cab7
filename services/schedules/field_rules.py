"""The rule of each field of a schedule, written once: the spec applies it, OpenAPI and the form show it.

The CHECK constraints and column types of the table allow everything that a rule allows; a test compares them. They are
older than some rules and allow more: rows written by SQL meet the rules in the spec.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol
from urllib.parse import urlsplit
from uuid import UUID

from config import LABEL
from database.models import Catchup, Source
from services.triggers import FREQUENCIES

DAY_SECONDS = 86_400
MAX_JSON_BYTES, MAX_JSON_DEPTH, MAX_JSON_NUMBER = 64 * 1024, 64, 10**309
# Rare in practice, so the full check costs almost nothing: an escaped NUL, or a long number.
SUSPICIOUS_JSON = re.compile(r"\\u0000|\d{300}")


class Rule(Protocol):
    def __call__(self, value: Any) -> Any:
        """The value in canonical form; raises ValueError with the reason."""

    @property
    def schema(self) -> dict[str, Any]:
        """The rule as JSON Schema."""


@dataclass(frozen=True, slots=True)
class OrNone:
    rule: Rule

    def __call__(self, value: Any) -> Any:
        return None if value is None else self.rule(value)

    @property
    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self.rule.schema, {"type": "null"}]}


@dataclass(frozen=True, slots=True)
class Text:
    longest: int
    words: tuple[str, ...] = ()  # all that a later check accepts, for the schema; that check suggests the right word

    def __call__(self, value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"must be text, got {excerpt(value)}")
        if not value.strip():
            raise ValueError("must not be empty")
        if len(value) > self.longest:
            raise ValueError(f"has {len(value)} characters; at most {self.longest} are allowed")
        if not value.isprintable():
            raise ValueError("must not contain control characters")
        return value.strip()

    @property
    def schema(self) -> dict[str, Any]:
        if self.words:
            return {"type": "string", "enum": list(self.words)}
        return {"type": "string", "minLength": 1, "maxLength": self.longest}


@dataclass(frozen=True, slots=True)
class Note:
    """Whitespace collapsed to one line; an empty note becomes None."""

    longest: int

    def __call__(self, value: Any) -> str | None:
        line = " ".join(value.split()) if isinstance(value, str) else value
        return None if line is None or line == "" else Text(self.longest)(line)

    @property
    def schema(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "maxLength": self.longest}, {"type": "null"}]}


@dataclass(frozen=True, slots=True)
class Whole:
    least: int
    most: int

    def __call__(self, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"must be a whole number, got {excerpt(value)}")
        if not self.least <= value <= self.most:
            raise ValueError(f"must be between {self.least} and {self.most}, got {excerpt(value)}")
        return value

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class WebAddress:
    """`${env:NAME}` may stand anywhere in it."""

    longest: int

    def __call__(self, value: Any) -> str:
        address = Text(self.longest)(value)
        if not re.match(r"(?i)https?://", address):
            raise ValueError("must start with http:// or https://")
        try:
            parts = urlsplit(address)
            _ = parts.port  # raises for an invalid port
        except ValueError:
            raise ValueError("is not a URL") from None
        if not parts.hostname or re.search(r"\s", address):
            raise ValueError("must be a URL with a host and without spaces")
        if parts.username or parts.fragment:
            raise ValueError("must have neither a user name nor a fragment ('#')")
        return address

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://\\S+$", "maxLength": self.longest}


class Flag:
    def __call__(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"must be true or false, got {excerpt(value)}")
        return value

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class OneOf:
    words: type[StrEnum]

    def __call__(self, value: Any) -> str:
        if value not in list(self.words):
            raise ValueError(f"must be one of {', '.join(self.words)}, got {excerpt(value)}")
        return str(value)

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.words)}


class Instant:
    def __call__(self, value: Any) -> datetime:
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                raise ValueError(f"must be an ISO 8601 timestamp, got {excerpt(value)}") from None
        if not isinstance(value, datetime):
            raise ValueError(f"must be a timestamp, got {excerpt(value)}")
        if value.tzinfo is None:
            raise ValueError(f"needs a UTC offset, as in {value.isoformat()}+00:00")
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise ValueError(f"must be between the years 1 and 9999 in UTC, got {value.isoformat()}") from None

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "format": "date-time"}


class Id:
    def __call__(self, value: Any) -> UUID:
        try:
            return value if isinstance(value, UUID) else UUID(value)
        except (ValueError, TypeError, AttributeError):
            raise ValueError(f"must be a UUID, got {excerpt(value)}") from None

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "format": "uuid"}


@dataclass(frozen=True, slots=True)
class AnyId:
    """A UUID, or the id of another system."""

    text: Text

    def __call__(self, value: Any) -> UUID | str:
        return value if isinstance(value, UUID) else self.text(value)

    @property
    def schema(self) -> dict[str, Any]:
        return self.text.schema


@dataclass(frozen=True, slots=True)
class Tags:
    most: int
    tag: Text

    def __call__(self, value: Any) -> list[str]:
        if not isinstance(value, list | tuple | set) or len(value) > self.most:
            raise ValueError(f"must be a list of at most {self.most} words, got {excerpt(value)}")
        return list(dict.fromkeys(self.tag(tag) for tag in value))

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.tag.schema, "maxItems": self.most}


@dataclass(frozen=True, slots=True)
class Label:
    """A word that replicas offer, as ABILITIES and QUEUES spell them."""

    def __call__(self, value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(LABEL, value.strip()):
            allowed = "1 to 63 lower-case letters, digits, '_', '.' and '-', beginning with a letter or digit"
            raise ValueError(f"must be {allowed}, got {excerpt(value)}")
        return value.strip()

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{LABEL}$"}


@dataclass(frozen=True, slots=True)
class Labels:
    most: int

    def __call__(self, value: Any) -> list[str]:
        if not isinstance(value, list | tuple | set) or len(value) > self.most:
            raise ValueError(f"must be a list of at most {self.most} labels, got {excerpt(value)}")
        return sorted({Label()(each) for each in value})

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": Label().schema, "maxItems": self.most}


ANY = "*"


@dataclass(frozen=True, slots=True)
class LimitKey:
    """A key that limits count by; with `is_pattern` also the beginning of keys, with `*` at its end."""

    is_pattern: bool = False

    def __call__(self, value: Any) -> str:
        key = value.strip() if isinstance(value, str) else ""
        plain = key.removesuffix(ANY) if self.is_pattern else key
        if not 1 <= len(key) <= 200 or not plain.isprintable() or re.search(r"[,*\s]", plain):
            allowed = "1 to 200 printable characters without spaces, ',' and '*'"
            end = "; a pattern ends in one '*'" if self.is_pattern else ""
            raise ValueError(f"must be {allowed}{end}, got {excerpt(value)}")
        return key

    @property
    def schema(self) -> dict[str, Any]:
        end = "|[^,*\\s]{0,199}[*]" if self.is_pattern else ""
        return {"type": "string", "pattern": f"^([^,*\\s]{{1,200}}{end})$"}


@dataclass(frozen=True, slots=True)
class LimitKeys:
    most: int

    def __call__(self, value: Any) -> list[str]:
        if not isinstance(value, list | tuple | set) or len(value) > self.most:
            raise ValueError(f"must be a list of at most {self.most} keys, got {excerpt(value)}")
        return sorted({LimitKey()(each) for each in value})

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": LimitKey().schema, "maxItems": self.most}


class JsonObject:
    def __call__(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError(f"must be an object, got {excerpt(value)}")
        try:
            encoded = json.dumps(value, allow_nan=False, default=_json_time, ensure_ascii=False)
            size = len(encoded.encode())
        except (TypeError, ValueError) as error:
            raise ValueError(f"cannot be stored as JSON: {str(error).lower()}") from None
        except RecursionError:
            raise ValueError(f"is nested too deeply; at most {MAX_JSON_DEPTH} levels are allowed") from None
        if size > MAX_JSON_BYTES:
            raise ValueError(f"has {size} bytes as JSON; at most {MAX_JSON_BYTES} are allowed")
        plain: dict[str, Any] = json.loads(encoded)  # as Postgres will return it: times and keys as text
        if SUSPICIOUS_JSON.search(encoded) or encoded.count("[") + encoded.count("{") > MAX_JSON_DEPTH:
            _refuse_what_postgres_cannot_hold(plain)
        return plain

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


def _json_time(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _refuse_what_postgres_cannot_hold(plain: dict[str, Any]) -> None:
    waiting: list[tuple[Any, int]] = [(plain, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_JSON_DEPTH:
            raise ValueError(f"is nested too deeply; at most {MAX_JSON_DEPTH} levels are allowed")
        if isinstance(value, str) and "\0" in value:
            raise ValueError("must not contain NUL characters")
        if isinstance(value, int | float) and abs(value) >= MAX_JSON_NUMBER:
            raise ValueError("must not contain numbers of more than 300 digits")
        if isinstance(value, dict):
            waiting += [(part, depth + 1) for part in (*value.values(), *value)]
        if isinstance(value, list):
            waiting += [(part, depth + 1) for part in value]


def excerpt(value: object) -> str:
    """The value as an error message quotes it."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python refuses to write out a number of more than 4300 digits
        return "a value too large to show"
    return text if len(text) <= 60 else text[:57] + "..."


NOTE = Note(500)
LIMIT_NAME, MAX_RUNNING = LimitKey(is_pattern=True), Whole(0, 100_000)  # of a row of `limits`
REQUIRED = ("domain", "frequency", "time_config")
RULES: dict[str, Rule] = {
    "domain": Text(255),
    "frequency": Text(50, FREQUENCIES),
    "time_config": JsonObject(),
    "domain_config_id": OrNone(AnyId(Text(255))),
    "external_id": OrNone(Text(255)),
    "profile_id": OrNone(Id()),
    "enabled": Flag(),
    "disabled_note": NOTE,
    "name": OrNone(Text(255)),
    "timezone": Text(64),
    "job_type": Text(64),
    "job_config": JsonObject(),
    "priority": Whole(-1000, 1000),
    "tags": Tags(50, Text(64)),
    "requires": Labels(10),
    "queue": OrNone(Label()),
    "limit_keys": LimitKeys(8),
    "start_at": OrNone(Instant()),
    "end_at": OrNone(Instant()),
    "spread_seconds": Whole(0, DAY_SECONDS),
    "source": OneOf(Source),
    "max_instances": OrNone(Whole(1, 1000)),
    "coalesce": OrNone(Flag()),
    "misfire_grace_seconds": OrNone(Whole(1, DAY_SECONDS)),
    "timeout_seconds": OrNone(Whole(1, 30 * DAY_SECONDS)),
    "max_retries": OrNone(Whole(0, 100)),
    "retry_backoff_seconds": OrNone(Whole(0, DAY_SECONDS)),
    "catchup": OrNone(OneOf(Catchup)),
    "pause_after_failures": OrNone(Whole(1, 1000)),
    "backoff_after_failures": OrNone(Whole(1, 1000)),
    "ping_url": OrNone(WebAddress(2000)),
}


def rule_of(name: str) -> Rule:
    """The rule of the field's values, apart from None."""
    rule = RULES[name]
    return rule.rule if isinstance(rule, OrNone) else rule
