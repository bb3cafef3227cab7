"""Lists of businesses, domains, sitemap files and pages, with the ids that curation takes."""

from typing import Annotated

from fastapi import Query

from database.workflow_statuses import (
    ContactScrapeStatus,
    DomainExtractionStatus,
    DomainStatus,
    PageProcessingStatus,
    PlaceStatus,
    SitemapAnalysisStatus,
    SitemapImportStatus,
)
from services.web.auth.guard import Viewer
from services.web.routing import API, Cursor, Limit, PartsOf, router
from services.web.schemas.pipeline import BusinessList, DomainList, PageList, SitemapFileList
from services.workflows.row_lists import BUSINESSES, DOMAINS, PAGES, SITEMAP_FILES, RowFilter, list_rows

pipeline_lists = router(API, "workflows")

Search = Annotated[str | None, Query(max_length=255, description="Part of a name, an address or a URL.")]
DomainName = Annotated[str | None, Query(max_length=255)]


@pipeline_lists.get("/local-businesses")
def list_businesses(
    parts: PartsOf,
    who: Viewer,
    search: Search = None,
    status: PlaceStatus | None = None,
    domain_extraction_status: DomainExtractionStatus | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> BusinessList:
    """A page of businesses, newest first."""
    words = {"status": status, "domain_extraction_status": domain_extraction_status}
    found = list_rows(parts.db, BUSINESSES, RowFilter(search=search, words=words), limit=limit, cursor=cursor)
    return BusinessList.model_validate(found)


@pipeline_lists.get("/domains")
def list_domains(
    parts: PartsOf,
    who: Viewer,
    search: Search = None,
    status: DomainStatus | None = None,
    sitemap_curation_status: PlaceStatus | None = None,
    sitemap_analysis_status: SitemapAnalysisStatus | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> DomainList:
    """A page of domains, newest first."""
    words = {
        "status": status,
        "sitemap_curation_status": sitemap_curation_status,
        "sitemap_analysis_status": sitemap_analysis_status,
    }
    found = list_rows(parts.db, DOMAINS, RowFilter(search=search, words=words), limit=limit, cursor=cursor)
    return DomainList.model_validate(found)


@pipeline_lists.get("/sitemap-files")
def list_sitemap_files(
    parts: PartsOf,
    who: Viewer,
    search: Search = None,
    domain: DomainName = None,
    sitemap_import_curation_status: PlaceStatus | None = None,
    sitemap_import_status: SitemapImportStatus | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> SitemapFileList:
    """A page of sitemap files, newest first."""
    words = {
        "sitemap_import_curation_status": sitemap_import_curation_status,
        "sitemap_import_status": sitemap_import_status,
    }
    wanted = RowFilter(search=search, domain=domain, words=words)
    return SitemapFileList.model_validate(list_rows(parts.db, SITEMAP_FILES, wanted, limit=limit, cursor=cursor))


@pipeline_lists.get("/pages")
def list_pages(
    parts: PartsOf,
    who: Viewer,
    search: Search = None,
    domain: DomainName = None,
    page_curation_status: PlaceStatus | None = None,
    page_processing_status: PageProcessingStatus | None = None,
    contact_scrape_status: ContactScrapeStatus | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageList:
    """A page of web pages, newest first."""
    words = {
        "page_curation_status": page_curation_status,
        "page_processing_status": page_processing_status,
        "contact_scrape_status": contact_scrape_status,
    }
    wanted = RowFilter(search=search, domain=domain, words=words)
    return PageList.model_validate(list_rows(parts.db, PAGES, wanted, limit=limit, cursor=cursor))
