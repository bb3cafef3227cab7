"""Validation of a schedule's definition: all problems are reported at once, each with its field.

`parse_spec` validates user input and rows written by SQL alike. No I/O.
"""

import difflib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, TypedDict
from uuid import UUID, uuid5

from database.models import Source
from enhanced_scheduler.extras import how_to_install
from services.checks.hostnames import bare_host
from services.errors import InvalidInput, InvalidSchedule, Problem
from services.jobs import JobRegistry
from services.jobs.registry import missing_extra
from services.schedules.field_rules import NOTE, REQUIRED, RULES, Id, excerpt
from services.triggers import Trigger, parse_trigger, stored_trigger

# Must never change: stored ids are derived from it.
EXTERNAL_IDS = UUID("7d4c9d52-64b5-5a9c-8e0f-6a1c0a3c9b11")
UUID_DIGITS = 32
MOST_PROBLEMS, LONGEST_NAME = 20, 100  # problems listed for one schedule; the rest is only counted
JOB_KEY = "job:"  # and a job type: the limit key that all its schedules have
DEFAULT_JOB_TYPE, DEFAULT_TIMEZONE, DEFAULT_QUEUE = "cookie_scan", "UTC", "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """The definition of a schedule. A policy of None falls back to the setting."""

    domain: str
    frequency: str
    time_config: Mapping[str, Any]
    domain_config_id: UUID | None = None  # None: the schedule gets its own id
    external_id: str | None = None
    profile_id: UUID | None = None
    enabled: bool = True
    disabled_note: str | None = None  # why it is disabled
    name: str | None = None
    timezone: str = DEFAULT_TIMEZONE
    job_type: str = DEFAULT_JOB_TYPE
    job_config: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    tags: list[str] = field(default_factory=list)
    requires: list[str] = field(default_factory=list)  # labels that a replica must offer
    queue: str | None = None  # None: DEFAULT_QUEUE
    limit_keys: list[str] = field(default_factory=list)  # limits count by them, and by the job type
    start_at: datetime | None = None
    end_at: datetime | None = None
    spread_seconds: int = 0
    source: str = Source.MANUAL
    max_instances: int | None = None
    coalesce: bool | None = None
    misfire_grace_seconds: int | None = None
    timeout_seconds: int | None = None
    max_retries: int | None = None
    retry_backoff_seconds: int | None = None
    catchup: str | None = None
    pause_after_failures: int | None = None  # None: never
    backoff_after_failures: int | None = None
    ping_url: str | None = None  # told of each run's start and end

    @property
    def trigger(self) -> Trigger:
        """Shared by all schedules with the same timing."""
        timing = json.dumps(self.time_config)
        return stored_trigger(self.frequency, timing, self.timezone, self.start_at, self.end_at)

    @property
    def queue_name(self) -> str:
        return self.queue or DEFAULT_QUEUE

    @property
    def all_limit_keys(self) -> list[str]:
        """Each schedule has one for its job type, besides its own; in the order in which they are asked."""
        return sorted({*self.limit_keys, f"{JOB_KEY}{self.job_type}"})

    def next_run_after(self, instant: datetime) -> datetime | None:
        return self.trigger.next_after(instant) if self.enabled else None


class ScheduleFields(TypedDict, total=False):
    """The same fields as keyword arguments, with the types that callers may pass."""

    domain: str
    frequency: str
    time_config: Mapping[str, Any]
    domain_config_id: UUID | str | None
    external_id: str | None
    profile_id: UUID | str | None
    enabled: bool
    disabled_note: str | None
    name: str | None
    timezone: str
    job_type: str
    job_config: Mapping[str, Any]
    priority: int
    tags: list[str]
    requires: list[str]
    queue: str | None
    limit_keys: list[str]
    start_at: datetime | str | None
    end_at: datetime | str | None
    spread_seconds: int
    source: str
    max_instances: int | None
    coalesce: bool | None
    misfire_grace_seconds: int | None
    timeout_seconds: int | None
    max_retries: int | None
    retry_backoff_seconds: int | None
    catchup: str | None
    pause_after_failures: int | None
    backoff_after_failures: int | None
    ping_url: str | None


def parse_spec(
    given: Mapping[str, Any], jobs: JobRegistry, announced: Callable[[], Collection[str]] = tuple
) -> ScheduleSpec:
    """Validate all given fields; raises InvalidSchedule with all problems found.

    `announced` are job types that this process does not know and a live replica does, which checks their configuration.
    """
    problems = unknown_fields(given)
    problems += [Problem(name, "is required") for name in REQUIRED if name not in given]
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name in RULES:
            try:
                values[name] = RULES[name](value)
            except ValueError as error:
                problems.append(Problem(name, str(error)))
    problems += _check_job(values, jobs, announced) + _check_timing(values, {problem.field for problem in problems})
    problems += _check_note(values)
    if problems:
        raise InvalidSchedule(*_first(problems))
    _identify_domain_config(values)
    return ScheduleSpec(**values)


def config_id(value: UUID | str) -> UUID:
    """The UUID of a domain configuration; ids of other systems are mapped to a stable UUID."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value) if len(value) >= UUID_DIGITS else uuid5(EXTERNAL_IDS, value)
    except ValueError:
        return uuid5(EXTERNAL_IDS, value)


def parse_uuid(value: UUID | str, field_name: str) -> UUID:
    try:
        return Id()(value)
    except ValueError as error:
        raise InvalidSchedule(Problem(field_name, str(error))) from None


def normal_key(field_name: str, value: Any) -> Any:
    """The canonical spelling of a key, for lookups; None when it is invalid, which `parse_spec` explains."""
    try:
        return RULES[field_name](value)
    except ValueError:
        return None


def checked_note(value: Any, field_name: str = "disabled_note") -> str | None:
    """Validate only the note that says why a schedule is disabled; raises InvalidSchedule."""
    try:
        return NOTE(value)
    except ValueError as error:
        raise InvalidSchedule(Problem(field_name, str(error))) from None


def aware(field: str, value: datetime) -> datetime:
    """An instant with its offset; raises InvalidInput."""
    if value.tzinfo is None:
        raise InvalidInput(Problem(field, f"needs a UTC offset, as in {value.isoformat()}+00:00"))
    return value


def plain_text(field_name: str, value: str) -> str:
    """Text for a search or a record; refuses what Postgres cannot store."""
    if not isinstance(value, str):
        raise InvalidInput(Problem(field_name, f"must be text, got {excerpt(value)}"))
    if "\0" in value or not _is_unicode(value):
        raise InvalidInput(Problem(field_name, f"contains bytes that are not text: {excerpt(value)}"))
    return value


def _is_unicode(text: str) -> bool:
    """False for the surrogates that Python's command line creates from bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _identify_domain_config(values: dict[str, Any]) -> None:
    """Turn another system's id into its UUID and keep the original beside it."""
    given, external_id = values.get("domain_config_id"), values.get("external_id")
    if given is None:
        return
    values["domain_config_id"] = config_id(given)
    if _is_foreign(given):
        values["external_id"] = given
    elif external_id is not None and config_id(external_id) != values["domain_config_id"]:
        values["external_id"] = None  # it belonged to a previous configuration


def _is_foreign(given: UUID | str) -> bool:
    if isinstance(given, UUID):
        return False
    try:
        UUID(given)
    except ValueError:
        return True
    return False


def unknown_fields(given: Collection[Any]) -> list[Problem]:
    """Suggestions only for the first ones, because comparing names is slow."""
    names = [str(name)[:LONGEST_NAME] for name in given if name not in RULES]
    return [
        Problem(name, f"is not a field of a schedule{_did_you_mean(name, RULES) if place < MOST_PROBLEMS else ''}")
        for place, name in enumerate(names)
    ]


def _first(problems: list[Problem]) -> list[Problem]:
    if len(problems) <= MOST_PROBLEMS:
        return problems
    shown = problems[: MOST_PROBLEMS - 1]
    more = len(problems) - len(shown)
    return [*shown, Problem("schedule", f"{more} more problems", stands_for=more)]


def _check_job(values: dict[str, Any], jobs: JobRegistry, announced: Callable[[], Collection[str]]) -> list[Problem]:
    job_type, known = values.get("job_type", DEFAULT_JOB_TYPE), jobs.job_types()
    if job_type not in known:
        if job_type in announced():
            return []
        if extra := missing_extra(job_type):
            return [Problem("job_type", f"{job_type!r} needs the extra {extra}: {how_to_install(extra)}")]
        reason = f"no job type {job_type!r} is registered{_did_you_mean(job_type, known)}"
        return [Problem("job_type", f"{reason} (known: {', '.join(sorted(known))})")]
    definition = jobs.get(job_type)
    problems = jobs.check_config(job_type, values.get("job_config", {}))
    if not problems and "job_config" in values:
        values["job_config"] = definition.one_spelling(values["job_config"])
    if definition.domain_is_host and "domain" in values:
        try:
            values["domain"] = bare_host(values["domain"])
        except ValueError as error:
            problems.append(Problem("domain", str(error)))
    return problems


def _check_timing(values: dict[str, Any], broken: set[str]) -> list[Problem]:
    problems = []
    start_at, end_at = values.get("start_at"), values.get("end_at")
    if start_at and end_at and end_at <= start_at:
        problems.append(Problem("end_at", f"must be after start_at ({start_at.isoformat()})"))
        broken = broken | {"end_at"}
    if broken & {"frequency", "time_config", "start_at", "end_at"} or not {"frequency", "time_config"} <= values.keys():
        return problems
    try:
        parse_trigger(
            values["frequency"],
            values["time_config"],
            "UTC" if "timezone" in broken else values.get("timezone", DEFAULT_TIMEZONE),
            start_at,
            end_at,
        )
    except InvalidSchedule as error:
        problems += error.problems
    return problems


def _check_note(values: dict[str, Any]) -> list[Problem]:
    if values.get("disabled_note") is None or not values.get("enabled", True):
        return []
    reason = "explains why a schedule is disabled, but this one is enabled: set enabled=false or omit it"
    return [Problem("disabled_note", reason)]


def _did_you_mean(word: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(word.lower(), known, 1, 0.7)
    return f", did you mean {close[0]!r}?" if close else ""


DEFINITION_FIELDS = tuple(item.name for item in fields(ScheduleSpec))
