"""Lists of the pipeline's rows for curators, newest first, page by page."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import Select, or_, select

from database.connection import DatabaseConnection
from database.models import Base
from database.pages import Keyset, PageOf
from database.workflow_models import Domain, LocalBusiness, Page, Place, SitemapFile
from database.workflow_statuses import (
    ContactScrapeStatus,
    DeepScanStatus,
    DomainExtractionStatus,
    DomainStatus,
    PageProcessingStatus,
    PlaceStatus,
    SitemapAnalysisStatus,
    SitemapImportStatus,
)
from services.checks.hostnames import spellings
from services.errors import InvalidInput, Problem
from services.schedules.spec import plain_text


@dataclass(frozen=True, slots=True, kw_only=True)
class RowList:
    """`columns` are returned; `words` can be filtered by, each with its allowed values; `searched` are matched with a
    text.
    """

    name: str  # plural
    model: type[Base]
    columns: tuple[str, ...]
    words: Mapping[str, type[StrEnum]]
    searched: tuple[str, ...]
    of_domain: bool = False  # its rows belong to a domain

    @property
    def order(self) -> Keyset:
        """Newest first."""
        model: Any = self.model
        return Keyset(columns=(model.created_at, model.id))

    def select(self) -> Select[Any]:
        model: Any = self.model
        shown = [getattr(model, name) for name in (*self.columns, "created_at", "updated_at")]
        if not self.of_domain:
            return select(*shown)
        return select(*shown, Domain.domain).join(Domain, Domain.id == model.domain_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """All given conditions must hold."""

    search: str | None = None  # a substring of a name, an address or a URL, case-insensitive
    domain: str | None = None
    words: Mapping[str, str | None] = field(default_factory=dict)


RowPage = PageOf[dict[str, Any]]


PLACES = RowList(
    name="places",
    model=Place,
    columns=(
        "id", "place_id", "name", "formatted_address", "latitude", "longitude", "rating", "user_ratings_total",
        "tenant_id", "status", "deep_scan_status", "deep_scan_error",
    ),
    words={"status": PlaceStatus, "deep_scan_status": DeepScanStatus},
    searched=("name", "formatted_address", "place_id"),
)  # fmt: skip
BUSINESSES = RowList(
    name="businesses",
    model=LocalBusiness,
    columns=(
        "id", "place_id", "business_name", "full_address", "city", "country", "phone", "website_url", "main_category",
        "rating", "reviews_count", "status", "domain_extraction_status", "domain_extraction_error",
    ),
    words={"status": PlaceStatus, "domain_extraction_status": DomainExtractionStatus},
    searched=("business_name", "full_address", "website_url"),
)  # fmt: skip
DOMAINS = RowList(
    name="domains",
    model=Domain,
    columns=(
        "id", "domain", "local_business_id", "title", "language", "is_wordpress", "tech_stack", "email_addresses",
        "phone_numbers", "total_sitemaps", "last_scan", "status", "last_error", "sitemap_curation_status",
        "sitemap_analysis_status", "sitemap_analysis_error", "created_by",
    ),
    words={
        "status": DomainStatus,
        "sitemap_curation_status": PlaceStatus,
        "sitemap_analysis_status": SitemapAnalysisStatus,
    },
    searched=("domain", "title"),
)  # fmt: skip
SITEMAP_FILES = RowList(
    name="sitemap files",
    model=SitemapFile,
    columns=(
        "id", "domain_id", "url", "sitemap_type", "discovery_method", "status", "url_count", "page_count", "size_bytes",
        "last_modified", "sitemap_import_curation_status", "sitemap_import_status", "sitemap_import_error",
    ),
    words={"sitemap_import_curation_status": PlaceStatus, "sitemap_import_status": SitemapImportStatus},
    searched=("url",),
    of_domain=True,
)  # fmt: skip
PAGES = RowList(
    name="pages",
    model=Page,
    columns=(
        "id", "domain_id", "url", "sitemap_file_id", "page_type", "path_depth", "priority_level", "last_modified",
        "page_curation_status", "page_processing_status", "page_processing_error", "contact_scrape_status",
    ),
    words={
        "page_curation_status": PlaceStatus,
        "page_processing_status": PageProcessingStatus,
        "contact_scrape_status": ContactScrapeStatus,
    },
    searched=("url",),
    of_domain=True,
)  # fmt: skip


def list_rows(
    db: DatabaseConnection,
    rows: RowList,
    where: RowFilter = RowFilter(),
    *,
    limit: int = 50,
    cursor: str | None = None,
) -> RowPage:
    """Raises InvalidInput for a value that no row can have."""
    query = select_rows(rows, where, limit, cursor)
    with db.transaction() as connection:
        page = rows.order.cut(connection.execute(query).all(), limit)
    return PageOf([dict(row._mapping) for row in page.items], page.next_cursor)


def select_rows(rows: RowList, where: RowFilter, limit: int, cursor: str | None) -> Select[Any]:
    return rows.order.page(_apply_filter(rows, where), limit, cursor)


def _apply_filter(rows: RowList, where: RowFilter) -> Select[Any]:
    model: Any = rows.model
    query = rows.select()
    if where.search is not None:
        part = plain_text("search", where.search).lower()
        query = query.where(or_(*(getattr(model, name).icontains(part, autoescape=True) for name in rows.searched)))
    if where.domain is not None:
        query = query.where(Domain.domain.in_(spellings(plain_text("domain", where.domain))))
    for name, word in where.words.items():
        if word is not None:
            query = query.where(getattr(model, name) == _one_of(name, word, rows.words[name]))
    return query


def _one_of(name: str, word: str, words: type[StrEnum]) -> str:
    """Case-insensitive: `new` is New."""
    for known in words:
        if word.lower() == known.value.lower():
            return known.value
    raise InvalidInput(Problem(name, f"must be one of {', '.join(words)}, got {word!r}"))
