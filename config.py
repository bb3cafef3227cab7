"""Every setting of the project: name, unit, default, purpose, and the rules between settings.

The only module that reads the environment. `get_settings()` builds one frozen object per process; all other modules
receive plain values from it. `manage.py settings` prints the effective values. The workflow settings come first in
this file and last in every list, because they repeat for each queue.
"""

import difflib
import hashlib
import os
import re
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self
from uuid import UUID

from dotenv import dotenv_values
from pydantic import Field, PrivateAttr, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from enhanced_scheduler.model_errors import PREFIX, reason_of
from services.checks.celery_apps import CeleryApp, is_celery_app_variable, read_celery_apps
from services.checks.job_secrets import JobSecrets
from services.checks.queue_numbers import QueueNumbers
from services.errors import ConfigurationError

VERSION = "0.2.0"  # of programs, API and telemetry
PROJECT_ROOT = Path(__file__).resolve().parent
IS_INSTALLED = PROJECT_ROOT.name == "_application"  # inside the package enhanced_scheduler
HOME = Path.cwd() if IS_INSTALLED else PROJECT_ROOT  # of .env, .embedded and relative paths
SECONDS_PER_DAY = 86_400
LABEL = "[a-z0-9][a-z0-9_.-]{0,62}"  # of an ability, a requirement, a queue
NAME_LENGTH = 63  # Postgres truncates application_name to this length


_SERVER = re.compile(r"(postgres\w*(\+\w+)?|rediss?(\+sentinel|\+socket)?|unix|amqps?|sentinel)://")


def name_of_process(name: str) -> str:
    """`name-pid`; a long name is truncated and gets a digest, because two of them may differ only at the end."""
    process = f"-{os.getpid()}"
    if len(name + process) > NAME_LENGTH:
        digest = f"-{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"
        name = name[: NAME_LENGTH - len(digest + process)] + digest
    return name + process


def _own_name() -> str:
    return name_of_process(socket.gethostname())


def _knob(default: Any, group: str, text: str, *, shown: str | None = None, **limits: Any) -> Any:
    """One setting, with its metadata for the docs, .env.example and `manage.py settings`."""
    return Field(default, description=text, json_schema_extra={"group": group, "shown": shown}, **limits)


FLOWS = "Workflows"


def _every(minutes: int, queue: str) -> Any:
    return _knob(minutes, FLOWS, f"run every n minutes: {queue}", ge=1)


def _batch(rows: int, queue: str) -> Any:
    return _knob(rows, FLOWS, f"rows per claim at first; grows and shrinks by a factor of 4: {queue}", ge=1, le=10_000)


def _instances(runs: int, queue: str) -> Any:
    return _knob(runs, FLOWS, f"runs at once: {queue}", ge=1)


class WorkflowSettings(BaseSettings):
    environment: str = _knob("production", FLOWS, "`development` or `dev` enables the development tools")
    workflows_enabled: bool = _knob(False, FLOWS, "create the schedule of every workflow when a replica starts")
    scheduler_system_user_id: UUID | None = _knob(
        None, FLOWS, "user id recorded on rows that workflows create and on their pauses; unset: the queue's name"
    )
    default_tenant_id: UUID = _knob(
        UUID("550e8400-e29b-41d4-a716-446655440000"), FLOWS, "tenant of scanned places that have none"
    )
    workflow_retry_backoff_seconds: float = _knob(
        30, FLOWS, "delay before an item's second attempt; doubles with each attempt", ge=0
    )
    workflow_stale_slack_seconds: float = _knob(
        60,
        FLOWS,
        "an item still claimed this long after its timeout has lost its worker and is queued again",
        ge=1,
    )
    workflow_backpressure_depth: int = _knob(
        10_000,
        FLOWS,
        "backpressure: a workflow pauses while the queue that it fills holds more waiting rows than this",
        ge=1,
    )
    workflow_circuit_window: int = _knob(
        20, FLOWS, "circuit breaker: number of recent items it evaluates", ge=1, le=1000
    )
    workflow_circuit_failures: int = _knob(15, FLOWS, "circuit breaker: failures among them that open it", ge=1)
    workflow_circuit_cool_down_seconds: float = _knob(
        120, FLOWS, "circuit breaker: time it stays open before it probes with one item", gt=0
    )

    domain_scheduler_interval_minutes: int = _every(1, "domain metadata")
    domain_scheduler_batch_size: int = _batch(50, "domain metadata")
    domain_scheduler_max_instances: int = _instances(3, "domain metadata")

    deep_scan_scheduler_interval_minutes: int = _every(5, "deep scan")
    deep_scan_scheduler_batch_size: int = _batch(10, "deep scan")
    deep_scan_scheduler_max_instances: int = _instances(1, "deep scan")

    domain_extraction_scheduler_interval_minutes: int = _every(2, "domain extraction")
    domain_extraction_scheduler_batch_size: int = _batch(20, "domain extraction")
    domain_extraction_scheduler_max_instances: int = _instances(1, "domain extraction")

    domain_sitemap_scheduler_interval_minutes: int = _every(1, "sitemap submission")
    domain_sitemap_scheduler_batch_size: int = _batch(10, "sitemap submission")
    domain_sitemap_scheduler_max_instances: int = _instances(1, "sitemap submission")

    sitemap_job_scheduler_interval_minutes: int = _every(1, "sitemap jobs")
    sitemap_job_scheduler_batch_size: int = _batch(5, "sitemap jobs")
    sitemap_job_scheduler_max_instances: int = _instances(1, "sitemap jobs")

    sitemap_import_scheduler_interval_minutes: int = _every(1, "sitemap import")
    sitemap_import_scheduler_batch_size: int = _batch(20, "sitemap import")
    sitemap_import_scheduler_max_instances: int = _instances(1, "sitemap import")

    page_curation_scheduler_interval_minutes: int = _every(1, "page curation")
    page_curation_scheduler_batch_size: int = _batch(10, "page curation")
    page_curation_scheduler_max_instances: int = _instances(1, "page curation")

    sitemap_job_timeout_seconds: int = _knob(55, FLOWS, "timeout of a sitemap analysis job", ge=1)

    google_maps_api_key: SecretStr | None = _knob(None, FLOWS, "API key for place details; unset: deep scan pauses")
    google_maps_api: Literal["details", "places"] = _knob(
        "details", FLOWS, "API for place details: `details` is the classic Place Details, `places` the newer Places API"
    )
    google_maps_base_url: str = _knob("https://maps.googleapis.com", FLOWS, "base URL of Place Details")
    google_places_base_url: str = _knob("https://places.googleapis.com", FLOWS, "base URL of the Places API")
    workflow_fetch_delay_seconds: float = _knob(
        1, FLOWS, "minimum delay between two requests of a run to one host", ge=0, le=60
    )
    deep_scan_auto_queue_extraction: bool = _knob(
        True, FLOWS, "queue a new business for domain extraction automatically; false: it waits for curation"
    )
    sitemap_auto_queue_import: bool = _knob(
        True, FLOWS, "import a new sitemap automatically; false: it waits for curation"
    )
    page_import_queue_policy: Literal["all", "high_value"] = _knob(
        "all",
        FLOWS,
        "new pages queued for the contact search: `all` but pages without prospects, or only `high_value` pages",
    )

    @field_validator("google_maps_base_url", "google_places_base_url")
    @classmethod
    def _web_address(cls, url: str) -> str:
        if not re.match(r"https?://[^/]", url):
            raise ValueError("must start with http:// or https://")
        return url.rstrip("/")


class Settings(WorkflowSettings):
    """All settings; attribute names are the environment variables in lower case."""

    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", env_ignore_empty=True, hide_input_in_errors=True, allow_inf_nan=False
    )
    _former_queue_numbers: Mapping[str, QueueNumbers] = PrivateAttr(default_factory=dict)
    _celery_apps: Mapping[str, CeleryApp] = PrivateAttr(default_factory=dict)

    # Servers. With every address unset, real servers from wheels run under EMBEDDED_DIR.
    database_url: SecretStr | None = _knob(
        None, "Servers", "Postgres, `postgresql://user:password@host:5432/name`; unset: embedded server"
    )
    redis_url: SecretStr | None = _knob(
        None, "Servers", "Redis, `redis://`, `rediss://`, `unix://` or `redis+sentinel://`; unset: REDIS_HOST"
    )
    redis_host: str | None = _knob(None, "Servers", "Redis host, instead of REDIS_URL; both unset: embedded server")
    redis_port: int = _knob(6379, "Servers", "Redis port, with REDIS_HOST", ge=1, le=65535)
    redis_db: int = _knob(0, "Servers", "Redis database number, with REDIS_HOST", ge=0)
    redis_password: SecretStr | None = _knob(None, "Servers", "Redis password, with REDIS_HOST")
    celery_broker_url: SecretStr | None = _knob(
        None,
        "Servers",
        "Celery broker for CELERY_QUEUES, such as `redis://` or `amqp://`; unset: our Redis, the next database number",
    )
    embedded_dir: Path = _knob(Path(".embedded"), "Servers", "data directory of the embedded servers")
    database_pool_size: int = _knob(
        10,
        "Servers",
        "maximum Postgres connections for jobs, commands and requests; a replica opens up to 11 more",
        ge=1,
        le=100,
    )
    database_connect_timeout_seconds: int = _knob(3, "Servers", "timeout of a connection attempt", ge=1, le=60)
    database_statement_timeout_seconds: int = _knob(
        30, "Servers", "a statement that takes longer is cancelled", ge=1, le=SECONDS_PER_DAY
    )
    database_transaction_pooler: bool = _knob(
        False, "Servers", "set to true behind pgbouncer or Supavisor in transaction mode: no session state is used"
    )

    # One replica.
    instance_id: str = Field(
        default_factory=_own_name,
        description="unique name of this replica in history, logs and metrics",
        json_schema_extra={"group": "Replica", "shown": "host name-process id"},
        min_length=1,
        max_length=NAME_LENGTH,
    )
    host_name: str = _knob(
        "",
        "Replica",
        "machine of this replica: copies of a schedule prefer different ones; empty: the host name",
    )
    timer_copies: int = _knob(
        2, "Replica", "replicas that load each schedule; the others take over when all of these die", ge=1, le=100
    )
    max_workers: int = _knob(5, "Replica", "maximum concurrent executions per replica, a thread each", ge=1, le=1000)
    max_async_workers: int = _knob(
        100,
        "Replica",
        "maximum concurrent executions of async handlers per replica, beside MAX_WORKERS: they wait in one event loop",
        ge=1,
        le=10_000,
    )
    schedule_check_interval: int = _knob(
        60, "Replica", "seconds between full comparisons of timer and table (NOTIFY delivers changes sooner)", ge=1
    )
    job_modules: str = _knob("", "Replica", "Python modules with your own handlers, comma-separated")
    job_project: Path | None = _knob(
        None,
        "Replica",
        "directory of a project: its own interpreter runs the handlers of JOB_MODULES, each call in a process; "
        "unset: they run in the replica",
    )
    job_project_python: Path | None = _knob(
        None,
        "Replica",
        "Python interpreter of JOB_PROJECT, 3.11 or newer; unset: .venv/bin/python or venv/bin/python in it, if there "
        "is one, otherwise that of the replica",
    )
    abilities: str = _knob(
        "",
        "Replica",
        "labels that this replica offers to jobs that need them, comma-separated; `browser` needs no mention",
        pattern=rf"^\s*({LABEL}(\s*,\s*{LABEL})*\s*)?$",
    )
    queues: str = _knob(
        "default",
        "Replica",
        "queues whose executions this replica runs, comma-separated; a schedule without a queue is in `default`",
        pattern=rf"^\s*{LABEL}(\s*,\s*{LABEL})*\s*$",
    )
    celery_queues: str = _knob(
        "",
        "Replica",
        "queues whose executions run on Celery workers, comma-separated; replicas announce them to the broker",
        pattern=rf"^\s*({LABEL}(\s*,\s*{LABEL})*\s*)?$",
    )
    metrics_port: int = _knob(
        9108,
        "Replica",
        "port of /metrics, /healthz and /readyz; each replica on a machine needs its own; 0: off",
        ge=0,
        le=65535,
    )
    metrics_host: str = _knob(
        "0.0.0.0",  # noqa: S104 - probes and Prometheus connect from other machines; these pages hold no secret
        "Replica",
        "bind address of METRICS_PORT; `127.0.0.1`: this machine only, `::`: IPv6 too",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = _knob(
        "INFO", "Replica", "minimum severity of log messages"
    )
    log_format: Literal["text", "json"] = _knob("text", "Replica", "`text` for people, `json` for log collectors")
    shutdown_grace_seconds: int = _knob(
        30,
        "Replica",
        "how long a stopping replica waits for running executions, and for others to hold its share",
        ge=0,
    )

    # Used when the schedule's own column is NULL.
    job_max_instances: int = _knob(
        1, "Job defaults", "maximum concurrent executions of one schedule across all replicas", ge=1
    )
    job_coalesce: bool = _knob(True, "Job defaults", "combine several overdue fires of one schedule into one run")
    job_misfire_grace_time: int = _knob(
        300, "Job defaults", "misfire grace: seconds a fire may be late and still run", ge=1
    )
    job_replace_existing_instance: bool = _knob(
        True, "Job defaults", "a changed schedule always replaces its planned fires; `false` only logs a warning"
    )
    job_timeout_seconds: int = _knob(3600, "Job defaults", "an execution that takes longer ends `timed_out`", ge=1)
    job_max_retries: int = _knob(0, "Job defaults", "further attempts after a retryable failure", ge=0, le=100)
    job_retry_backoff_seconds: int = _knob(30, "Job defaults", "delay before the first retry; doubles each time", ge=0)
    job_catchup: Literal["none", "one", "all"] = _knob(
        "one", "Job defaults", "fires missed while no replica ran: record only, run the latest, or run all (capped)"
    )

    # Locks, takeover, catch-up.
    lock_timeout: int = _knob(60, "Safety", "seconds until an unrenewed Redis lease expires", ge=2)
    lock_failure_policy: Literal["degrade", "pause"] = _knob(
        "degrade", "Safety", "while Redis is down: `degrade` continues with Postgres alone, `pause` stops claiming"
    )
    heartbeat_interval_seconds: float = _knob(4, "Safety", "interval between heartbeats of a replica", gt=0)
    heartbeat_timeout_seconds: float = _knob(
        15, "Safety", "a replica without a heartbeat for this long counts as dead", gt=0
    )
    rescue_interval_seconds: float = _knob(
        5, "Safety", "interval between searches for executions of dead replicas", gt=0
    )
    verify_after_seconds: float = _knob(
        3, "Safety", "delay after which the loser of the Redis filter checks for the row", gt=0
    )
    gap_scan_seconds: float = _knob(
        30, "Safety", "interval between comparisons of expected fires with recorded ones", gt=0
    )
    max_clock_skew_seconds: float = _knob(
        5, "Safety", "a replica whose clock differs more from Postgres stops claiming", gt=0
    )
    catchup_window_seconds: int = _knob(3600, "Safety", "missed fires older than this are recorded but never run", ge=0)
    catchup_max_fires: int = _knob(10, "Safety", "maximum missed fires of one schedule that are run", ge=0)
    fence_horizon_seconds: int = _knob(86_400, "Safety", "a claim for a fire older than this is refused", ge=60)
    history_retention_days: int = _knob(90, "Safety", "executions, changes and scans older than this are deleted", ge=1)

    execution_log_max_bytes: int = _knob(
        1_048_576,
        "Safety",
        "bytes of one execution's live log that are stored from its beginning; the last 100 lines follow at its end; "
        "0 stores no live log",
        ge=0,
        le=1 << 30,
    )

    fleet_ping_url: SecretStr | None = _knob(
        None,
        "Safety",
        "URL called after each whole gap scan of the fleet, for a service that alerts when the calls stop; it may be a "
        "private address",
    )

    # Schedules from another system's API.
    api_url: str | None = _knob(
        None, "API sync", "URL that schedules are fetched from (http or https); may be a private address"
    )
    api_token: SecretStr | None = _knob(None, "API sync", "bearer token for API_URL; never sent to another site")
    enable_api_sync: bool | None = _knob(None, "API sync", "synchronize periodically", shown="true when API_URL is set")
    api_sync_interval: int = _knob(300, "API sync", "seconds between two syncs", ge=1)
    api_sync_max_removals_percent: int = _knob(
        20,
        "API sync",
        "if more schedules than this vanish at once, the response is not trusted and none is disabled",
        ge=0,
        le=100,
    )
    api_sync_local_edits: Literal["keep", "overwrite"] = _knob(
        "keep", "API sync", "local changes to fields that the API provides: keep or overwrite them"
    )
    api_sync_max_bytes: int = _knob(
        64 * 1024**2, "API sync", "maximum size of a response; a larger one is refused", ge=1024
    )
    request_timeout: int = _knob(10, "API sync", "timeout of an outgoing request in seconds", ge=1)

    # Outgoing requests of jobs.
    fetch_allow_private_addresses: bool = _knob(False, "Fetching", "allow jobs to call loopback and private addresses")
    fetch_allowed_networks: str = _knob(
        "", "Fetching", "private networks (CIDR) and hosts that jobs may call regardless, comma-separated"
    )
    job_secrets: str = _knob(
        "",
        "Fetching",
        "environment variables that jobs may use as `${env:NAME}`: `NAME` or, restricted to hosts, "
        "`NAME@host,*.host`, comma-separated; unset: none",
    )
    fetch_connect_to: str = _knob(
        "",
        "Fetching",
        "for tests: hosts redirected to another address, such as `*.example=127.0.0.1:8080`, comma-separated",
    )

    # Cookie scans.
    scan_browser: str | None = _knob(
        None, "Cookie scans", "path of Chromium or Chrome for `engine: browser`; unset: the first one on the PATH"
    )
    scan_cookie_rules_file: Path | None = _knob(
        None, "Cookie scans", "your own YAML file of cookie classification rules; they precede the built-in ones"
    )

    # The HTTP API.
    web_host: str = _knob(
        "127.0.0.1", "Web", "bind address of `manage.py web`; any address but loopback requires tokens"
    )
    web_port: int = _knob(8000, "Web", "port of `manage.py web`; 0: any free port", ge=0, le=65535)
    public_url: str | None = _knob(
        None, "Web", "address at which people open the dashboard; links of notifications begin with it; unset: no links"
    )
    web_trusted_proxies: str = _knob(
        "", "Web", "proxies whose X-Forwarded-For and X-Forwarded-Proto headers are trusted, comma-separated"
    )
    web_cors_origins: str = _knob("", "Web", "origins allowed to call the API with a token, comma-separated")
    web_rate_limit_per_minute: int = _knob(600, "Web", "requests per caller and process; 0: no limit", ge=0)
    web_max_body_bytes: int = _knob(
        1024 * 1024, "Web", "maximum size of a request body; a larger one is refused", ge=1024
    )
    web_max_event_streams: int = _knob(
        50, "Web", "Server-Sent Events: streams that a process serves at once; 0: none", ge=0
    )
    web_session_hours: int = _knob(12, "Web", "how long a browser stays logged in", ge=1, le=24 * 30)
    web_session_secret_key: SecretStr | None = _knob(
        None,
        "Web",
        "key that signs browser sessions; unset: derived from JWT_SECRET_KEY, otherwise new at each start",
        min_length=32,
    )
    web_secure_cookie: bool | None = _knob(
        None,
        "Web",
        "restrict the session cookie to https; set it behind a proxy that terminates TLS",
        shown="true when the request came over https",
    )
    jwt_secret_key: SecretStr | None = _knob(
        None,
        "Web",
        "key that verifies bearer JWTs (HS256), at least 32 characters; unset: no JWT is accepted",
        min_length=32,
    )
    jwt_audience: str = _knob("authenticated", "Web", "required `aud` claim of a JWT", min_length=1)
    jwt_issuer: str | None = _knob(None, "Web", "required `iss` claim of a JWT; unset: any")
    jwt_role_claim: str = _knob(
        "role", "Web", "JWT claim that holds viewer, operator or admin, such as `app_metadata.role`"
    )
    jwt_default_role: Literal["none", "viewer", "operator", "admin"] = _knob(
        "none", "Web", "role of a valid JWT without any of the three; `none`: no access"
    )

    @field_validator("instance_id")
    @classmethod
    def _one_line(cls, name: str) -> str:
        if not name.isprintable():
            raise ValueError("must not contain control characters")
        return name

    @field_validator("database_url")
    @classmethod
    def _postgres_only(cls, url: SecretStr | None) -> SecretStr | None:
        if url and not re.match(r"postgres(ql(\+psycopg2)?)?://", url.get_secret_value()):
            raise ValueError("must start with postgresql://")
        return url

    @field_validator("redis_url")
    @classmethod
    def _redis_only(cls, url: SecretStr | None) -> SecretStr | None:
        if url and not re.match(r"(rediss?|unix|rediss?\+sentinel)://", url.get_secret_value()):
            raise ValueError("must start with redis://, rediss://, unix:// or redis+sentinel://")
        return url

    @field_validator("api_url", "public_url")
    @classmethod
    def _web_only(cls, url: str | None) -> str | None:
        if url and not re.match(r"https?://[^/]", url):
            raise ValueError("must start with http:// or https://")
        return url

    @field_validator("fleet_ping_url")
    @classmethod
    def _secret_web_only(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            cls._web_only(url.get_secret_value())
        return url

    @field_validator("job_secrets")
    @classmethod
    def _secrets_of_jobs_only(cls, text: str) -> str:
        for name in JobSecrets.parse(text).hosts:
            if name.lower() in cls.model_fields or is_celery_app_variable(name):
                raise ValueError(f"{name!r} is a setting of the scheduler; jobs cannot read it")
        return text

    @field_validator("api_token")
    @classmethod
    def _one_word(cls, token: SecretStr | None) -> SecretStr | None:
        if token and not re.fullmatch(r"[!-~]+", token.get_secret_value()):
            raise ValueError("must consist of printable ASCII characters without spaces")
        return token

    @model_validator(mode="after")
    def _rules_between_knobs(self) -> Self:
        for broken, message in self._rules():
            if broken:
                raise ValueError(message)
        return self

    def _rules(self) -> list[tuple[bool, str]]:
        return [
            (
                bool(self.redis_url and self.redis_host),
                "REDIS_URL and REDIS_HOST are both set; keep only one",
            ),
            (
                bool(self.served_queues & self.fleet_queues),
                f"QUEUES and CELERY_QUEUES both name {', '.join(sorted(self.served_queues & self.fleet_queues))}; "
                "a queue is served by replicas or by Celery workers",
            ),
            (
                self.job_misfire_grace_time > self.catchup_window_seconds,
                f"JOB_MISFIRE_GRACE_TIME={self.job_misfire_grace_time} must not be longer than "
                f"CATCHUP_WINDOW_SECONDS={self.catchup_window_seconds}",
            ),
            (
                self.catchup_window_seconds > self.fence_horizon_seconds,
                f"CATCHUP_WINDOW_SECONDS={self.catchup_window_seconds} must not be longer than "
                f"FENCE_HORIZON_SECONDS={self.fence_horizon_seconds}",
            ),
            (
                self.fence_horizon_seconds >= self.history_retention_days * SECONDS_PER_DAY,
                f"FENCE_HORIZON_SECONDS={self.fence_horizon_seconds} must be shorter than "
                f"HISTORY_RETENTION_DAYS={self.history_retention_days}: deleted history cannot fence off old fires",
            ),
            (
                self.heartbeat_interval_seconds > self.heartbeat_timeout_seconds / 3,
                f"HEARTBEAT_INTERVAL_SECONDS={self.heartbeat_interval_seconds:g} must be at most a third of "
                f"HEARTBEAT_TIMEOUT_SECONDS={self.heartbeat_timeout_seconds:g}, to tolerate a lost heartbeat",
            ),
            (
                self.verify_after_seconds >= self.gap_scan_seconds,
                f"VERIFY_AFTER_SECONDS={self.verify_after_seconds:g} must be shorter than "
                f"GAP_SCAN_SECONDS={self.gap_scan_seconds:g}",
            ),
            (
                bool(self.enable_api_sync) and not self.api_url,
                "ENABLE_API_SYNC is true but API_URL is not set; set API_URL or disable the sync",
            ),
            (
                self.workflow_circuit_failures > self.workflow_circuit_window,
                f"WORKFLOW_CIRCUIT_FAILURES={self.workflow_circuit_failures} must not exceed "
                f"WORKFLOW_CIRCUIT_WINDOW={self.workflow_circuit_window}: otherwise the circuit could never open",
            ),
        ]

    @property
    def ability_labels(self) -> frozenset[str]:
        return frozenset(label.strip() for label in self.abilities.split(",") if label.strip())

    @property
    def served_queues(self) -> frozenset[str]:
        return frozenset(queue.strip() for queue in self.queues.split(","))

    @property
    def fleet_queues(self) -> frozenset[str]:
        return frozenset(queue.strip() for queue in self.celery_queues.split(",") if queue.strip())

    @property
    def warnings(self) -> list[str]:
        """Settings that have no effect, each with the reason; logged at startup and shown by `doctor`."""
        return [*self._unused_project(), *self._kept_instances()]

    def _unused_project(self) -> list[str]:
        if self.job_project is None or self.job_modules.strip(" ,"):
            return []
        return [f"JOB_PROJECT={self.job_project} has no effect: JOB_MODULES names no module of that directory"]

    def _kept_instances(self) -> list[str]:
        if self.job_replace_existing_instance:
            return []
        return [
            "JOB_REPLACE_EXISTING_INSTANCE=false has no effect: a change always replaces the planned fires, "
            "because a replica runs each fire with the schedule's current definition; to keep a planned run, "
            "change the schedule after it, or start the run with `manage.py schedule run`"
        ]

    @property
    def celery_apps(self) -> Mapping[str, CeleryApp]:
        """The Celery apps whose tasks jobs may call, by name: CELERY_APPS_<NAME>_BROKER_URL and _TASKS."""
        return self._celery_apps

    @property
    def syncs_from_api(self) -> bool:
        return self.api_url is not None if self.enable_api_sync is None else self.enable_api_sync

    def former_queue_numbers(self, group: str) -> QueueNumbers:
        """Values of version 0.1's variables that are no longer settings: DEEP_SCAN_SCHEDULER_CONCURRENCY, ….

        The numbers live in the workflows' schedules now. Until 0.3 a variable holds where the schedule says nothing.
        """
        return self._former_queue_numbers.get(group, QueueNumbers())


def knobs() -> dict[str, FieldInfo]:
    """Environment variable -> field, in the order of this file; the workflow settings come last."""
    fields = sorted(Settings.model_fields.items(), key=lambda item: knob_group(item[1]) == FLOWS)
    return {name.upper(): field for name, field in fields}


def knob_group(field: FieldInfo) -> str:
    return str(_extra(field)["group"])


def shown_default(field: FieldInfo) -> str:
    """The default as it is written in an environment file; empty when unset."""
    shown = _extra(field)["shown"]
    if shown is not None:
        return str(shown)
    match field.default:
        case None:
            return ""
        case bool() as flag:
            return str(flag).lower()
        case value:
            return str(value)


def _extra(field: FieldInfo) -> dict[str, Any]:
    assert isinstance(field.json_schema_extra, dict)  # noqa: S101 - every field is made with it
    return dict(field.json_schema_extra)


def masked(value: object) -> str:
    """A setting's value with its secrets masked: passwords in URLs and every field declared secret."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
    if "://" in text:
        # Greedy up to the last @: an unescaped @ or / inside a password must not reveal the rest of it.
        text = re.sub(r"(?i)(password=)[^&]*", r"\1***", re.sub(r"(://[^:/@?]*):.*@", r"\1:***@", text))
        # In a web address any query value may be a key; the options in a server's address are not secret.
        return text if _SERVER.match(text) else re.sub(r"([?&][^=&#]*=|#)[^&#]*", r"\1***", text)
    return "***" if isinstance(value, SecretStr) else text


def unknown_variables() -> dict[str, str | None]:
    """Names in the .env file that match no setting, each with the setting that was probably meant."""
    known = [*knobs(), *_former_queue_variables(), "ENV_FILE"]
    strangers = [name for name in _from_file() if name.upper() not in known and not is_celery_app_variable(name)]
    return {name: next(iter(difflib.get_close_matches(name.upper(), known, 1)), None) for name in strangers}


def env_file() -> Path | None:
    """The file for variables that the environment lacks; ENV_FILE names another one, or none when empty."""
    chosen = os.environ.get("ENV_FILE")
    if chosen is None:
        return HOME / ".env"
    return Path(chosen) if chosen else None


def _from_file() -> Mapping[str, str | None]:
    file = env_file()
    if file is None:
        return {}
    try:
        with file.open(encoding="utf-8") as stream:
            return dotenv_values(stream=stream)
    except FileNotFoundError:
        if "ENV_FILE" not in os.environ:
            return {}  # the default file is optional
        raise ConfigurationError(f"ENV_FILE={str(file)!r}: file not found") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file}: is not UTF-8 text") from None
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {(error.strerror or str(error)).lower()}") from None


def environment_secret(name: str) -> str | None:
    """The value behind ${env:NAME} in a job's configuration; None when it is unset or empty.

    JOB_SECRETS decides which variables jobs may use. The scheduler's own settings are never available to jobs.
    """
    if name.upper() in knobs() or is_celery_app_variable(name):
        return None
    return os.environ.get(name) or _from_file().get(name) or None


def child_environment(**more: str) -> dict[str, str]:
    """The environment of a child process: our own, overridden by these variables."""
    return {**os.environ, **more}


def load_settings() -> Settings:
    """Read and validate all settings; the ConfigurationError has one line for each bad value."""
    _from_file()  # an unreadable file is an error, not an empty file
    try:
        settings = Settings(_env_file=env_file())
    except ValidationError as error:
        raise ConfigurationError("\n".join(_explain(error))) from None
    settings._former_queue_numbers = _former_queue_numbers()
    settings._celery_apps, problems = read_celery_apps(given_values())
    if problems:
        raise ConfigurationError("\n".join(problems))
    return settings


def _former_queue_variables() -> dict[str, tuple[str, str]]:
    """Variable -> its group of settings and its field in a workflow's job_config."""
    groups = [name.removesuffix("_batch_size") for name in Settings.model_fields if name.endswith("_batch_size")]
    return {f"{group}_{field}".upper(): (group, field) for group in groups for field in QueueNumbers.model_fields}


def _former_queue_numbers() -> dict[str, QueueNumbers]:
    given, said = given_values(), dict[str, dict[str, str]]()
    for name, (group, field) in _former_queue_variables().items():
        if given.get(name):
            said.setdefault(group, {})[field] = given[name]
    found, lines = dict[str, QueueNumbers](), list[str]()
    for group, numbers in said.items():
        try:
            found[group] = QueueNumbers.model_validate(numbers)
        except ValidationError as error:
            lines += _explain(error, f"{group}_")
    if lines:
        raise ConfigurationError("\n".join(lines))
    return found


def _explain(error: ValidationError, prefix: str = "") -> list[str]:
    given = given_values()
    lines = []
    for problem in error.errors(include_url=False):
        if not problem["loc"]:
            lines.append(problem["msg"].removeprefix(PREFIX))
            continue
        name = f"{prefix}{problem['loc'][0]}".upper()
        lines.append(f"{name}={_masked_input(name, given.get(name, ''))!r}: {reason_of(problem['msg'])}")
    return lines


def given_values() -> Mapping[str, str]:
    """Every variable of the environment and of the .env file, whoever it is for. An empty one counts as unset."""
    set_here = {name: value for name, value in os.environ.items() if value}
    return {name.upper(): value for name, value in {**_from_file(), **set_here}.items() if value}


def _masked_input(name: str, value: str) -> str:
    field = knobs().get(name)
    is_secret = field is not None and "SecretStr" in str(field.annotation)
    return masked(SecretStr(value)) if is_secret else masked(value)


@cache
def get_settings() -> Settings:
    """The settings of this process, read once."""
    return load_settings()
