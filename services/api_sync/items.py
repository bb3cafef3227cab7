"""One item of the external API: validated, and translated into the fields of a schedule. No I/O.

`{"domain_config_id", "data": {"domain", …, "schedule": {"frequency", "time"}}}`; other keys are ignored. Types are
checked here. Values such as times and domains are validated like those of every schedule (`schedules.spec`).
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from services.errors import Problem
from services.schedules.field_rules import RULES
from services.schedules.spec import config_id

logger = logging.getLogger(__name__)

JOB_TYPE = "cookie_scan"
SHOWN_CHARACTERS = 80
LOGGED_ITEMS = 20
TOLD_REASONS = 10
TOO_DEEP = "is nested too deeply"


class _Timing(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    frequency: str
    time: dict[str, Any]


class _Data(BaseModel):
    """The item's fields in the API's spelling."""

    model_config = ConfigDict(strict=True, extra="ignore")

    domain: str
    schedule: _Timing
    description: str | None = None
    allow_deep_scan: bool | None = None
    maxPages: int | None = None
    scanDepth: int | None = None
    maxRetries: int | None = None
    customPages: list[str] | None = Field(None, fail_fast=True)
    accept_selector: str | None = None


# The API's scan fields, and the names under which they are stored.
SCAN_FIELDS = {
    "description": "description",
    "allow_deep_scan": "allow_deep_scan",
    "maxPages": "max_pages",
    "scanDepth": "scan_depth",
    "maxRetries": "max_retries",
    "customPages": "custom_pages",
    "accept_selector": "accept_selector",
}
# The API's names of a schedule's fields, for the error messages about an item.
THEIR_NAMES = {
    "domain": "data.domain",
    "frequency": "data.schedule.frequency",
    "time_config": "data.schedule.time",
    **{f"job_config.{ours}": f"data.{theirs}" for theirs, ours in SCAN_FIELDS.items()},
    "job_config": "data",
}


class _Item(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    domain_config_id: str | int
    data: _Data


@dataclass(frozen=True, slots=True)
class ApiItem:
    """A well-formed item. `number` is its position in the response, from 1."""

    number: int
    config_id: UUID
    given_id: str
    digest: str  # digest of the fields below
    domain: str
    frequency: str
    time_config: Mapping[str, Any]
    job_config: Mapping[str, Any]

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that the API owns."""
        return {
            "domain": self.domain,
            "frequency": self.frequency,
            "time_config": self.time_config,
            "job_type": JOB_TYPE,
            "job_config": self.job_config,
        }


@dataclass(frozen=True, slots=True)
class BadItem:
    number: int
    label: str
    reasons: tuple[str, ...]


_IN_ORDER = json.JSONEncoder(sort_keys=True)


class Unreadable:
    """Placeholder for an item that is JSON, but nested too deeply."""

    def __repr__(self) -> str:
        return "something nested too deeply"


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """An item with duplicate keys: its meaning is ambiguous."""

    item: Any
    keys: tuple[str, ...]


class ApiItems:
    """Reads items one by one and records their ids: an item that is present but invalid has not vanished."""

    def __init__(self) -> None:
        self._seen: dict[bytes, int] = {}
        self.unidentified = 0

    def __contains__(self, config_bytes: bytes) -> bool:
        return config_bytes in self._seen

    def read(self, raw_items: Iterable[Any]) -> Iterator[ApiItem | BadItem]:
        for number, raw in enumerate(raw_items, 1):
            yield self._read_one(number, raw)

    def _read_one(self, number: int, raw: Any) -> ApiItem | BadItem:
        repeated: tuple[str, ...] = ()
        if isinstance(raw, Ambiguous):
            raw, repeated = raw.item, raw.keys
        identity = None if "domain_config_id" in repeated else _identity(raw)
        if identity is None:
            self.unidentified += 1
            return BadItem(number, _label(raw), _there_twice(repeated) or _reasons_of_shape(raw))
        first = self._seen.setdefault(identity.bytes, number)
        if first != number:
            given = plain_line(raw["domain_config_id"])
            return BadItem(number, _label(raw), (f"domain_config_id: {given!r} is already used by item {first}",))
        if repeated:
            return BadItem(number, _label(raw), _there_twice(repeated))
        try:
            return _api_item(number, identity, _Item.model_validate(raw))
        except ValidationError as error:
            return BadItem(number, _label(raw), few([_reason(problem) for problem in error.errors(include_url=False)]))
        except RecursionError:
            return BadItem(number, _label(raw), (TOO_DEEP,))


def their_words(problem: Problem) -> str:
    """A schedule's problem under the API's own field name."""
    for ours, theirs in THEIR_NAMES.items():
        if problem.field == ours or problem.field.startswith(f"{ours}."):
            return f"{theirs}{problem.field.removeprefix(ours)}: {problem.reason}"
    return str(problem)


def few_of(problems: Sequence[Problem]) -> tuple[str, ...]:
    return few([their_words(problem) for problem in problems], sum(problem.stands_for for problem in problems))


def few(reasons: Sequence[str], total: int | None = None) -> tuple[str, ...]:
    """The first reasons only: an invalid item may have any number. `total`: if there are more than `reasons`."""
    more = (len(reasons) if total is None else total) - TOLD_REASONS
    return (*reasons[:TOLD_REASONS], *([f"… and {more:,} more"] if more > 0 else []))


def plain_line(value: object) -> str:
    """Text from the API on one line, shortened, without control characters."""
    text = value if isinstance(value, str) else _as_text(value)
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def log_skipped(items: Sequence[BadItem]) -> None:
    """Logs the first ones only: a thousand lines every few minutes would hide everything else."""
    for item in items[:LOGGED_ITEMS]:
        facts = {"event": "sync_item_skipped", "item": item.number}
        logger.warning("item %d (%s) is skipped: %s", item.number, item.label, "; ".join(item.reasons), extra=facts)
    if len(items) > LOGGED_ITEMS:
        more = len(items) - LOGGED_ITEMS
        logger.warning("at least %d more items are skipped", more, extra={"event": "sync_items_skipped"})


def _as_text(value: object) -> str:
    try:
        return repr(value)
    except (ValueError, RecursionError):
        return "a value too large to show"


def _identity(raw: Any) -> UUID | None:
    given = raw.get("domain_config_id") if isinstance(raw, dict) else None
    if isinstance(given, bool) or not isinstance(given, str | int):
        return None
    try:
        return config_id(RULES["domain_config_id"](str(given)))
    except ValueError:
        return None


def _api_item(number: int, identity: UUID, item: _Item) -> ApiItem:
    data = item.data
    scan = {ours: value for theirs, ours in SCAN_FIELDS.items() if (value := getattr(data, theirs)) is not None}
    said = (data.domain, data.schedule.frequency, data.schedule.time, scan)
    return ApiItem(
        number=number,
        config_id=identity,
        given_id=str(item.domain_config_id).strip(),
        digest=blake2b(_IN_ORDER.encode(said).encode(), digest_size=16).hexdigest(),
        domain=data.domain,
        frequency=data.schedule.frequency,
        time_config=data.schedule.time,
        job_config=scan,
    )


def _label(raw: Any) -> str:
    """The best available name of an item."""
    if not isinstance(raw, dict):
        return plain_line(raw)
    data = raw.get("data")
    domain = data.get("domain") if isinstance(data, dict) else None
    return plain_line(domain if isinstance(domain, str) and domain else raw.get("domain_config_id", "without an id"))


def _there_twice(keys: tuple[str, ...]) -> tuple[str, ...]:
    return few([f"duplicate key {plain_line(key)!r}" for key in keys])


def _reasons_of_shape(raw: Any) -> tuple[str, ...]:
    """Why an item cannot be identified."""
    if isinstance(raw, Unreadable):
        return (TOO_DEEP,)
    if not isinstance(raw, dict):
        return (f"must be an object, got {plain_line(_as_text(raw))}",)
    if raw.get("domain_config_id") is None:
        return ("domain_config_id: is required",)
    try:
        RULES["domain_config_id"](raw["domain_config_id"])
    except ValueError as error:
        return (f"domain_config_id: {error}",)
    return ("domain_config_id: must be text",)


# pydantic's error types in the wording of this project.
_MUST_BE = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
}


def _reason(problem: ErrorDetails) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        return f"{where}: is required"
    wanted = _MUST_BE.get(problem["type"])
    said = f"must be {wanted}, got {plain_line(_as_text(problem['input']))}" if wanted else problem["msg"].lower()
    return f"{where}: {said}"
