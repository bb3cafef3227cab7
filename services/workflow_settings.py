"""The settings of the status-queue workflows, the same seven for each queue. Part of `config.Settings`."""

import re
from typing import Any, Literal
from uuid import UUID

from pydantic import SecretStr, field_validator
from pydantic_settings import BaseSettings

from services.knob import knob

GROUP = "Workflows"


def _every(minutes: int, queue: str) -> Any:
    return knob(minutes, GROUP, f"run every n minutes: {queue}", ge=1)


def _batch(rows: int, queue: str) -> Any:
    return knob(rows, GROUP, f"rows per claim at first; grows and shrinks by a factor of 4: {queue}", ge=1, le=10_000)


def _instances(runs: int, queue: str) -> Any:
    return knob(runs, GROUP, f"runs at once: {queue}", ge=1)


def _concurrency(items: int, queue: str) -> Any:
    return knob(items, GROUP, f"items that one run works on at once: {queue}", ge=1, le=500)


def _budget(queue: str) -> Any:
    return knob(50, GROUP, f"seconds after which a run claims nothing more: {queue}", ge=1)


def _timeout(queue: str) -> Any:
    return knob(60, GROUP, f"seconds that one item may take: {queue}", gt=0)


def _attempts(queue: str) -> Any:
    return knob(3, GROUP, f"attempts before an item becomes a dead letter: {queue}", ge=1, le=100)


class WorkflowSettings(BaseSettings):
    environment: str = knob("production", GROUP, "`development` or `dev` opens the development tools")
    workflows_enabled: bool = knob(False, GROUP, "give every workflow its schedule when a replica starts")
    scheduler_system_user_id: UUID | None = knob(
        None, GROUP, "user id under which workflows create rows and pause; unset: their queue's name"
    )
    default_tenant_id: UUID = knob(
        UUID("550e8400-e29b-41d4-a716-446655440000"), GROUP, "tenant of scanned places that name none"
    )
    workflow_retry_backoff_seconds: float = knob(30, GROUP, "wait before an item's second attempt; doubles", ge=0)
    workflow_stale_slack_seconds: float = knob(
        60, GROUP, "an item that nobody ended so long after its timeout has lost its worker: it is queued again", ge=1
    )
    workflow_backpressure_depth: int = knob(
        10_000, GROUP, "a workflow waits while more rows than this wait for their turn in the queue that it fills", ge=1
    )
    workflow_circuit_window: int = knob(20, GROUP, "how many of the last items its circuit looks at", ge=1, le=1000)
    workflow_circuit_failures: int = knob(15, GROUP, "so many failures among them open the circuit", ge=1)
    workflow_circuit_cool_down_seconds: float = knob(
        120, GROUP, "how long an open circuit waits before it tries one item", gt=0
    )

    domain_scheduler_interval_minutes: int = _every(1, "domain metadata")
    domain_scheduler_batch_size: int = _batch(50, "domain metadata")
    domain_scheduler_max_instances: int = _instances(3, "domain metadata")
    domain_scheduler_concurrency: int = _concurrency(20, "domain metadata")
    domain_scheduler_run_budget_seconds: float = _budget("domain metadata")
    domain_scheduler_item_timeout_seconds: float = _timeout("domain metadata")
    domain_scheduler_max_attempts: int = _attempts("domain metadata")

    deep_scan_scheduler_interval_minutes: int = _every(5, "deep scan")
    deep_scan_scheduler_batch_size: int = _batch(10, "deep scan")
    deep_scan_scheduler_max_instances: int = _instances(1, "deep scan")
    deep_scan_scheduler_concurrency: int = _concurrency(5, "deep scan")
    deep_scan_scheduler_run_budget_seconds: float = _budget("deep scan")
    deep_scan_scheduler_item_timeout_seconds: float = _timeout("deep scan")
    deep_scan_scheduler_max_attempts: int = _attempts("deep scan")

    domain_extraction_scheduler_interval_minutes: int = _every(2, "domain extraction")
    domain_extraction_scheduler_batch_size: int = _batch(20, "domain extraction")
    domain_extraction_scheduler_max_instances: int = _instances(1, "domain extraction")
    domain_extraction_scheduler_concurrency: int = _concurrency(1, "domain extraction")
    domain_extraction_scheduler_run_budget_seconds: float = _budget("domain extraction")
    domain_extraction_scheduler_item_timeout_seconds: float = _timeout("domain extraction")
    domain_extraction_scheduler_max_attempts: int = _attempts("domain extraction")

    domain_sitemap_scheduler_interval_minutes: int = _every(1, "sitemap submission")
    domain_sitemap_scheduler_batch_size: int = _batch(10, "sitemap submission")
    domain_sitemap_scheduler_max_instances: int = _instances(1, "sitemap submission")
    domain_sitemap_scheduler_concurrency: int = _concurrency(1, "sitemap submission")
    domain_sitemap_scheduler_run_budget_seconds: float = _budget("sitemap submission")
    domain_sitemap_scheduler_item_timeout_seconds: float = _timeout("sitemap submission")
    domain_sitemap_scheduler_max_attempts: int = _attempts("sitemap submission")

    sitemap_job_scheduler_interval_minutes: int = _every(1, "sitemap jobs")
    sitemap_job_scheduler_batch_size: int = _batch(5, "sitemap jobs")
    sitemap_job_scheduler_max_instances: int = _instances(1, "sitemap jobs")
    sitemap_job_scheduler_concurrency: int = _concurrency(5, "sitemap jobs")
    sitemap_job_scheduler_run_budget_seconds: float = _budget("sitemap jobs")
    sitemap_job_scheduler_item_timeout_seconds: float = _timeout("sitemap jobs")
    sitemap_job_scheduler_max_attempts: int = _attempts("sitemap jobs")

    sitemap_import_scheduler_interval_minutes: int = _every(1, "sitemap import")
    sitemap_import_scheduler_batch_size: int = _batch(20, "sitemap import")
    sitemap_import_scheduler_max_instances: int = _instances(1, "sitemap import")
    sitemap_import_scheduler_concurrency: int = _concurrency(4, "sitemap import")
    sitemap_import_scheduler_run_budget_seconds: float = _budget("sitemap import")
    sitemap_import_scheduler_item_timeout_seconds: float = _timeout("sitemap import")
    sitemap_import_scheduler_max_attempts: int = _attempts("sitemap import")

    page_curation_scheduler_interval_minutes: int = _every(1, "page curation")
    page_curation_scheduler_batch_size: int = _batch(10, "page curation")
    page_curation_scheduler_max_instances: int = _instances(1, "page curation")
    page_curation_scheduler_concurrency: int = _concurrency(10, "page curation")
    page_curation_scheduler_run_budget_seconds: float = _budget("page curation")
    page_curation_scheduler_item_timeout_seconds: float = _timeout("page curation")
    page_curation_scheduler_max_attempts: int = _attempts("page curation")

    sitemap_job_timeout_seconds: int = knob(55, GROUP, "a sitemap analysis job that takes longer fails", ge=1)

    google_maps_api_key: SecretStr | None = knob(None, GROUP, "key for the details of places; unset: deep scan pauses")
    google_maps_api: Literal["details", "places"] = knob(
        "details", GROUP, "which API knows the places: the classic Place Details, or the newer Places API"
    )
    google_maps_base_url: str = knob("https://maps.googleapis.com", GROUP, "where Place Details is")
    google_places_base_url: str = knob("https://places.googleapis.com", GROUP, "where the Places API is")
    workflow_fetch_delay_seconds: float = knob(
        1, GROUP, "least time between two requests of a run to one host", ge=0, le=60
    )
    deep_scan_auto_queue_extraction: bool = knob(
        True, GROUP, "a new business goes on to domain extraction by itself; false: it waits for curation"
    )
    sitemap_auto_queue_import: bool = knob(
        True, GROUP, "a new sitemap is imported by itself; false: it waits for curation"
    )
    page_import_queue_policy: Literal["all", "high_value"] = knob(
        "all", GROUP, "which new pages are searched for contacts by themselves: all but the hopeless, or the best"
    )

    @field_validator("google_maps_base_url", "google_places_base_url")
    @classmethod
    def _web_address(cls, url: str) -> str:
        if not re.match(r"https?://[^/]", url):
            raise ValueError("must start with http:// or https://")
        return url.rstrip("/")
