"""Schemas of executions, statistics and explanations."""

from datetime import datetime
from typing import Any, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator

from services.ledger.fate_sql import Fate
from services.ledger.listing import OVERLAP_WITH_THE_GONE
from services.ledger.logs import LoggedLine
from services.web.bulk import MOST, ExecutionAction
from services.web.instants import Instant


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
    metadata: dict[str, Any] | None = Field(
        description="The handler's result, its progress, and the end of its `context.log`"
    )
    attempts: list[ExecutionOut] = Field(description="All attempts at the same fire, in order")
    timeline: list[MomentOut]


class LogLineOut(BaseModel):
    position: str = Field(examples=["4711-25"])
    at: datetime = Field(examples=["2027-01-31T01:30:04.120Z"], description="By the clock of the replica")
    level: str = Field(examples=["INFO", "WARNING"], description="NOTE: about the log itself, such as lines left out")
    text: str = Field(examples=["page 3 of 12: 48 rows"])

    @classmethod
    def of(cls, line: LoggedLine) -> "LogLineOut":
        return cls(position=str(line.position), at=line.at, level=line.level, text=line.text)


class LogOut(BaseModel):
    lines: list[LogLineOut]
    next_position: str = Field(description="Value of `after` for what follows", examples=["4711-25"])
    done: float | None = Field(description="Progress", examples=[3])
    total: float | None = Field(examples=[12])
    is_complete: bool = Field(examples=[False], description="The handler has ended, and all its lines are stored")


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


class ExecutionMatch(BaseModel):
    """Which executions: all conditions that are given must hold."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"outcome": "failed", "error": "503"}]})

    schedule: str | None = Field(None, max_length=255, description="Id or name of the schedule")
    domain: str | None = Field(None, max_length=255)
    status: str | None = Field(None, max_length=100, description="One status, or several separated by commas")
    cause: str | None = Field(None, max_length=16)
    outcome: Fate | None = Field(None, description="As in the list of executions")
    error: str | None = Field(None, max_length=200, description="Part of the error of a failed attempt")
    job_type: str | None = Field(None, max_length=64, description="Job type of the schedule")
    tag: str | None = Field(None, max_length=64, description="A tag of the schedule")
    since: Instant | None = None
    until: Instant | None = None


class BulkOnExecutions(BaseModel):
    """What to do with which executions: those of the ids, or the newest that match the filter."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"action": "retry", "filter": {"outcome": "failed", "since": "2027-01-31T00:00:00Z"}, "dry_run": True}
            ]
        },
    )

    action: ExecutionAction
    execution_ids: list[UUID] | None = Field(None, max_length=MOST)
    filter: ExecutionMatch | None = None
    dry_run: bool = Field(False, description="Report what would be done, without doing it")
    limit: int = Field(MOST, ge=1, le=MOST, description="How many executions at most")
    after: str | None = Field(None, max_length=2000, description="`next_after` of the previous call")

    @model_validator(mode="after")
    def _names_some(self) -> Self:
        if (self.execution_ids is None) == (self.filter is None):
            raise ValueError("either execution_ids or a filter is required")
        return self


class RefusedExecution(BaseModel):
    execution_id: UUID
    reason: str = Field(examples=["it has already ended"])


class BulkExecutionsResult(BaseModel):
    matched: int = Field(description="Executions that match, up to the limit", examples=[1])
    changed: list[UUID] = Field(description="Retried or cancelled; in a dry run: would be")
    missing: list[UUID]
    refused: list[RefusedExecution]
    execution_ids: list[UUID] = Field(description="Of the new attempts", examples=[[]])
    next_after: str | None = Field(description="Send it as `after` for the rest; null: there is none", examples=[None])
    dry_run: bool


class FireCountsOut(BaseModel):
    """Fires with a failed attempt; each fire counts once, however often it was tried."""

    model_config = ConfigDict(from_attributes=True)

    failed: int = Field(description="Failed for good: no attempt follows", examples=[3])
    recovered: int = Field(description="A retry succeeded", examples=[22])
    retrying: int = Field(description="A retry waits or runs", examples=[1])
    is_complete: bool = Field(
        description="False: only the newest 5,000 failed attempts of the time are sorted", examples=[True]
    )


class ErrorGroupOut(BaseModel):
    """Errors that differ only in ids, numbers, addresses and host names."""

    model_config = ConfigDict(from_attributes=True)

    pattern: str = Field(examples=["GET \u2026: host name cannot be resolved"])
    example: str = Field(examples=["GET https://a.example/x: host name cannot be resolved"])
    execution_id: UUID = Field(description="Of the example, which is the newest")
    attempts: int = Field(examples=[84])
    schedules: int = Field(examples=[83])
    first_at: datetime = Field(examples=["2027-01-30T13:13:04.118Z"])
    last_at: datetime = Field(examples=["2027-01-31T01:30:41.877Z"])
    counts: FireCountsOut


class ErrorGroupList(BaseModel):
    items: list[ErrorGroupOut] = Field(description="Most fires that failed for good first")


class StatisticsOut(BaseModel):
    """Counts, durations and lateness (seconds) over the last days; percentiles are accurate to 2 %.

    All counts but `fires` are of executions, that is, of attempts.
    """

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
    fires: FireCountsOut


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
