"""Schedules on the wire."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from database.models import Catchup, Source
from services.ledger.backfill import HIGHEST_LIMIT, USUAL_LIMIT
from services.triggers import FREQUENCIES
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
MOST_AT_ONCE = 1000
NOTE = "supplier migrates until Friday"


def _said(schema: dict[str, Any], *, nullable: bool = False) -> Any:
    """Anything as far as reading goes; in the documentation, what the rules of a schedule will accept."""

    def describe(found: dict[str, Any]) -> None:
        found.pop("default", None)
        found.update({"anyOf": [schema, {"type": "null"}]} if nullable else schema)

    return Field(None, json_schema_extra=describe)


def _whole(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


_TEXT = {"type": "string", "minLength": 1, "maxLength": 255}
_NOTE = {"type": "string", "maxLength": 500}
_INSTANT = {"type": "string", "format": "date-time"}
_DAY = 86_400


class ScheduleChanges(BaseModel):
    """Only what is named changes."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "additionalProperties": False,
            "examples": [{"enabled": False, "disabled_note": NOTE}, {"time_config": {"hour": 3}}],
        },
    )

    domain: Any = _said(_TEXT)
    frequency: Any = _said({"type": "string", "enum": list(FREQUENCIES)})
    time_config: Any = _said({"type": "object"})
    timezone: Any = _said({"type": "string", "examples": ["Europe/Berlin"]})
    name: Any = _said(_TEXT, nullable=True)
    enabled: Any = _said({"type": "boolean"})
    disabled_note: Any = _said(_NOTE, nullable=True)
    job_type: Any = _said({"type": "string", "examples": ["cookie_scan"]})
    job_config: Any = _said({"type": "object"})
    domain_config_id: Any = _said(_TEXT, nullable=True)
    profile_id: Any = _said({"type": "string", "format": "uuid"}, nullable=True)
    priority: Any = _said(_whole(-1000, 1000))
    tags: Any = _said({"type": "array", "items": {"type": "string"}, "maxItems": 50})
    start_at: Any = _said(_INSTANT, nullable=True)
    end_at: Any = _said(_INSTANT, nullable=True)
    spread_seconds: Any = _said(_whole(0, _DAY))
    source: Any = _said({"type": "string", "enum": list(Source)})
    max_instances: Any = _said(_whole(1, 1000), nullable=True)
    coalesce: Any = _said({"type": "boolean"}, nullable=True)
    misfire_grace_seconds: Any = _said(_whole(1, _DAY), nullable=True)
    timeout_seconds: Any = _said(_whole(1, 30 * _DAY), nullable=True)
    max_retries: Any = _said(_whole(0, 100), nullable=True)
    retry_backoff_seconds: Any = _said(_whole(0, _DAY), nullable=True)
    catchup: Any = _said({"type": "string", "enum": list(Catchup)}, nullable=True)

    def given(self) -> dict[str, Any]:
        """As it was sent, unknown fields included: the rules of a schedule find words for them."""
        return self.model_dump(exclude_unset=True)


class ScheduleDefinition(ScheduleChanges):
    """A whole schedule. A policy that is absent or null means the setting."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "additionalProperties": False,
            "required": ["domain", "frequency", "time_config"],
            "examples": [EXAMPLE],
        },
    )


class NewSchedule(ScheduleDefinition):
    """A whole schedule, with an id of the caller's choice if it has one."""

    schedule_id: Any = _said({"type": "string", "format": "uuid"}, nullable=True)


class ScheduleOut(BaseModel):
    """A schedule as it is stored; null in a policy means the setting."""

    model_config = ConfigDict(from_attributes=True)

    schedule_id: UUID
    name: str | None
    domain: str
    enabled: bool
    disabled_note: str | None = Field(description="Why it is off, if somebody said so; gone when it is on again")
    frequency: str
    time_config: dict[str, Any]
    timezone: str
    next_run: datetime | None
    last_run: datetime | None
    last_status: str | None
    invalid_reason: str | None = Field(description="Why it is parked; null: it is in order")
    job_type: str
    job_config: dict[str, Any] = Field(description="Below the role operator with *** in place of credentials")
    domain_config_id: UUID
    external_id: str | None
    profile_id: UUID | None
    priority: int
    tags: list[str]
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
    revision: int = Field(description="Changes with every change of the definition; the ETag begins with it")
    effective_from: datetime = Field(description="Since when the present timing holds")
    created_at: datetime
    updated_at: datetime
    warnings: list[str] = Field(
        [], description="Of one schedule: where its configuration holds credentials", examples=[[]]
    )


class SchedulePage(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    items: list[ScheduleOut]
    next_cursor: str | None = Field(description="Leads to the next page; null on the last one")
    total: int | None = Field(None, description="How many match, if `count` was asked for")


class FieldProblem(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    field: str
    reason: str


class FireOut(BaseModel):
    at: datetime
    local: str = Field(
        description="The same instant as people of the zone read it", examples=["2027-01-31 02:30:00 CET"]
    )


class PreviewOut(BaseModel):
    """When it fires, as if it were enabled."""

    description: str = Field(examples=["daily at 02:30 Europe/Berlin"])
    timezone: str
    fires: list[FireOut]
    warnings: list[str] = Field(description="Clock changes and other surprises of the coming year")
    problems: list[FieldProblem] = Field(description="What else would refuse this definition")


class BulkSwitch(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"action": "disable", "schedule_ids": [STORY["schedule_id"]], "note": NOTE}]},
    )

    action: Literal["enable", "disable"]
    schedule_ids: list[UUID] = Field(max_length=MOST_AT_ONCE)
    note: str | None = Field(None, max_length=500, description="Why they are switched off")


class RefusedSwitch(BaseModel):
    schedule_id: UUID
    errors: list[FieldProblem]


class BulkResult(BaseModel):
    changed: list[UUID]
    unchanged: list[UUID]
    missing: list[UUID]
    refused: list[RefusedSwitch] = Field(description="Broken schedules cannot be switched on")


class Difference(BaseModel):
    field: str
    old: Any
    new: Any = Field(description="As the old value, below the role operator without credentials")


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
        alias="from", max_length=64, description="ISO 8601; without an offset it is meant in the schedule's zone."
    )
    to: str = Field(
        max_length=64, description="The first instant that does not belong to it any more; not in the future."
    )
    dry_run: bool = Field(False, description="Only say what would be done.")
    limit: int = Field(USUAL_LIMIT, ge=1, le=HIGHEST_LIMIT, description="More fires than this are refused.")


class BackfilledFireOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    scheduled_for: datetime
    attempt: int
    execution_id: UUID | None = Field(description="None in a dry run")


class BackfillOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    schedule_id: UUID
    dry_run: bool
    fires: list[BackfilledFireOut] = Field(description="Those that run once more, oldest first")
    succeeded: int = Field(description="Left out: they went well", examples=[2])
    open: int = Field(description="Left out: an attempt waits or runs", examples=[0])
    not_due: int = Field(description="Left out: spread, and not due yet", examples=[0])
