"""Schemas of cookie scans. Cookie values are never stored, so they do not appear."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field


class ScanOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    scan_id: UUID
    execution_id: UUID | None
    schedule_id: UUID | None
    domain: str
    engine: str = Field(examples=["http", "browser"])
    started_at: datetime
    finished_at: datetime
    previous_scan_id: UUID | None
    config: dict[str, Any]
    summary: dict[str, Any] = Field(description="Counts by category, party and consent; pages; changes; notes")


class ScanList(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    items: list[ScanOut]
    next_cursor: str | None


class PageOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    url: str
    final_url: str | None
    depth: int
    attempts: int = Field(examples=[1])
    status_code: int | None
    error: str | None = Field(description="null if the page was read")
    elapsed_ms: int
    notes: list[str]


class ScanDetail(ScanOut):
    pages: list[PageOut]


class CookieOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    name: str = Field(examples=["_ga"])
    domain: str
    path: str
    storage: str = Field(examples=["cookie", "local_storage"])
    host_only: bool
    expires_at: datetime | None
    lifetime_seconds: int | None
    secure: bool
    http_only: bool
    same_site: str | None
    party: str = Field(examples=["first", "third"])
    consent: str = Field(description="Set before or after consent", examples=["before"])
    category: str = Field(examples=["analytics", "necessary", "marketing"])
    category_rule: str | None
    page_url: str
    request_url: str
    pages_seen: int


class CookieList(BaseModel):
    scan_id: UUID
    items: list[CookieOut]


class CookieChangeOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    kind: str = Field(examples=["changed", "new", "gone"])
    name: str = Field(examples=["_ga"])
    domain: str
    path: str
    storage: str = Field(examples=["cookie", "local_storage"])
    category: str = Field(examples=["analytics", "necessary", "marketing"])
    fields: dict[str, tuple[Any, Any]] = Field(
        description="Changed fields with their old and new values",
        examples=[{"lifetime_seconds": [31536000, 63072000]}],
    )


class ScanDiff(BaseModel):
    scan_id: UUID
    previous_scan_id: UUID | None = Field(description="null for the first scan of a domain, which has no changes")
    changes: list[CookieChangeOut]
