"""The sync from another system's API on the wire."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class SyncEntryOut(BaseModel):
    kind: str = Field(examples=["created", "updated", "skipped", "disabled", "kept"])
    label: str
    item: int | None = Field(description="Its place in the answer")
    changes: dict[str, tuple[Any, Any]] = Field(
        description="Before and after; of what was kept: ours and theirs", examples=[{}]
    )
    reasons: list[str]


class SyncReportOut(BaseModel):
    outcome: str = Field(examples=["done", "not_modified", "removals_refused", "failed"])
    by: str
    started_at: datetime
    finished_at: datetime
    items: int | None = Field(examples=[1204])
    counts: dict[str, int]
    entries: list[SyncEntryOut] = Field(description="The first ones of each kind")
    refused: str | None = Field(description="Why nothing was switched off", examples=[None])
    error: str | None


class SyncStatusOut(BaseModel):
    configured: bool = Field(description="Is API_URL set?")
    periodic: bool = Field(description="Do replicas sync by themselves?")
    is_busy: bool
    lease_owner: str | None
    started_at: datetime | None
    synced_at: datetime | None = Field(description="When the last good sync ended")
    not_before: datetime | None = Field(description="The API asked for patience until then")
    last: SyncReportOut | None
    applied: SyncReportOut | None = Field(description="The last one that changed something")


class SyncWish(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"allow_removals": False}]})

    allow_removals: bool = Field(False, description="Switch off what vanished, however many there are")
