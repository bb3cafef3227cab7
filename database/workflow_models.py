"""The tables of the status-queue workflows, and the state that the job loop stores for each queue.

A queue is a status column with five columns beside it (`QueueColumns`) and three partial indexes (`_queue`).
Triggers exist in the migration: they set `updated_at` and reset the columns of a row that enters a queue.
"""

from datetime import date, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Identity,
    Index,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from database.models import NEW_UUID, NOW, Base
from database.workflow_statuses import (
    CircuitStatus,
    ContactCurationStatus,
    ContactScrapeStatus,
    DeepScanStatus,
    DiscoveryMethod,
    DomainExtractionStatus,
    DomainStatus,
    EmailType,
    JobStatus,
    PageProcessingStatus,
    PlaceStatus,
    SitemapAnalysisStatus,
    SitemapFileStatus,
    SitemapImportStatus,
    SitemapType,
)

# One point of priority equals this much waiting time: urgent rows go first, and no row waits forever. All rows age
# equally fast, so the order of two rows never changes and an index can represent it.
AGE_BOOST = "10 minutes"
LEAST_PRIORITY, MOST_PRIORITY = -1000, 1000
MAX_URL_BYTES = 2048  # a longer one does not fit into a unique index together with its domain

ZERO, EMPTY_LIST = text("0"), text("'{}'::text[]")
NEW = text("'New'")
ACTOR = text("coalesce(nullif(current_setting('scheduler.actor', true), ''), 'sql:' || session_user)")


def claim_order(prefix: str = "") -> str:
    """The sort expression for claims. It must be identical to the one in the index, or the index is not used."""
    return f"(({prefix}not_before AT TIME ZONE 'UTC') - interval '{AGE_BOOST}' * {prefix}priority)"


def its_turn_has_come(prefix: str = "") -> str:
    """For queued rows: the priority shifts the instant at which a row is due (fair_turns.py). It is a range of the same
    index, which clock_timestamp() would prevent.
    """
    return f"{claim_order(prefix)} <= (statement_timestamp() AT TIME ZONE 'UTC')"


def _queue(
    table: str, status: str, queued: str, processing: str, failed: str, prefix: str = ""
) -> tuple[Index | CheckConstraint, ...]:
    def index(role: str, key: Any, word: str, **more: Any) -> Index:
        return Index(f"{table}_{status}_{role}_idx", key, postgresql_where=text(f"{status} = '{word}'"), **more)

    return (
        CheckConstraint(f"{prefix}priority BETWEEN {LEAST_PRIORITY} AND {MOST_PRIORITY}", f"{prefix}priority"),
        index("queued", text(claim_order(prefix)), queued, postgresql_include=[f"{prefix}not_before"]),
        index("claimed", f"{prefix}claimed_at", processing),
        index("failed", "updated_at", failed),
    )


def _status(column: str, values: type[StrEnum]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(repr(value.value) for value in values)})", column)


class Kept:
    """Written by the database on every change of the row."""

    created_at: Mapped[datetime] = mapped_column(server_default=NOW, sort_order=900)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW, sort_order=901)


class QueueColumns(Kept):
    """The columns of a queue besides its status and error columns."""

    attempts: Mapped[int] = mapped_column(server_default=ZERO, sort_order=800)
    claimed_at: Mapped[datetime | None] = mapped_column(sort_order=801)
    claim_token: Mapped[UUID | None] = mapped_column(sort_order=802)
    not_before: Mapped[datetime] = mapped_column(server_default=NOW, sort_order=803)
    priority: Mapped[int] = mapped_column(server_default=ZERO, sort_order=804)


class Place(QueueColumns, Base):
    """A search result that waits for its details."""

    __tablename__ = "places_staging"

    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    place_id: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str | None]
    tenant_id: Mapped[UUID | None]
    formatted_address: Mapped[str | None]
    latitude: Mapped[float | None]
    longitude: Mapped[float | None]
    rating: Mapped[float | None]
    user_ratings_total: Mapped[int | None]
    status: Mapped[str] = mapped_column(String(16), server_default=NEW)
    deep_scan_status: Mapped[str | None] = mapped_column(String(16))
    deep_scan_error: Mapped[str | None]

    __table_args__ = (
        _status("status", PlaceStatus),
        _status("deep_scan_status", DeepScanStatus),
        Index("places_staging_created_at_idx", "created_at", "id"),
        *_queue("places_staging", "deep_scan_status", "Queued", "Processing", "Error"),
    )


class LocalBusiness(QueueColumns, Base):
    """A place with its details, waiting for domain extraction."""

    __tablename__ = "local_businesses"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_UUID)
    place_id: Mapped[str] = mapped_column(unique=True)
    business_name: Mapped[str | None]
    full_address: Mapped[str | None]
    street_address: Mapped[str | None]
    city: Mapped[str | None]
    state: Mapped[str | None]
    zip: Mapped[str | None]
    country: Mapped[str | None]
    phone: Mapped[str | None]
    website_url: Mapped[str | None]
    main_category: Mapped[str | None]
    extra_categories: Mapped[list[str]] = mapped_column(server_default=EMPTY_LIST)
    rating: Mapped[float | None]
    reviews_count: Mapped[int | None]
    price_text: Mapped[str | None]
    timezone: Mapped[str | None]
    latitude: Mapped[float | None]
    longitude: Mapped[float | None]
    monday_hours: Mapped[str | None]
    tuesday_hours: Mapped[str | None]
    wednesday_hours: Mapped[str | None]
    thursday_hours: Mapped[str | None]
    friday_hours: Mapped[str | None]
    saturday_hours: Mapped[str | None]
    sunday_hours: Mapped[str | None]
    additional_json: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    status: Mapped[str] = mapped_column(String(16), server_default=NEW)
    domain_extraction_status: Mapped[str | None] = mapped_column(String(16))
    domain_extraction_error: Mapped[str | None]

    __table_args__ = (
        _status("status", PlaceStatus),
        _status("domain_extraction_status", DomainExtractionStatus),
        Index("local_businesses_created_at_idx", "created_at", "id"),
        *_queue("local_businesses", "domain_extraction_status", "Queued", "Processing", "Error"),
    )


class Domain(QueueColumns, Base):
    """A bare lower-case host. Two queues: its metadata, and with prefix `sitemap_` the search for its sitemaps."""

    __tablename__ = "domains"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_UUID)
    domain: Mapped[str] = mapped_column(unique=True)
    local_business_id: Mapped[UUID | None] = mapped_column(ForeignKey("local_businesses.id", ondelete="SET NULL"))
    status: Mapped[str] = mapped_column(String(16), server_default=text("'pending'"))
    last_error: Mapped[str | None]
    meta_json: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    title: Mapped[str | None]
    description: Mapped[str | None]
    language: Mapped[str | None]
    favicon_url: Mapped[str | None]
    logo_url: Mapped[str | None]
    is_wordpress: Mapped[bool | None]
    wordpress_version: Mapped[str | None]
    has_elementor: Mapped[bool | None]
    tech_stack: Mapped[list[str]] = mapped_column(server_default=EMPTY_LIST)
    email_addresses: Mapped[list[str]] = mapped_column(server_default=EMPTY_LIST)
    phone_numbers: Mapped[list[str]] = mapped_column(server_default=EMPTY_LIST)
    facebook_url: Mapped[str | None]
    twitter_url: Mapped[str | None]
    linkedin_url: Mapped[str | None]
    instagram_url: Mapped[str | None]
    youtube_url: Mapped[str | None]
    sitemap_analysis_status: Mapped[str | None] = mapped_column(String(16))
    sitemap_analysis_error: Mapped[str | None]
    total_sitemaps: Mapped[int] = mapped_column(server_default=ZERO)
    sitemap_urls: Mapped[list[str]] = mapped_column(server_default=EMPTY_LIST)
    last_scan: Mapped[datetime | None]
    sitemap_attempts: Mapped[int] = mapped_column(server_default=ZERO)
    sitemap_claimed_at: Mapped[datetime | None]
    sitemap_claim_token: Mapped[UUID | None]
    sitemap_not_before: Mapped[datetime] = mapped_column(server_default=NOW)
    sitemap_priority: Mapped[int] = mapped_column(server_default=ZERO)
    sitemap_curation_status: Mapped[str] = mapped_column(String(16), server_default=NEW, sort_order=902)
    created_by: Mapped[str | None] = mapped_column(server_default=ACTOR, sort_order=903)

    __table_args__ = (
        CheckConstraint("domain = lower(domain)", "domain"),
        _status("status", DomainStatus),
        _status("sitemap_curation_status", PlaceStatus),
        _status("sitemap_analysis_status", SitemapAnalysisStatus),
        Index("domains_created_at_idx", "created_at", "id"),
        Index("domains_local_business_id_idx", "local_business_id"),
        *_queue("domains", "status", "pending", "processing", "error"),
        *_queue("domains", "sitemap_analysis_status", "queued", "processing", "failed", "sitemap_"),
    )


class Job(QueueColumns, Base):
    """Work that one workflow requests from another: `sitemap` searches for a domain's sitemaps."""

    __tablename__ = "jobs"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    job_id: Mapped[UUID] = mapped_column(unique=True, server_default=NEW_UUID)
    job_type: Mapped[str] = mapped_column(String(32), server_default=text("'sitemap'"))
    status: Mapped[str] = mapped_column(String(16), server_default=text("'pending'"))
    domain_id: Mapped[UUID] = mapped_column(ForeignKey("domains.id", ondelete="CASCADE"))
    progress: Mapped[float] = mapped_column(server_default=ZERO)
    result_data: Mapped[dict[str, Any] | None]
    error: Mapped[str | None]

    __table_args__ = (
        _status("status", JobStatus),
        Index("jobs_domain_id_idx", "domain_id"),
        Index(
            "jobs_live_sitemap_key",
            "domain_id",
            unique=True,
            postgresql_where=text("job_type = 'sitemap' AND status IN ('pending', 'running')"),
        ),
        *_queue("jobs", "status", "pending", "running", "failed"),
    )


class SitemapFile(QueueColumns, Base):
    """A discovered sitemap; `status` describes the file itself, the queue is its import."""

    __tablename__ = "sitemap_files"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_UUID)
    domain_id: Mapped[UUID] = mapped_column(ForeignKey("domains.id", ondelete="CASCADE"))
    url: Mapped[str]
    sitemap_type: Mapped[str] = mapped_column(String(16), server_default=text("'standard'"))
    discovery_method: Mapped[str | None] = mapped_column(String(16))
    status: Mapped[str] = mapped_column(String(16), server_default=text("'Pending'"))
    url_count: Mapped[int | None]
    page_count: Mapped[int | None]
    size_bytes: Mapped[int | None] = mapped_column(BigInteger)
    last_modified: Mapped[datetime | None]
    sitemap_import_status: Mapped[str | None] = mapped_column(String(16))
    sitemap_import_error: Mapped[str | None]
    sitemap_import_curation_status: Mapped[str] = mapped_column(String(16), server_default=NEW, sort_order=902)

    __table_args__ = (
        UniqueConstraint("domain_id", "url"),
        _status("sitemap_import_curation_status", PlaceStatus),
        CheckConstraint(f"octet_length(url) <= {MAX_URL_BYTES}", "url"),
        _status("sitemap_type", SitemapType),
        _status("discovery_method", DiscoveryMethod),
        _status("status", SitemapFileStatus),
        _status("sitemap_import_status", SitemapImportStatus),
        Index("sitemap_files_created_at_idx", "created_at", "id"),
        *_queue("sitemap_files", "sitemap_import_status", "Queued", "Processing", "Error"),
    )


class Page(QueueColumns, Base):
    __tablename__ = "pages"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_UUID)
    domain_id: Mapped[UUID] = mapped_column(ForeignKey("domains.id", ondelete="CASCADE"))
    url: Mapped[str]
    sitemap_file_id: Mapped[UUID | None] = mapped_column(ForeignKey("sitemap_files.id", ondelete="SET NULL"))
    last_modified: Mapped[datetime | None]
    lead_source: Mapped[str | None]
    page_type: Mapped[str | None]
    path_depth: Mapped[int | None]
    priority_level: Mapped[int | None]
    page_processing_status: Mapped[str | None] = mapped_column(String(16))
    page_processing_error: Mapped[str | None]
    contact_scrape_status: Mapped[str] = mapped_column(String(16), server_default=NEW)
    page_curation_status: Mapped[str] = mapped_column(String(16), server_default=NEW, sort_order=902)

    __table_args__ = (
        UniqueConstraint("domain_id", "url"),
        _status("page_curation_status", PlaceStatus),
        CheckConstraint(f"octet_length(url) <= {MAX_URL_BYTES}", "url"),
        _status("page_processing_status", PageProcessingStatus),
        _status("contact_scrape_status", ContactScrapeStatus),
        Index("pages_created_at_idx", "created_at", "id"),
        Index("pages_sitemap_file_id_idx", "sitemap_file_id"),
        *_queue("pages", "page_processing_status", "Queued", "Processing", "Error"),
    )


class Contact(Kept, Base):
    __tablename__ = "contacts"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_UUID)
    domain_id: Mapped[UUID] = mapped_column(ForeignKey("domains.id", ondelete="CASCADE"))
    page_id: Mapped[UUID | None] = mapped_column(ForeignKey("pages.id", ondelete="SET NULL"))
    email: Mapped[str]
    email_type: Mapped[str] = mapped_column(String(16), server_default=text("'UNKNOWN'"))
    name: Mapped[str | None]
    phone_number: Mapped[str | None]
    source_url: Mapped[str | None]
    context: Mapped[str | None]
    contact_curation_status: Mapped[str] = mapped_column(String(16), server_default=NEW)
    created_by: Mapped[str | None] = mapped_column(server_default=ACTOR, sort_order=902)

    __table_args__ = (
        UniqueConstraint("domain_id", "email"),
        CheckConstraint("email = lower(email)", "email"),
        _status("email_type", EmailType),
        _status("contact_curation_status", ContactCurationStatus),
        Index("contacts_page_id_idx", "page_id"),
        Index("contacts_created_at_idx", "created_at", "id"),
    )


class QueueRow(Kept, Base):
    """State of one queue, shared by all replicas: whether it may run, recent outcomes, and totals."""

    __tablename__ = "workflow_queues"

    queue: Mapped[str] = mapped_column(primary_key=True)
    paused_at: Mapped[datetime | None]
    paused_by: Mapped[str | None]
    paused_reason: Mapped[str | None]
    circuit: Mapped[str] = mapped_column(String(16), server_default=text("'closed'"))
    circuit_changed_at: Mapped[datetime] = mapped_column(server_default=NOW)
    recent: Mapped[str] = mapped_column(server_default=text("''"))  # outcome of the last items: . succeeded, x failed
    batch_size: Mapped[int | None]
    last_run_at: Mapped[datetime | None]
    claimed: Mapped[int] = mapped_column(BigInteger, server_default=ZERO)
    succeeded: Mapped[int] = mapped_column(BigInteger, server_default=ZERO)
    retried: Mapped[int] = mapped_column(BigInteger, server_default=ZERO)
    failed: Mapped[int] = mapped_column(BigInteger, server_default=ZERO)
    dead: Mapped[int] = mapped_column(BigInteger, server_default=ZERO)
    lost: Mapped[int] = mapped_column(BigInteger, server_default=ZERO)
    stale: Mapped[int] = mapped_column(BigInteger, server_default=ZERO)

    __table_args__ = (_status("circuit", CircuitStatus),)


class QueueSample(Base):
    """A snapshot of a queue for one minute, the source of the charts."""

    __tablename__ = "workflow_samples"

    queue: Mapped[str] = mapped_column(primary_key=True)
    sampled_at: Mapped[datetime] = mapped_column(primary_key=True)
    depth: Mapped[int]
    processing: Mapped[int]
    failed: Mapped[int]
    dead: Mapped[int]
    oldest_seconds: Mapped[float]
    succeeded: Mapped[int] = mapped_column(BigInteger)  # a total, like the two below: rates are differences
    retried: Mapped[int] = mapped_column(BigInteger)
    unsuccessful: Mapped[int] = mapped_column(BigInteger)

    __table_args__ = (Index("workflow_samples_sampled_at_idx", "sampled_at"),)


class DeadLetter(Kept, Base):
    """An item whose last attempt failed. It is closed as soon as its row enters the queue again, by any means."""

    __tablename__ = "dead_letters"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    queue: Mapped[str]
    item_key: Mapped[str]
    attempts: Mapped[int]
    error: Mapped[str]
    traceback: Mapped[str | None]
    died_at: Mapped[datetime] = mapped_column(server_default=NOW)
    requeued_at: Mapped[datetime | None]
    requeued_by: Mapped[str | None]

    __table_args__ = (
        Index("dead_letters_open_key", "queue", "item_key", unique=True, postgresql_where=text("requeued_at IS NULL")),
        Index("dead_letters_queue_idx", "queue", "id"),
        Index("dead_letters_died_at_idx", "died_at"),
    )


class PlaceRequests(Base):
    """Usage of the places API's quota on one day (UTC), by all processes."""

    __tablename__ = "place_requests"

    day: Mapped[date] = mapped_column(primary_key=True)
    api: Mapped[str] = mapped_column(primary_key=True)
    operation: Mapped[str] = mapped_column(primary_key=True)
    requests: Mapped[int] = mapped_column(BigInteger, server_default=ZERO)
