"""Schemas of executions, statistics and explanations."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from services.ledger.listing import OVERLAP_WITH_THE_GONE


class ExecutionOut(BaseModel):
    """One attempt at a fire, or a manual run."""

    model_config = ConfigDict(from_attributes=True)

    execution_id: UUID
    schedule_id: UUID | None
    job_id: str = Field(description="Name of the schedule, or its id")
    domain: str
    status: str = Field(examples=["success", "failed", "skipped"])
    reason: str | None = Field(description="Why it was skipped, missed or abandoned", examples=[None, "overlap"])
    note: str | None = Field(
        description="What became known after the execution was recorded", examples=[None, OVERLAP_WITH_THE_GONE]
    )
    cause: str = Field(examples=["schedule", "manual", "catchup", "backfill"])
    attempt: int
    scheduled_for: datetime
    due_at: datetime | None
    claimed_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    cancel_requested_at: datetime | None
    duration_seconds: float | None
    instance_id: str | None = Field(description="The replica")
    scan_id: UUID | None
    error_message: str | None
    created_at: datetime = Field(examples=["2027-01-31T01:30:00.012Z"])


class MomentOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    at: datetime
    what: str = Field(examples=["scheduled", "claimed", "started", "success"])
    text: str = Field(examples=["nominal time"])


class ExecutionDetail(ExecutionOut):
    domain_config_id: UUID
    fencing_token: int | None
    error_details: dict[str, Any] | None
    metadata: dict[str, Any] | None = Field(description="The handler's result, log and progress")
    attempts: list[ExecutionOut] = Field(description="All attempts at the same fire, in order")
    timeline: list[MomentOut]


class ExecutionPage(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    items: list[ExecutionOut]
    next_cursor: str | None


class CancelRequested(BaseModel):
    execution_id: UUID
    status: str = Field(
        description="`cancelled` if it was pending; otherwise its replica has been asked to stop it",
        examples=["cancelled", "running"],
    )


class StatisticsOut(BaseModel):
    """Counts, durations and lateness (seconds) over the last days; percentiles are accurate to 2 %."""

    total_executions: int
    successful: int
    failed: int
    success_rate: float
    avg_duration: float
    min_duration: float
    max_duration: float
    cancelled: int
    skipped: int
    missed: int
    abandoned: int
    timed_out: int
    running: int
    p50_duration: float
    p95_duration: float
    p99_duration: float
    p50_lateness: float
    p99_lateness: float


class MinuteOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    at: datetime
    outcomes: dict[str, int]
    p50_seconds: float | None = Field(description="Lateness")
    p99_seconds: float | None


class AttentionOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    trouble: str = Field(
        examples=[
            "failing",
            "unaccounted",
            "stuck",
            "late",
            "idle",
            "silent",
            "unhandled",
            "unable",
            "held",
            "stopped",
            "circuit",
            "parked",
            "dead",
            "paused",
            "waiting",
        ]
    )
    label: str
    words: str | None = Field(examples=["the server answered 503"])
    since: datetime | None
    schedule_id: UUID | None
    execution_id: UUID | None = Field(examples=[None])


class OverviewOut(BaseModel):
    minutes: list[MinuteOut]
    attention: list[AttentionOut] = Field(description="What needs attention, most severe first")


class LoadOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    at: datetime
    fires: float = Field(examples=[120.0])
    seconds: float = Field(description="Expected work in seconds, from typical durations")
    labels: dict[str, int]


class ForecastOut(BaseModel):
    minutes: list[LoadOut]


class ExplanationOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    schedule_id: UUID
    at: datetime
    timezone: str
    verdict: str = Field(examples=["succeeded", "skipped", "not_a_fire", "disabled"])
    sentences: list[str] = Field(
        examples=[["2027-01-31 02:30:00 CET: It ran on replica-1 and succeeded after 41.9 s."]]
    )
    late_seconds: float | None
    previous_fire_at: datetime | None
    next_fire_at: datetime | None
    executions: list[ExecutionOut]
