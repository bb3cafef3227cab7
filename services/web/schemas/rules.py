"""Schemas of notification rules."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from services.notifications.rule_fields import RULES
from services.web.examples import STORY
from services.web.schemas.notifications import MessageOut
from services.web.schemas.schedules import documented_field

EXAMPLE: dict[str, Any] = {
    "name": "billing",
    "channels": ["ops"],
    "events": ["failed", "recovered"],
    "tags": ["billing"],
}
EXAMPLE_LATE: dict[str, Any] = {
    "name": "nights",
    "channels": ["ops"],
    "events": ["failing", "late", "recovered"],
    "after_failures": 3,
    "late_seconds": 300,
    "quiet_from": "22:00",
    "quiet_to": "07:00",
    "quiet_timezone": "Europe/Berlin",
    "quiet_errors_pass": True,
}


class RuleChanges(BaseModel):
    """The fields to change; all others keep their values."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "additionalProperties": False,
            "examples": [{"enabled": False, "note": "until Friday"}, {"tags": ["billing", "shop"]}],
        },
    )

    channels: Any = documented_field(RULES["channels"], examples=[["ops"]])
    events: Any = documented_field(RULES["events"], examples=[["failed", "recovered"]])
    schedule_ids: Any = documented_field(RULES["schedule_ids"])
    tags: Any = documented_field(RULES["tags"])
    job_types: Any = documented_field(RULES["job_types"])
    queues: Any = documented_field(RULES["queues"])
    after_failures: Any = documented_field(RULES["after_failures"])
    late_seconds: Any = documented_field(RULES["late_seconds"])
    slower_than_seconds: Any = documented_field(RULES["slower_than_seconds"])
    slower_than_usual: Any = documented_field(RULES["slower_than_usual"])
    no_success_seconds: Any = documented_field(RULES["no_success_seconds"])
    quiet_from: Any = documented_field(RULES["quiet_from"])
    quiet_to: Any = documented_field(RULES["quiet_to"])
    quiet_timezone: Any = documented_field(RULES["quiet_timezone"], examples=["Europe/Berlin"])
    quiet_errors_pass: Any = documented_field(RULES["quiet_errors_pass"])
    digest: Any = documented_field(RULES["digest"])
    digest_at: Any = documented_field(RULES["digest_at"])
    digest_day: Any = documented_field(RULES["digest_day"])
    digest_timezone: Any = documented_field(RULES["digest_timezone"], examples=["Europe/Berlin"])
    enabled: Any = documented_field(RULES["enabled"])
    note: Any = documented_field(RULES["note"])

    def given(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


class NewRule(RuleChanges):
    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "additionalProperties": False,
            "required": ["name", "channels"],
            "examples": [EXAMPLE, EXAMPLE_LATE],
        },
    )

    name: Any = documented_field(RULES["name"], examples=["billing"])


class RuleOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    rule_id: UUID = Field(examples=[STORY["channel_id"]])
    name: str = Field(examples=["billing"])
    channels: list[str] = Field(description="By name", examples=[["ops"]])
    events: list[str] = Field(examples=[["failed", "recovered"]])
    schedule_ids: list[UUID] = Field(
        description="Empty: every schedule; the same holds for the other filters", examples=[[]]
    )
    tags: list[str] = Field(description="Schedules with one of them", examples=[["billing"]])
    job_types: list[str] = Field(examples=[["http_request"]])
    queues: list[str] = Field(examples=[["default"]])
    after_failures: int | None = Field(description="`failing`: this many in a row", examples=[3])
    late_seconds: int | None = Field(examples=[300])
    slower_than_seconds: int | None = Field(examples=[600])
    slower_than_usual: float | None = Field(
        description="`slow`: this many times the 95th percentile of the schedule's latest successes", examples=[3.0]
    )
    no_success_seconds: int | None = Field(examples=[90000])
    quiet_from: str | None = Field(examples=["22:00"])
    quiet_to: str | None = Field(examples=["07:00"])
    quiet_timezone: str = Field(examples=["Europe/Berlin"])
    quiet_errors_pass: bool = Field(description="Errors are sent during quiet hours, too", examples=[True])
    digest: str = Field(description="none, daily or weekly", examples=["none"])
    digest_at: str = Field(examples=["08:00"])
    digest_day: str = Field(examples=["monday"])
    digest_timezone: str = Field(examples=["Europe/Berlin"])
    enabled: bool
    note: str | None = Field(examples=["for the shift"])
    created_at: datetime
    created_by: str = Field(examples=["token:ci"])
    updated_at: datetime
    updated_by: str = Field(examples=["token:ci"])


class RuleList(BaseModel):
    items: list[RuleOut]
    next_cursor: str | None


class TriedOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    at: datetime = Field(examples=["2027-01-31T01:30:42.300Z"])
    due_at: datetime = Field(
        description="After quiet hours, or when its digest is due", examples=["2027-01-31T06:00:00Z"]
    )
    message: MessageOut


class TrialOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    since: datetime = Field(examples=["2027-01-30T01:31:00Z"])
    walked_until: datetime = Field(examples=["2027-01-31T01:31:00Z"])
    walked: int = Field(description="Ended executions that were judged", examples=[48210])
    told: list[TriedOut] = Field(description="At most 1,000")
    is_complete: bool = Field(description="False: it ended early, at `walked_until`", examples=[True])
