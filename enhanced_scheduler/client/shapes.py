"""The schemas of the HTTP API that the client takes and returns. Instants are ISO 8601 texts, ids are texts.

Generated from the OpenAPI document: python -m tests.support.client_shapes > enhanced_scheduler/client/shapes.py
"""

from typing import Any, Literal, NotRequired, TypedDict


class CancelRequested(TypedDict):
    execution_id: str
    status: str


class ExecutionDetail(TypedDict):
    execution_id: str
    schedule_id: str | None
    job_id: str
    domain: str
    status: str
    reason: str | None
    note: str | None
    cause: str
    attempt: int
    scheduled_for: str
    due_at: str | None
    claimed_at: str | None
    started_at: str | None
    completed_at: str | None
    cancel_requested_at: str | None
    duration_seconds: float | None
    instance_id: str | None
    scan_id: str | None
    error_message: str | None
    created_at: str
    domain_config_id: str
    fencing_token: int | None
    error_details: dict[str, Any] | None
    metadata: dict[str, Any] | None
    attempts: list["ExecutionOut"]
    timeline: list["MomentOut"]


class ExecutionOut(TypedDict):
    execution_id: str
    schedule_id: str | None
    job_id: str
    domain: str
    status: str
    reason: str | None
    note: str | None
    cause: str
    attempt: int
    scheduled_for: str
    due_at: str | None
    claimed_at: str | None
    started_at: str | None
    completed_at: str | None
    cancel_requested_at: str | None
    duration_seconds: float | None
    instance_id: str | None
    scan_id: str | None
    error_message: str | None
    created_at: str


class ExecutionPage(TypedDict):
    items: list["ExecutionOut"]
    next_cursor: str | None


class ExplanationOut(TypedDict):
    schedule_id: str
    at: str
    timezone: str
    verdict: str
    sentences: list[str]
    late_seconds: float | None
    previous_fire_at: str | None
    next_fire_at: str | None
    executions: list["ExecutionOut"]


class FieldProblem(TypedDict):
    field: str
    reason: str


class FireOut(TypedDict):
    at: str
    local: str


class MomentOut(TypedDict):
    at: str
    what: str
    text: str


class NewSchedule(TypedDict):
    domain: str
    frequency: Literal["hourly", "daily", "weekly", "monthly", "interval", "cron", "once"]
    time_config: dict[str, Any]
    timezone: NotRequired[str]
    name: NotRequired[str | None]
    enabled: NotRequired[bool]
    disabled_note: NotRequired[str | None]
    job_type: NotRequired[str]
    job_config: NotRequired[dict[str, Any]]
    domain_config_id: NotRequired[str | None]
    profile_id: NotRequired[str | None]
    priority: NotRequired[int]
    tags: NotRequired[list[str]]
    requires: NotRequired[list[str]]
    queue: NotRequired[str | None]
    limit_keys: NotRequired[list[str]]
    start_at: NotRequired[str | None]
    end_at: NotRequired[str | None]
    spread_seconds: NotRequired[int]
    source: NotRequired[Literal["manual", "api", "system"]]
    max_instances: NotRequired[int | None]
    coalesce: NotRequired[bool | None]
    misfire_grace_seconds: NotRequired[int | None]
    timeout_seconds: NotRequired[int | None]
    max_retries: NotRequired[int | None]
    retry_backoff_seconds: NotRequired[int | None]
    catchup: NotRequired[Literal["none", "one", "all"] | None]
    pause_after_failures: NotRequired[int | None]
    backoff_after_failures: NotRequired[int | None]
    ping_url: NotRequired[str | None]
    schedule_id: NotRequired[str | None]


class PreviewOut(TypedDict):
    description: str
    timezone: str
    fires: list["FireOut"]
    warnings: list[str]
    problems: list["FieldProblem"]


class ReplicaList(TypedDict):
    newest_revision: int
    are_converged: bool
    items: list["ReplicaOut"]
    workers: list["WorkerOut"]


class ReplicaOut(TypedDict):
    instance_id: str
    incarnation: str
    started_at: str
    heartbeat_at: str
    heartbeat_age_seconds: float
    is_live: bool
    claiming: bool
    running: int
    schedules: int
    buckets: int | None
    host: str | None
    abilities: list[str] | None
    queues: list[str] | None
    revision: int
    is_converged: bool
    clock_skew_seconds: float
    version: str | None
    tzdata: str | None
    max_workers: int | None
    redis_degraded: bool


class RunRequested(TypedDict):
    execution_id: str


class ScheduleChanges(TypedDict):
    domain: NotRequired[str]
    frequency: NotRequired[Literal["hourly", "daily", "weekly", "monthly", "interval", "cron", "once"]]
    time_config: NotRequired[dict[str, Any]]
    timezone: NotRequired[str]
    name: NotRequired[str | None]
    enabled: NotRequired[bool]
    disabled_note: NotRequired[str | None]
    job_type: NotRequired[str]
    job_config: NotRequired[dict[str, Any]]
    domain_config_id: NotRequired[str | None]
    profile_id: NotRequired[str | None]
    priority: NotRequired[int]
    tags: NotRequired[list[str]]
    requires: NotRequired[list[str]]
    queue: NotRequired[str | None]
    limit_keys: NotRequired[list[str]]
    start_at: NotRequired[str | None]
    end_at: NotRequired[str | None]
    spread_seconds: NotRequired[int]
    source: NotRequired[Literal["manual", "api", "system"]]
    max_instances: NotRequired[int | None]
    coalesce: NotRequired[bool | None]
    misfire_grace_seconds: NotRequired[int | None]
    timeout_seconds: NotRequired[int | None]
    max_retries: NotRequired[int | None]
    retry_backoff_seconds: NotRequired[int | None]
    catchup: NotRequired[Literal["none", "one", "all"] | None]
    pause_after_failures: NotRequired[int | None]
    backoff_after_failures: NotRequired[int | None]
    ping_url: NotRequired[str | None]


class ScheduleOut(TypedDict):
    schedule_id: str
    name: str | None
    domain: str
    enabled: bool
    disabled_note: str | None
    frequency: str
    time_config: dict[str, Any]
    timezone: str
    next_run: str | None
    last_run: str | None
    last_status: str | None
    invalid_reason: str | None
    job_type: str
    job_config: dict[str, Any]
    domain_config_id: str
    external_id: str | None
    profile_id: str | None
    priority: int
    tags: list[str]
    requires: list[str]
    queue: str | None
    limit_keys: list[str]
    start_at: str | None
    end_at: str | None
    spread_seconds: int
    source: str
    max_instances: int | None
    coalesce: bool | None
    misfire_grace_seconds: int | None
    timeout_seconds: int | None
    max_retries: int | None
    retry_backoff_seconds: int | None
    catchup: str | None
    pause_after_failures: int | None
    backoff_after_failures: int | None
    ping_url: str | None
    failures_in_a_row: int
    backoff_until: str | None
    revision: int
    effective_from: str
    created_at: str
    updated_at: str
    warnings: NotRequired[list[str]]


class SchedulePage(TypedDict):
    items: list["ScheduleOut"]
    next_cursor: str | None
    total: NotRequired[int | None]


class WorkerOut(TypedDict):
    instance_id: str
    started_at: str
    heartbeat_at: str
    running: int
    max_workers: int | None
    pool: str | None
    queues: list[str]
    abilities: list[str]
    host: str | None
    version: str | None
    redis_degraded: bool
