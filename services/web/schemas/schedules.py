"""Schemas of schedules."""

from datetime import datetime
from typing import Any, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator

from services.ledger.backfill import HIGHEST_LIMIT, USUAL_LIMIT
from services.schedules.field_rules import NOTE, REQUIRED, RULES, Id, OrNone, Rule
from services.web.bulk import MOST, ScheduleAction
from services.web.examples import STORY

EXAMPLE: dict[str, Any] = {
    "domain": "example.com",
    "frequency": "daily",
    "time_config": {"hour": 2, "minute": 30},
    "timezone": "Europe/Berlin",
    "name": "nightly-example",
    "tags": ["nightly"],
    "max_retries": 2,
}
MOST_AT_ONCE = MOST
EXAMPLE_NOTE = "supplier is migrating until Friday"


def documented_field(rule: Rule, **more: Any) -> Any:
    """Accepts any value; the service validates it. The OpenAPI document shows the rule."""

    def describe(found: dict[str, Any]) -> None:
        found.pop("default", None)
        found.update(rule.schema | more)

    return Field(None, json_schema_extra=describe)


class ScheduleChanges(BaseModel):
    """The fields to change; all others keep their values."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "additionalProperties": False,
            "examples": [{"enabled": False, "disabled_note": EXAMPLE_NOTE}, {"time_config": {"hour": 3}}],
        },
    )

    domain: Any = documented_field(RULES["domain"])
    frequency: Any = documented_field(RULES["frequency"])
    time_config: Any = documented_field(RULES["time_config"])
    timezone: Any = documented_field(RULES["timezone"], examples=["Europe/Berlin"])
    name: Any = documented_field(RULES["name"])
    enabled: Any = documented_field(RULES["enabled"])
    disabled_note: Any = documented_field(RULES["disabled_note"])
    job_type: Any = documented_field(RULES["job_type"], examples=["cookie_scan"])
    job_config: Any = documented_field(RULES["job_config"])
    domain_config_id: Any = documented_field(RULES["domain_config_id"])
    profile_id: Any = documented_field(RULES["profile_id"])
    priority: Any = documented_field(RULES["priority"])
    tags: Any = documented_field(RULES["tags"])
    requires: Any = documented_field(RULES["requires"], examples=[["gpu"]])
    queue: Any = documented_field(RULES["queue"], examples=["browser"])
    limit_keys: Any = documented_field(RULES["limit_keys"], examples=[["customer:42"]])
    start_at: Any = documented_field(RULES["start_at"])
    end_at: Any = documented_field(RULES["end_at"])
    spread_seconds: Any = documented_field(RULES["spread_seconds"])
    source: Any = documented_field(RULES["source"])
    max_instances: Any = documented_field(RULES["max_instances"])
    coalesce: Any = documented_field(RULES["coalesce"])
    misfire_grace_seconds: Any = documented_field(RULES["misfire_grace_seconds"])
    timeout_seconds: Any = documented_field(RULES["timeout_seconds"])
    max_retries: Any = documented_field(RULES["max_retries"])
    retry_backoff_seconds: Any = documented_field(RULES["retry_backoff_seconds"])
    catchup: Any = documented_field(RULES["catchup"])
    pause_after_failures: Any = documented_field(RULES["pause_after_failures"])
    backoff_after_failures: Any = documented_field(RULES["backoff_after_failures"])
    ping_url: Any = documented_field(RULES["ping_url"], examples=["https://hc-ping.com/${env:HC_KEY}/nightly"])

    def given(self) -> dict[str, Any]:
        """As sent, including unknown fields, which the spec of a schedule reports."""
        return self.model_dump(exclude_unset=True)


class ScheduleDefinition(ScheduleChanges):
    """A complete schedule. A policy that is absent or null uses the setting."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "additionalProperties": False,
            "required": list(REQUIRED),
            "examples": [EXAMPLE],
        },
    )


class NewSchedule(ScheduleDefinition):
    """A complete schedule; the caller may choose its id."""

    schedule_id: Any = documented_field(OrNone(Id()))


class ScheduleOut(BaseModel):
    """A schedule as stored. A policy that is null uses the setting."""

    model_config = ConfigDict(from_attributes=True)

    schedule_id: UUID
    name: str | None
    domain: str
    enabled: bool
    disabled_note: str | None = Field(
        description="Why it was disabled, if a reason was given; cleared when it is enabled"
    )
    frequency: str
    time_config: dict[str, Any]
    timezone: str
    next_run: datetime | None
    last_run: datetime | None
    last_status: str | None
    invalid_reason: str | None = Field(description="Why it is parked; null if it is valid")
    job_type: str
    job_config: dict[str, Any] = Field(description="Roles below operator see *** in place of credentials")
    domain_config_id: UUID
    external_id: str | None
    profile_id: UUID | None
    priority: int
    tags: list[str]
    requires: list[str] = Field(description="Labels that a replica must offer to run it, besides those of its job type")
    queue: str | None = Field(
        description="Only replicas that serve this queue run it; null: `default`", examples=["browser"]
    )
    limit_keys: list[str] = Field(
        description="Keys by which limits count its executions, besides `job:<job_type>`", examples=[["customer:42"]]
    )
    start_at: datetime | None
    end_at: datetime | None
    spread_seconds: int
    source: str
    max_instances: int | None
    coalesce: bool | None
    misfire_grace_seconds: int | None
    timeout_seconds: int | None
    max_retries: int | None
    retry_backoff_seconds: int | None
    catchup: str | None
    pause_after_failures: int | None = Field(description="Disabled after this many failures in a row; null: never")
    backoff_after_failures: int | None = Field(
        description="After this many failures in a row most fires are skipped until one succeeds; null: never"
    )
    ping_url: str | None = Field(
        description="Called at each run's start and end, as healthchecks.io expects. Roles below operator see ***"
    )
    failures_in_a_row: int = Field(description="Fires that failed for good since the last success", examples=[0])
    backoff_until: datetime | None = Field(description="Fires before this instant are skipped", examples=[None])
    revision: int = Field(description="Increases with every change of the definition; the ETag starts with it")
    effective_from: datetime = Field(description="When the current timing took effect")
    created_at: datetime
    updated_at: datetime
    warnings: list[str] = Field(
        [],
        description="Places in job_config that contain credentials, and after a write what no live replica offers; "
        "single schedules only",
        examples=[[]],
    )


class SchedulePage(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    items: list[ScheduleOut]
    next_cursor: str | None = Field(description="Cursor of the next page; null on the last page")
    total: int | None = Field(None, description="Number of matches, if `count` is true")


class FieldProblem(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    field: str
    reason: str


class FireOut(BaseModel):
    at: datetime
    local: str = Field(description="The same instant in local time", examples=["2027-01-31 02:30:00 CET"])


class PreviewOut(BaseModel):
    """The next fires, as if the schedule were enabled."""

    description: str = Field(examples=["daily at 02:30 Europe/Berlin"])
    timezone: str
    fires: list[FireOut]
    warnings: list[str] = Field(description="Clock changes and other anomalies of the coming year")
    problems: list[FieldProblem] = Field(description="Why this definition would be refused, apart from its timing")


class ScheduleMatch(BaseModel):
    """Which schedules: all conditions that are given must hold. `{}` matches all."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"tag": "nightly", "enabled": True}]})

    search: str | None = Field(None, max_length=255, description="Part of the domain or name")
    enabled: bool | None = None
    domain: str | None = Field(None, max_length=255)
    job_type: str | None = Field(None, max_length=64)
    source: str | None = Field(None, max_length=16)
    tag: str | None = Field(None, max_length=64)
    last_status: str | None = Field(None, max_length=50, description="For example failed or invalid")


class BulkSwitch(BaseModel):
    """What to do with which schedules: those of the ids, or all that match the filter."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"action": "disable", "schedule_ids": [STORY["schedule_id"]], "note": EXAMPLE_NOTE},
                {"action": "run", "filter": {"tag": "nightly", "last_status": "failed"}, "dry_run": True},
            ]
        },
    )

    action: ScheduleAction
    schedule_ids: list[UUID] | None = Field(None, max_length=MOST_AT_ONCE)
    filter: ScheduleMatch | None = None
    note: str | None = Field(None, max_length=NOTE.longest, description="Why they are disabled")
    dry_run: bool = Field(False, description="Report what would be done, without doing it")
    expected: int | None = Field(None, ge=0, description="Refuse with 422 if a different number of schedules matches")
    limit: int = Field(MOST_AT_ONCE, ge=1, le=MOST_AT_ONCE, description="How many schedules at most")
    after: str | None = Field(None, max_length=64, description="`next_after` of the previous call")

    @model_validator(mode="after")
    def _names_some(self) -> Self:
        if (self.schedule_ids is None) == (self.filter is None):
            raise ValueError("either schedule_ids or a filter is required")
        return self


class RefusedSwitch(BaseModel):
    schedule_id: UUID
    errors: list[FieldProblem]


class BulkResult(BaseModel):
    matched: int = Field(description="Schedules that match, also beyond the limit", examples=[1])
    changed: list[UUID] = Field(description="Run, enabled, disabled or deleted; in a dry run: would be")
    unchanged: list[UUID]
    missing: list[UUID]
    refused: list[RefusedSwitch] = Field(description="For example invalid schedules, which cannot be enabled")
    execution_ids: list[UUID] = Field(description="Of the runs that were requested", examples=[[]])
    next_after: str | None = Field(description="Send it as `after` for the rest; null: there is none", examples=[None])
    dry_run: bool


class Difference(BaseModel):
    field: str
    old: Any
    new: Any = Field(description="Roles below operator see old and new values without credentials")


class ChangeOut(BaseModel):
    changed_at: datetime
    changed_by: str = Field(examples=["token:ci", "cli:anna", "sql:app"])
    operation: str = Field(examples=["update", "insert", "delete"])
    revision: int
    differences: list[Difference]


class ChangeList(BaseModel):
    items: list[ChangeOut]


class RunRequested(BaseModel):
    execution_id: UUID


class BackfillWish(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"from": "2027-01-28T00:00", "to": "2027-01-31T00:00", "dry_run": True}]},
    )

    from_: str = Field(
        alias="from", max_length=64, description="ISO 8601; without an offset, in the schedule's time zone."
    )
    to: str = Field(max_length=64, description="Exclusive end; not in the future.")
    dry_run: bool = Field(False, description="Report what would run, without running it.")
    limit: int = Field(USUAL_LIMIT, ge=1, le=HIGHEST_LIMIT, description="A range with more fires than this is refused.")


class BackfilledFireOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    scheduled_for: datetime
    attempt: int
    execution_id: UUID | None = Field(description="null in a dry run")


class BackfillOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    schedule_id: UUID
    dry_run: bool
    fires: list[BackfilledFireOut] = Field(description="The fires to run, oldest first")
    succeeded: int = Field(description="Excluded: already succeeded", examples=[2])
    open: int = Field(description="Excluded: an attempt is pending or running", examples=[0])
    not_due: int = Field(description="Excluded: delayed by spread_seconds and not due yet", examples=[0])
