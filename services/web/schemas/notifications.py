"""Schemas of channels and deliveries."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from services.notifications.channel_rows import RULES
from services.web.schemas.schedules import documented_field

EXAMPLE_CONFIG: dict[str, Any] = {"url": "https://hooks.example/scheduler"}
EXAMPLE: dict[str, Any] = {"name": "ops", "kind": "webhook", "config": EXAMPLE_CONFIG, "note": "wakes the shift"}
EXAMPLE_MAIL: dict[str, Any] = {
    "name": "mail",
    "kind": "email",
    "config": {
        "host": "smtp.example",
        "user": "robot",
        "password": "${env:SMTP_PASSWORD}",
        "from": "robot@example.com",
        "to": ["ops@example.com"],
    },
}


class ChannelChanges(BaseModel):
    """The fields to change; of `config`, too, all others keep their values, and null removes one."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "additionalProperties": False,
            "examples": [{"enabled": False, "note": "they move until Friday"}, {"config": EXAMPLE_CONFIG}],
        },
    )

    config: Any = documented_field(RULES["config"])
    enabled: Any = documented_field(RULES["enabled"])
    note: Any = documented_field(RULES["note"])

    def given(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


class NewChannel(ChannelChanges):
    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "additionalProperties": False,
            "required": ["name", "kind", "config"],
            "examples": [EXAMPLE, EXAMPLE_MAIL],
        },
    )

    name: Any = documented_field(RULES["name"], examples=["ops"])
    kind: Any = documented_field(RULES["kind"], examples=["webhook"])


class ChannelOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    channel_id: UUID
    name: str = Field(examples=["ops"])
    kind: str = Field(description="webhook, email or apprise", examples=["webhook"])
    state: str = Field(description="works, failing, unused or disabled", examples=["works"])
    config: dict[str, Any] = Field(
        description="Secrets are `***`", examples=[{"url": "https://hooks.example/***", "secret": "***", "headers": {}}]
    )
    enabled: bool
    note: str | None = Field(examples=["wakes the shift"])
    created_at: datetime
    created_by: str = Field(examples=["token:ci"])
    updated_at: datetime
    updated_by: str = Field(examples=["token:ci"])
    failures: int = Field(description="Failed attempts in a row", examples=[0])
    failing_since: datetime | None
    resume_at: datetime | None = Field(description="When a failing channel is tried again")
    last_error: str | None = Field(examples=["hooks.example answered 503"])
    last_sent_at: datetime | None
    waiting: int = Field(description="Deliveries that wait for it; more than 1,000 are 1,001", examples=[0])


class AddedChannelOut(ChannelOut):
    secret: str | None = Field(
        description="The new secret of a webhook, if none was given; only this response contains it",
        examples=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    )


class ChannelList(BaseModel):
    items: list[ChannelOut]
    next_cursor: str | None


class MessageOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    event: str = Field(examples=["failed"])
    title: str = Field(examples=["nightly-export failed"])
    text: str = Field(examples=["exit code 1"])
    severity: str = Field(description="info, warning, error or resolved", examples=["error"])
    link: str | None = Field(examples=["https://scheduler.example/schedules/nightly-export"])
    facts: dict[str, str] = Field(examples=[{"Attempts": "3"}])
    data: dict[str, Any] = Field(examples=[{"attempt": 3}])


class DeliveryOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    delivery_id: UUID = Field(description="The same in every attempt: `webhook-id`, and part of a mail's Message-ID")
    channel_id: UUID
    channel: str | None = Field(description="null: it was deleted", examples=["ops"])
    rule_id: UUID | None = Field(description="null: a test")
    event: str = Field(examples=["failed"])
    subject: str
    message: MessageOut
    state: str = Field(description="waiting, sent, failed or cancelled", examples=["sent"])
    is_being_sent: bool = Field(examples=[False])
    created_at: datetime
    due_at: datetime
    next_at: datetime | None = Field(description="When it is tried again; null: at once, or never")
    ended_at: datetime | None
    attempts: int = Field(examples=[1])
    last_error: str | None = Field(examples=[None])
    repeated_by: str | None = Field(examples=[None])


class DeliveryList(BaseModel):
    items: list[DeliveryOut]
    next_cursor: str | None


class AttemptOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    number: int = Field(examples=[1])
    instance_id: str = Field(description="The replica", examples=["replica-1"])
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None = Field(description="sent, failed or lost; null: on its way", examples=["sent"])
    answer: str | None = Field(description="The receiver's response", examples=["answered 200"])


class DeliveryDetail(DeliveryOut):
    tries: list[AttemptOut] = Field(description="Newest first; at most 50")


class RepeatedOut(BaseModel):
    repeated: int = Field(description="Deliveries that will be sent again", examples=[12])
