"""Schemas of the sync from another system's API."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class SyncEntryOut(BaseModel):
    kind: str = Field(examples=["created", "updated", "skipped", "disabled", "kept"])
    label: str
    item: int | None = Field(description="Index in the response of the API")
    changes: dict[str, tuple[Any, Any]] = Field(
        description="Old and new values; for `kept`: our value and theirs", examples=[{}]
    )
    reasons: list[str]


class SyncReportOut(BaseModel):
    outcome: str = Field(examples=["done", "not_modified", "removals_refused", "failed"])
    by: str
    started_at: datetime
    finished_at: datetime
    items: int | None = Field(examples=[1204])
    counts: dict[str, int]
    entries: list[SyncEntryOut] = Field(description="The first entries of each kind")
    refused: str | None = Field(description="Why no schedule was disabled", examples=[None])
    error: str | None


class SyncStatusOut(BaseModel):
    configured: bool = Field(description="Is API_URL set?")
    periodic: bool = Field(description="Do replicas sync periodically?")
    is_busy: bool
    lease_owner: str | None
    started_at: datetime | None
    synced_at: datetime | None = Field(description="End of the last successful sync")
    not_before: datetime | None = Field(description="The API asked to wait until then (Retry-After)")
    last: SyncReportOut | None
    applied: SyncReportOut | None = Field(description="The last sync that changed anything")


class SyncWish(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"allow_removals": False}]})

    allow_removals: bool = Field(
        False, description="Disable schedules that vanished from the API, however many there are"
    )
