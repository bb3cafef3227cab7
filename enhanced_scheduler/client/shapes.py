"""The schemas of the HTTP API that the client takes and returns. Instants are ISO 8601 texts, ids are texts.

Generated from the OpenAPI document: python -m tests.support.client_methods
"""

from typing import Any, Literal, NotRequired, TypedDict


class AddedChannelOut(TypedDict):
    channel_id: str
    name: str
    kind: str
    state: str
    config: dict[str, Any]
    enabled: bool
    note: str | None
    created_at: str
    created_by: str
    updated_at: str
    updated_by: str
    failures: int
    failing_since: str | None
    resume_at: str | None
    last_error: str | None
    last_sent_at: str | None
    waiting: int
    secret: str | None


class AttemptOut(TypedDict):
    number: int
    instance_id: str
    started_at: str
    ended_at: str | None
    outcome: str | None
    answer: str | None


class AttentionOut(TypedDict):
    trouble: str
    label: str
    words: str | None
    since: str | None
    schedule_id: str | None
    execution_id: str | None


class BackfillOut(TypedDict):
    schedule_id: str
    dry_run: bool
    fires: list["BackfilledFireOut"]
    succeeded: int
    open: int
    not_due: int


BackfillWish = TypedDict(
    "BackfillWish", {"from": str, "to": str, "dry_run": NotRequired[bool], "limit": NotRequired[int]}
)


class BackfilledFireOut(TypedDict):
    scheduled_for: str
    attempt: int
    execution_id: str | None


class BulkExecutionsResult(TypedDict):
    matched: int
    changed: list[str]
    missing: list[str]
    refused: list["RefusedExecution"]
    execution_ids: list[str]
    next_after: str | None
    dry_run: bool


class BulkOnExecutions(TypedDict):
    action: "ExecutionAction"
    execution_ids: NotRequired[list[str] | None]
    filter: NotRequired["ExecutionMatch | None"]
    dry_run: NotRequired[bool]
    limit: NotRequired[int]
    after: NotRequired[str | None]


class BulkResult(TypedDict):
    matched: int
    changed: list[str]
    unchanged: list[str]
    missing: list[str]
    refused: list["RefusedSwitch"]
    execution_ids: list[str]
    next_after: str | None
    dry_run: bool


class BulkSwitch(TypedDict):
    action: "ScheduleAction"
    schedule_ids: NotRequired[list[str] | None]
    filter: NotRequired["ScheduleMatch | None"]
    note: NotRequired[str | None]
    dry_run: NotRequired[bool]
    expected: NotRequired[int | None]
    limit: NotRequired[int]
    after: NotRequired[str | None]


class BusinessList(TypedDict):
    items: list["BusinessOut"]
    next_cursor: str | None


class BusinessOut(TypedDict):
    created_at: str
    updated_at: str
    id: str
    place_id: str
    business_name: str | None
    full_address: str | None
    city: str | None
    country: str | None
    phone: str | None
    website_url: str | None
    main_category: str | None
    rating: float | None
    reviews_count: int | None
    status: str
    domain_extraction_status: str | None
    domain_extraction_error: str | None


class CancelRequested(TypedDict):
    execution_id: str
    status: str


class ChangeList(TypedDict):
    items: list["ChangeOut"]


class ChangeOut(TypedDict):
    changed_at: str
    changed_by: str
    operation: str
    revision: int
    differences: list["Difference"]


class ChannelChanges(TypedDict):
    config: NotRequired[dict[str, Any]]
    enabled: NotRequired[bool]
    note: NotRequired[str | None]


class ChannelList(TypedDict):
    items: list["ChannelOut"]
    next_cursor: str | None


class ChannelOut(TypedDict):
    channel_id: str
    name: str
    kind: str
    state: str
    config: dict[str, Any]
    enabled: bool
    note: str | None
    created_at: str
    created_by: str
    updated_at: str
    updated_by: str
    failures: int
    failing_since: str | None
    resume_at: str | None
    last_error: str | None
    last_sent_at: str | None
    waiting: int


class ContactChanges(TypedDict):
    email: NotRequired[str | None]
    email_type: NotRequired["EmailType | None"]
    name: NotRequired[str | None]
    phone_number: NotRequired[str | None]
    source_url: NotRequired[str | None]
    context: NotRequired[str | None]
    contact_curation_status: NotRequired["ContactCurationStatus | None"]


ContactCurationStatus = Literal["New", "Queued", "Processing", "Complete", "Error"]


class ContactList(TypedDict):
    items: list["ContactOut"]
    next_cursor: str | None


class ContactOut(TypedDict):
    id: str
    domain_id: str
    domain: str
    page_id: str | None
    email: str
    email_type: "EmailType"
    name: str | None
    phone_number: str | None
    source_url: str | None
    context: str | None
    contact_curation_status: "ContactCurationStatus"
    created_by: str | None
    created_at: str
    updated_at: str


ContactScrapeStatus = Literal["New", "ContactFound", "NoContactFound", "Error", "NotAFit"]


class CookieChangeOut(TypedDict):
    kind: str
    name: str
    domain: str
    path: str
    storage: str
    category: str
    fields: dict[str, list[Any]]


class CookieList(TypedDict):
    scan_id: str
    items: list["CookieOut"]


class CookieOut(TypedDict):
    name: str
    domain: str
    path: str
    storage: str
    host_only: bool
    expires_at: str | None
    lifetime_seconds: int | None
    secure: bool
    http_only: bool
    same_site: str | None
    party: str
    consent: str
    category: str
    category_rule: str | None
    page_url: str
    request_url: str
    pages_seen: int


class Curate(TypedDict):
    ids: list[str]
    status: "PlaceStatus"


class CuratePlaces(TypedDict):
    ids: list[int | str]
    status: "PlaceStatus"


class CuratedOut(TypedDict):
    updated_count: int
    queued_count: int


DeepScanStatus = Literal["Queued", "Processing", "Completed", "Error"]


class DeliveryDetail(TypedDict):
    delivery_id: str
    channel_id: str
    channel: str | None
    rule_id: str | None
    event: str
    subject: str
    message: "MessageOut"
    state: str
    is_being_sent: bool
    created_at: str
    due_at: str
    next_at: str | None
    ended_at: str | None
    attempts: int
    last_error: str | None
    repeated_by: str | None
    tries: list["AttemptOut"]


class DeliveryList(TypedDict):
    items: list["DeliveryOut"]
    next_cursor: str | None


class DeliveryOut(TypedDict):
    delivery_id: str
    channel_id: str
    channel: str | None
    rule_id: str | None
    event: str
    subject: str
    message: "MessageOut"
    state: str
    is_being_sent: bool
    created_at: str
    due_at: str
    next_at: str | None
    ended_at: str | None
    attempts: int
    last_error: str | None
    repeated_by: str | None


DeliveryState = Literal["waiting", "sent", "failed", "cancelled"]


class Difference(TypedDict):
    field: str
    old: Any
    new: Any


class DirectSubmit(TypedDict):
    domains: list[str]


DomainExtractionStatus = Literal["Queued", "Processing", "Completed", "Error"]


class DomainList(TypedDict):
    items: list["DomainOut"]
    next_cursor: str | None


class DomainOut(TypedDict):
    created_at: str
    updated_at: str
    id: str
    domain: str
    local_business_id: str | None
    title: str | None
    language: str | None
    is_wordpress: bool | None
    tech_stack: list[str]
    email_addresses: list[str]
    phone_numbers: list[str]
    total_sitemaps: int
    last_scan: str | None
    status: str
    last_error: str | None
    sitemap_curation_status: str
    sitemap_analysis_status: str | None
    sitemap_analysis_error: str | None
    created_by: str | None


DomainStatus = Literal["pending", "processing", "completed", "error"]


EmailType = Literal["SERVICE", "CORPORATE", "FREE", "UNKNOWN"]


class ErrorGroupList(TypedDict):
    items: list["ErrorGroupOut"]


class ErrorGroupOut(TypedDict):
    pattern: str
    example: str
    execution_id: str
    attempts: int
    schedules: int
    first_at: str
    last_at: str
    counts: "FireCountsOut"


ExecutionAction = Literal["retry", "cancel"]


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


class ExecutionMatch(TypedDict):
    schedule: NotRequired[str | None]
    domain: NotRequired[str | None]
    status: NotRequired[str | None]
    cause: NotRequired[str | None]
    outcome: NotRequired["Fate | None"]
    error: NotRequired[str | None]
    job_type: NotRequired[str | None]
    tag: NotRequired[str | None]
    since: NotRequired[str | None]
    until: NotRequired[str | None]


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


Fate = Literal["failed", "recovered", "retrying"]


class FieldProblem(TypedDict):
    field: str
    reason: str


class FireCountsOut(TypedDict):
    failed: int
    recovered: int
    retrying: int
    is_complete: bool


class FireOut(TypedDict):
    at: str
    local: str


class ForecastOut(TypedDict):
    minutes: list["LoadOut"]


class LetterList(TypedDict):
    items: list["LetterOut"]
    next_before: int | None


class LetterOut(TypedDict):
    id: int
    queue: str
    item_key: str
    attempts: int
    error: str
    traceback: str | None
    died_at: str
    requeued_at: str | None
    requeued_by: str | None


class LimitChangeOut(TypedDict):
    changed_at: str
    changed_by: str
    operation: str
    old: dict[str, Any] | None
    new: dict[str, Any] | None


class LimitChanges(TypedDict):
    max_running: NotRequired[int]
    enabled: NotRequired[bool]
    note: NotRequired[str | None]


class LimitDetail(TypedDict):
    name: str
    max_running: int
    enabled: bool
    note: str | None
    created_at: str
    updated_at: str
    running: int
    waiting: int
    waiting_is_cut: bool
    oldest_wait_seconds: float | None
    schedules: int
    next_limit: str | None
    keys: list["LimitKeyOut"]
    executions: list["LimitedExecutionOut"]
    changes: list["LimitChangeOut"]


class LimitKeyOut(TypedDict):
    key: str
    running: int
    max_running: int
    waiting: int
    oldest_seconds: float | None


class LimitList(TypedDict):
    items: list["LimitOut"]
    next_cursor: str | None


class LimitOut(TypedDict):
    name: str
    max_running: int
    enabled: bool
    note: str | None
    created_at: str
    updated_at: str
    running: int
    waiting: int
    waiting_is_cut: bool
    oldest_wait_seconds: float | None
    schedules: int


class LimitedExecutionOut(TypedDict):
    execution_id: str
    schedule_id: str | None
    label: str
    key: str
    status: str
    instance_id: str | None
    started_at: str | None
    due_at: str | None


class LoadOut(TypedDict):
    at: str
    fires: float
    seconds: float
    labels: dict[str, int]


class LogLineOut(TypedDict):
    position: str
    at: str
    level: str
    text: str


class LogOut(TypedDict):
    lines: list["LogLineOut"]
    next_position: str
    done: float | None
    total: float | None
    is_complete: bool


class MessageOut(TypedDict):
    event: str
    title: str
    text: str
    severity: str
    link: str | None
    facts: dict[str, str]
    data: dict[str, Any]


class MinuteOut(TypedDict):
    at: str
    outcomes: dict[str, int]
    p50_seconds: float | None
    p99_seconds: float | None


class MomentOut(TypedDict):
    at: str
    what: str
    text: str


class NewChannel(TypedDict):
    config: dict[str, Any]
    enabled: NotRequired[bool]
    note: NotRequired[str | None]
    name: str
    kind: Literal["webhook", "email", "apprise"]


class NewContact(TypedDict):
    email: str
    email_type: NotRequired["EmailType | None"]
    name: NotRequired[str | None]
    phone_number: NotRequired[str | None]
    source_url: NotRequired[str | None]
    context: NotRequired[str | None]
    contact_curation_status: NotRequired["ContactCurationStatus | None"]
    domain_id: str


class NewLimit(TypedDict):
    max_running: int
    enabled: NotRequired[bool]
    note: NotRequired[str | None]
    name: str


class NewPlace(TypedDict):
    place_id: str
    name: NotRequired[str | None]
    formatted_address: NotRequired[str | None]
    latitude: NotRequired[float | None]
    longitude: NotRequired[float | None]
    rating: NotRequired[float | None]
    user_ratings_total: NotRequired[int | None]
    tenant_id: NotRequired[str | None]


class NewPlaces(TypedDict):
    places: list["NewPlace"]


class NewRule(TypedDict):
    channels: list[str]
    events: NotRequired[
        list[
            Literal[
                "failed",
                "failing",
                "recovered",
                "late",
                "slow",
                "no_success",
                "missed",
                "parked",
                "nobody_able",
                "replica_lost",
                "queue_open",
                "scan_changed",
                "audit_failed",
            ]
        ]
    ]
    schedule_ids: NotRequired[list[str]]
    tags: NotRequired[list[str]]
    job_types: NotRequired[list[str]]
    queues: NotRequired[list[str]]
    after_failures: NotRequired[int | None]
    late_seconds: NotRequired[int | None]
    slower_than_seconds: NotRequired[int | None]
    slower_than_usual: NotRequired[float | None]
    no_success_seconds: NotRequired[int | None]
    quiet_from: NotRequired[str | None]
    quiet_to: NotRequired[str | None]
    quiet_timezone: NotRequired[str]
    quiet_errors_pass: NotRequired[bool]
    digest: NotRequired[Literal["none", "daily", "weekly"]]
    digest_at: NotRequired[str]
    digest_day: NotRequired[Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]]
    digest_timezone: NotRequired[str]
    enabled: NotRequired[bool]
    note: NotRequired[str | None]
    name: str


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


class NewTokenIn(TypedDict):
    name: str
    role: "Role"
    expires_at: NotRequired[str | None]


class NewTokenOut(TypedDict):
    token_id: str
    name: str
    role: "Role"
    state: str
    created_at: str
    created_by: str
    expires_at: str | None
    revoked_at: str | None
    revoked_by: str | None
    last_used_at: str | None
    token: str


class OverviewOut(TypedDict):
    minutes: list["MinuteOut"]
    attention: list["AttentionOut"]


class PageList(TypedDict):
    items: list["SitePageOut"]
    next_cursor: str | None


class PageOut(TypedDict):
    url: str
    final_url: str | None
    depth: int
    attempts: int
    status_code: int | None
    error: str | None
    elapsed_ms: int
    notes: list[str]


PageProcessingStatus = Literal["Queued", "Processing", "Complete", "Error", "Filtered"]


class PauseQueue(TypedDict):
    reason: str


class PlaceList(TypedDict):
    items: list["PlaceOut"]
    next_cursor: str | None


class PlaceOut(TypedDict):
    created_at: str
    updated_at: str
    id: int
    place_id: str
    name: str | None
    formatted_address: str | None
    latitude: float | None
    longitude: float | None
    rating: float | None
    user_ratings_total: int | None
    tenant_id: str | None
    status: str
    deep_scan_status: str | None
    deep_scan_error: str | None


PlaceStatus = Literal["New", "Selected", "Maybe", "Not a Fit", "Archived"]


class PreviewOut(TypedDict):
    description: str
    timezone: str
    fires: list["FireOut"]
    warnings: list[str]
    problems: list["FieldProblem"]


class QueueList(TypedDict):
    items: list["QueueOut"]


class QueueOut(TypedDict):
    name: str
    job_id: str
    display_name: str
    depth: int
    due: int
    processing: int
    stale: int
    failed: int
    dead: int
    oldest_seconds: float
    circuit: str
    paused_at: str | None
    paused_by: str | None
    paused_reason: str | None
    batch_size: int | None
    last_run_at: str | None
    totals: dict[str, int]


class QueuePlaces(TypedDict):
    ids: list[int | str]


class RefusedExecution(TypedDict):
    execution_id: str
    reason: str


class RefusedSwitch(TypedDict):
    schedule_id: str
    errors: list["FieldProblem"]


class RepeatedOut(TypedDict):
    repeated: int


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


class RequeueFailed(TypedDict):
    keys: NotRequired[list[str] | None]
    error: NotRequired[str | None]
    since: NotRequired[str | None]
    limit: NotRequired[int]
    per_second: NotRequired[float]
    dry_run: NotRequired[bool]


class RequeueLetters(TypedDict):
    ids: NotRequired[list[int] | None]
    queue: NotRequired[str | None]
    error: NotRequired[str | None]
    since: NotRequired[str | None]
    limit: NotRequired[int]
    per_second: NotRequired[float]
    dry_run: NotRequired[bool]


class RequeuedOut(TypedDict):
    found: int
    requeued: dict[str, int]
    dry_run: bool


class RequeuedRows(TypedDict):
    queue: str
    found: int
    requeued: int
    dry_run: bool


Role = Literal["viewer", "operator", "admin"]


class RuleChanges(TypedDict):
    channels: NotRequired[list[str]]
    events: NotRequired[
        list[
            Literal[
                "failed",
                "failing",
                "recovered",
                "late",
                "slow",
                "no_success",
                "missed",
                "parked",
                "nobody_able",
                "replica_lost",
                "queue_open",
                "scan_changed",
                "audit_failed",
            ]
        ]
    ]
    schedule_ids: NotRequired[list[str]]
    tags: NotRequired[list[str]]
    job_types: NotRequired[list[str]]
    queues: NotRequired[list[str]]
    after_failures: NotRequired[int | None]
    late_seconds: NotRequired[int | None]
    slower_than_seconds: NotRequired[int | None]
    slower_than_usual: NotRequired[float | None]
    no_success_seconds: NotRequired[int | None]
    quiet_from: NotRequired[str | None]
    quiet_to: NotRequired[str | None]
    quiet_timezone: NotRequired[str]
    quiet_errors_pass: NotRequired[bool]
    digest: NotRequired[Literal["none", "daily", "weekly"]]
    digest_at: NotRequired[str]
    digest_day: NotRequired[Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]]
    digest_timezone: NotRequired[str]
    enabled: NotRequired[bool]
    note: NotRequired[str | None]


class RuleList(TypedDict):
    items: list["RuleOut"]
    next_cursor: str | None


class RuleOut(TypedDict):
    rule_id: str
    name: str
    channels: list[str]
    events: list[str]
    schedule_ids: list[str]
    tags: list[str]
    job_types: list[str]
    queues: list[str]
    after_failures: int | None
    late_seconds: int | None
    slower_than_seconds: int | None
    slower_than_usual: float | None
    no_success_seconds: int | None
    quiet_from: str | None
    quiet_to: str | None
    quiet_timezone: str
    quiet_errors_pass: bool
    digest: str
    digest_at: str
    digest_day: str
    digest_timezone: str
    enabled: bool
    note: str | None
    created_at: str
    created_by: str
    updated_at: str
    updated_by: str


class RunRequested(TypedDict):
    execution_id: str


class ScanDetail(TypedDict):
    scan_id: str
    execution_id: str | None
    schedule_id: str | None
    domain: str
    engine: str
    started_at: str
    finished_at: str
    previous_scan_id: str | None
    config: dict[str, Any]
    summary: dict[str, Any]
    pages: list["PageOut"]


class ScanDiff(TypedDict):
    scan_id: str
    previous_scan_id: str | None
    changes: list["CookieChangeOut"]


class ScanList(TypedDict):
    items: list["ScanOut"]
    next_cursor: str | None


class ScanOut(TypedDict):
    scan_id: str
    execution_id: str | None
    schedule_id: str | None
    domain: str
    engine: str
    started_at: str
    finished_at: str
    previous_scan_id: str | None
    config: dict[str, Any]
    summary: dict[str, Any]


ScheduleAction = Literal["run", "enable", "disable", "delete"]


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


class ScheduleDefinition(TypedDict):
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


class ScheduleMatch(TypedDict):
    search: NotRequired[str | None]
    enabled: NotRequired[bool | None]
    domain: NotRequired[str | None]
    job_type: NotRequired[str | None]
    source: NotRequired[str | None]
    tag: NotRequired[str | None]
    last_status: NotRequired[str | None]


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


class SearchPlaces(TypedDict):
    query: str
    limit: NotRequired[int]
    dry_run: NotRequired[bool]


class SearchedPlaces(TypedDict):
    created_count: int
    known_count: int
    items: list["StagedOut"]
    query: str
    requests: int
    incomplete: str | None


class SitePageOut(TypedDict):
    created_at: str
    updated_at: str
    id: str
    domain_id: str
    domain: str
    url: str
    sitemap_file_id: str | None
    page_type: str | None
    path_depth: int | None
    priority_level: int | None
    last_modified: str | None
    page_curation_status: str
    page_processing_status: str | None
    page_processing_error: str | None
    contact_scrape_status: str


SitemapAnalysisStatus = Literal["pending", "queued", "processing", "submitted", "failed"]


class SitemapFileList(TypedDict):
    items: list["SitemapFileOut"]
    next_cursor: str | None


class SitemapFileOut(TypedDict):
    created_at: str
    updated_at: str
    id: str
    domain_id: str
    domain: str
    url: str
    sitemap_type: str
    discovery_method: str | None
    status: str
    url_count: int | None
    page_count: int | None
    size_bytes: int | None
    last_modified: str | None
    sitemap_import_curation_status: str
    sitemap_import_status: str | None
    sitemap_import_error: str | None


SitemapImportStatus = Literal["Queued", "Processing", "Complete", "Error"]


class StagedOut(TypedDict):
    id: int | None
    place_id: str
    name: str | None
    formatted_address: str | None
    created: bool


class StagedPlaces(TypedDict):
    created_count: int
    known_count: int
    items: list["StagedOut"]


class StatisticsOut(TypedDict):
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
    fires: "FireCountsOut"


class SubmittedDomain(TypedDict):
    id: str
    domain: str
    created: bool


class SubmittedOut(TypedDict):
    updated_count: int
    queued_count: int
    items: list["SubmittedDomain"]


class SyncEntryOut(TypedDict):
    kind: str
    label: str
    item: int | None
    changes: dict[str, list[Any]]
    reasons: list[str]


class SyncReportOut(TypedDict):
    outcome: str
    by: str
    started_at: str
    finished_at: str
    items: int | None
    counts: dict[str, int]
    entries: list["SyncEntryOut"]
    refused: str | None
    error: str | None


class SyncStatusOut(TypedDict):
    configured: bool
    periodic: bool
    is_busy: bool
    lease_owner: str | None
    started_at: str | None
    synced_at: str | None
    not_before: str | None
    last: "SyncReportOut | None"
    applied: "SyncReportOut | None"


class SyncWish(TypedDict):
    allow_removals: NotRequired[bool]


class TokenList(TypedDict):
    items: list["TokenOut"]


class TokenOut(TypedDict):
    token_id: str
    name: str
    role: "Role"
    state: str
    created_at: str
    created_by: str
    expires_at: str | None
    revoked_at: str | None
    revoked_by: str | None
    last_used_at: str | None


class TrialOut(TypedDict):
    since: str
    walked_until: str
    walked: int
    told: list["TriedOut"]
    is_complete: bool


class TriedOut(TypedDict):
    at: str
    due_at: str
    message: "MessageOut"


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
