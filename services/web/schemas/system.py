"""Schemas of replicas, tokens, sessions, development tools and probes."""

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from services.web.auth.roles import Role
from services.web.instants import Instant


class ReplicaOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    instance_id: str
    incarnation: UUID
    started_at: datetime = Field(examples=["2027-01-20T06:00:12.044Z"])
    heartbeat_at: datetime
    heartbeat_age_seconds: float
    is_live: bool
    claiming: bool = Field(
        description="False while it starts no work: draining, clock skew, failing loops; /readyz gives the reason"
    )
    running: int
    schedules: int = Field(description="Schedules that it has loaded: those of its buckets")
    buckets: int | None = Field(
        description="Buckets of schedules, of 1024, that it holds; null: an older version, which loads every schedule"
    )
    host: str | None
    abilities: list[str] | None = Field(
        description="Job types and labels that it can run; null: an older version, which does not list them"
    )
    queues: list[str] | None = Field(description="Queues that it serves; null: an older version, which serves all")
    revision: int = Field(description="Newest change that it has applied")
    is_converged: bool
    clock_skew_seconds: float
    version: str | None
    tzdata: str | None
    max_workers: int | None
    redis_degraded: bool


class WorkerOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    instance_id: str
    started_at: datetime
    heartbeat_at: datetime
    running: int
    max_workers: int | None
    pool: str | None = Field(description="Celery's pool: prefork, threads or solo", examples=["prefork"])
    queues: list[str] = Field(description="Queues that it serves", examples=[["browser"]])
    abilities: list[str] = Field(description="Job types and labels that it can run")
    host: str | None
    version: str | None
    redis_degraded: bool


class ReplicaList(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    newest_revision: int
    are_converged: bool = Field(
        description="Has every live replica applied the newest change, as of its last heartbeat?"
    )
    items: list[ReplicaOut]
    workers: list[WorkerOut] = Field(description="Live processes of the fleet that run handlers: Celery workers")


class TokenOut(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    token_id: str
    name: str = Field(examples=["ci"])
    role: Role
    state: str = Field(examples=["active", "expired", "revoked"])
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    last_used_at: datetime | None = Field(description="Accurate to the minute")


class TokenList(BaseModel):
    items: list[TokenOut]


class NewTokenIn(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"name": "ci", "role": "operator"}]})

    name: str
    role: Role
    expires_at: Instant | None = None


class NewTokenOut(TokenOut):
    token: str = Field(description="The secret; only this response contains it")


class LogIn(BaseModel):
    model_config = ConfigDict(
        extra="forbid", hide_input_in_errors=True, json_schema_extra={"examples": [{"token": "es_…"}]}
    )

    token: str = Field(max_length=8192)


class SessionOut(BaseModel):
    actor: str
    role: Role
    expires_at: datetime | None


class JobOut(BaseModel):
    id: str = Field(examples=["process_pending_domains"])
    schedule_id: UUID
    name: str = Field(examples=["domain metadata"])
    trigger: str
    next_run_time: datetime | None
    pending: bool = Field(description="An execution is waiting for a replica")
    enabled: bool
    last_run: datetime | None
    last_status: str | None


class SchedulerStatus(BaseModel):
    status: str = Field(examples=["running", "stopped"])
    jobs: list[JobOut]
    total_jobs: int
    timestamp: datetime


class Alive(BaseModel):
    status: str = Field(examples=["alive", "stalled"])
    stalled_seconds: dict[str, float] = {}


class Ready(BaseModel):
    status: str = Field(examples=["ready", "not ready"])
    reasons: list[str] = []
