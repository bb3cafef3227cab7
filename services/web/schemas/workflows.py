"""Schemas of curation, queues and contacts."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from database.workflow_statuses import ContactCurationStatus, EmailType, PlaceStatus
from services.queues.requeue import MAX_ROWS
from services.web.instants import Instant
from services.workflows.curation import MOST_AT_ONCE, MOST_DOMAINS

PlaceId = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)] | Annotated[str, Field(min_length=1, max_length=512)]


class Curate(BaseModel):
    """A new status for some rows. Only `Selected` queues them."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"ids": [str(UUID(int=1))], "status": "Selected"}]}
    )

    ids: list[UUID] = Field(min_length=1, max_length=MOST_AT_ONCE)
    status: PlaceStatus


class QueuePlaces(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"ids": [1, "ChIJN1t_tDeuEmsR"]}]})

    ids: list[PlaceId] = Field(
        min_length=1, max_length=MOST_AT_ONCE, description="Numbers are row ids, strings are the directory's place ids"
    )


class CuratePlaces(QueuePlaces):
    model_config = ConfigDict(json_schema_extra={"examples": [{"ids": [1], "status": "Selected"}]})

    status: PlaceStatus


class CuratedOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    updated_count: int = Field(description="Rows that now have the status")
    queued_count: int = Field(description="Rows newly added to the queue")


class DirectSubmit(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"domains": ["example.com"]}]})

    domains: list[Annotated[str, Field(min_length=1, max_length=2048)]] = Field(min_length=1, max_length=MOST_DOMAINS)


class SubmittedDomain(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: UUID
    domain: str
    created: bool = Field(description="False if it was already known; it stays unchanged")


class SubmittedOut(CuratedOut):
    items: list[SubmittedDomain]


class ContactChanges(BaseModel):
    """The fields to change; all others keep their values."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"contact_curation_status": "Complete"}]})

    email: str | None = Field(None, min_length=3, max_length=254)
    email_type: EmailType | None = None
    name: str | None = Field(None, max_length=255)
    phone_number: str | None = Field(None, max_length=64)
    source_url: str | None = Field(None, max_length=2048)
    context: str | None = Field(None, max_length=2000)
    contact_curation_status: ContactCurationStatus | None = None

    def given(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


class NewContact(ContactChanges):
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"domain_id": str(UUID(int=1)), "email": "a@example.org"}]}
    )

    domain_id: UUID
    email: str = Field(min_length=3, max_length=254)


class ContactOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: UUID
    domain_id: UUID
    domain: str
    page_id: UUID | None
    email: str
    email_type: EmailType
    name: str | None = Field(examples=["Anna Berg"])
    phone_number: str | None
    source_url: str | None
    context: str | None
    contact_curation_status: ContactCurationStatus
    created_by: str | None = Field(description="The token or workflow that created it")
    created_at: datetime
    updated_at: datetime


class ContactList(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    items: list[ContactOut]
    next_cursor: str | None


class QueueOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    name: str = Field(examples=["domain_metadata"])
    job_id: str = Field(examples=["process_pending_domains"])
    display_name: str
    depth: int = Field(examples=[42])
    due: int = Field(description="How many of these are due now")
    processing: int
    stale: int = Field(description="Claimed, but abandoned by their worker")
    failed: int = Field(examples=[3])
    dead: int
    oldest_seconds: float
    circuit: str = Field(examples=["closed", "open"])
    paused_at: datetime | None
    paused_by: str | None
    paused_reason: str | None
    batch_size: int | None
    last_run_at: datetime | None
    totals: dict[str, int]


class QueueList(BaseModel):
    items: list[QueueOut]


class PauseQueue(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "the API is under repair"}]})

    reason: str = Field(min_length=1, max_length=500, description="Why; the dashboard shows it")


class RequeueFailed(BaseModel):
    """Which failed rows: all conditions that are given must hold. `{}` matches all."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"error": "timed out", "dry_run": True}]})

    keys: list[str] | None = Field(None, min_length=1, max_length=1000, description="Primary keys of the rows")
    error: str | None = Field(None, max_length=200, description="Part of the error, case-insensitive")
    since: Instant | None = Field(None, description="Failed at or after this time")
    limit: int = Field(1000, ge=1, le=MAX_ROWS)
    per_second: float = Field(0, ge=0, le=MAX_ROWS, description="Rate limit; 0 requeues all at once")
    dry_run: bool = Field(False, description="Count the matches without requeueing them")


class RequeuedRows(BaseModel):
    queue: str
    found: int
    requeued: int = Field(description="0 in a dry run", examples=[3])
    dry_run: bool


class RunOut(BaseModel):
    message: str
    summary: dict[str, Any] = Field(examples=[{"claimed": 5, "succeeded": 5, "seconds": 3.214}])
