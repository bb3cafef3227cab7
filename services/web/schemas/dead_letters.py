"""Schemas of dead letters."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from services.queues.requeue import MAX_ROWS, SLOWEST, bad_rate
from services.web.instants import Instant

LetterId = Annotated[int, Field(ge=1, le=2**63 - 1)]


class LetterOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    id: int = Field(examples=[17])
    queue: str
    item_key: str = Field(description="Primary key of the row")
    attempts: int = Field(examples=[3])
    error: str = Field(examples=["example.com: timed out after 30 s"])
    traceback: str | None
    died_at: datetime
    requeued_at: datetime | None
    requeued_by: str | None


class LetterList(BaseModel):
    items: list[LetterOut]
    next_before: int | None


class RequeueLetters(BaseModel):
    """Which dead letters to requeue: by id, or all of a queue that match the filter."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"queue": "deep_scan", "error": "timed out", "per_second": 5}]}
    )

    ids: list[LetterId] | None = Field(None, min_length=1, max_length=1000)
    queue: str | None = Field(None, max_length=100)
    error: str | None = Field(None, max_length=200, description="Part of the error, case-insensitive")
    since: Instant | None = None
    limit: int = Field(1000, ge=1, le=MAX_ROWS)
    per_second: float = Field(
        0,
        ge=0,
        le=MAX_ROWS,
        description=f"Rate limit: items per second, at least {SLOWEST:.5f}; 0 requeues all at once",
    )
    dry_run: bool = Field(False, description="Count the matches without requeueing them")

    @field_validator("per_second")
    @classmethod
    def _makes_sense(cls, per_second: float) -> float:
        if reason := bad_rate(per_second):
            raise ValueError(reason)
        return per_second

    @model_validator(mode="after")
    def _names_some(self) -> Self:
        if self.ids is None and self.queue is None:
            raise ValueError("either ids or a queue is required")
        return self


class RequeuedOut(BaseModel):
    found: int
    requeued: dict[str, int] = Field(description="Requeued rows by queue")
    dry_run: bool
