"""Schemas of limits across schedules."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from services.schedules.limits import RULES
from services.web.schemas.schedules import documented_field

EXAMPLE: dict[str, Any] = {"name": "customer:42", "max_running": 2, "note": "their server is small"}


class LimitChanges(BaseModel):
    """The fields to change; all others keep their values."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"additionalProperties": False, "examples": [{"max_running": 4}]}
    )

    max_running: Any = documented_field(RULES["max_running"])
    enabled: Any = documented_field(RULES["enabled"])
    note: Any = documented_field(RULES["note"])

    def given(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


class NewLimit(LimitChanges):
    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "additionalProperties": False,
            "required": ["name", "max_running"],
            "examples": [EXAMPLE, {"name": "customer:*", "max_running": 5}],
        },
    )

    name: Any = documented_field(RULES["name"], examples=["customer:42"])


class LimitOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    name: str = Field(
        description="A key, or a pattern that ends in `*`, which limits each key with that beginning",
        examples=["customer:42"],
    )
    max_running: int = Field(
        description="How many executions of a key may run at once, across all replicas; 0: nothing starts", examples=[2]
    )
    enabled: bool
    note: str | None = Field(examples=["their server is small"])
    created_at: datetime
    updated_at: datetime
    running: int = Field(description="Executions of its keys that run, or are about to start", examples=[2])
    waiting: int = Field(description="Executions that wait for it", examples=[7])
    waiting_is_cut: bool = Field(description="More executions wait than were counted", examples=[False])
    oldest_wait_seconds: float | None = Field(examples=[40.2])
    schedules: int = Field(description="Schedules with a key that it limits", examples=[12])


class LimitList(BaseModel):
    items: list[LimitOut]
    next_cursor: str | None


class LimitKeyOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    key: str = Field(examples=["customer:42"])
    running: int = Field(examples=[2])
    max_running: int = Field(examples=[2])
    waiting: int = Field(examples=[7])
    oldest_seconds: float | None = Field(examples=[40.2])


class LimitedExecutionOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    execution_id: UUID
    schedule_id: UUID | None
    label: str
    key: str = Field(examples=["customer:42"])
    status: str = Field(description="`pending` while it waits", examples=["running"])
    instance_id: str | None
    started_at: datetime | None
    due_at: datetime | None


class LimitChangeOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    changed_at: datetime
    changed_by: str = Field(examples=["token:ci"])
    operation: str = Field(examples=["update"])
    old: dict[str, Any] | None = Field(examples=[{"name": "customer:42", "max_running": 4}])
    new: dict[str, Any] | None = Field(examples=[{"name": "customer:42", "max_running": 2}])


class LimitDetail(LimitOut):
    next_limit: str | None = Field(
        description="The limit that would apply to its keys if it were deleted", examples=["customer:*"]
    )
    keys: list[LimitKeyOut] = Field(description="Running and waiting executions by key")
    executions: list[LimitedExecutionOut] = Field(
        description="Running, then waiting executions, longest first; at most 50"
    )
    changes: list[LimitChangeOut] = Field(description="Newest first; at most 20")
