"""The pages of a sitemap: which addresses count, their properties, and their rows."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from database.workflow_models import MAX_URL_BYTES, Page
from database.workflow_statuses import PageProcessingStatus, SitemapType
from services.fetching.sites.sitemaps import Sitemap
from services.fetching.sites.urls import Site, host_of, normal_url
from services.workflows.fair_turns import priority_in_line
from services.workflows.parsing.page_priorities import PriorityLevel, priority_of

CHUNK_ROWS = 500
PAGES_PER_POINT = 20  # one per 30 seconds, the slowest rate at which a site is processed
LEAD_SOURCE = "sitemap_import"


@dataclass(frozen=True, slots=True)
class SitemapContent:
    pages: list[dict[str, Any]]  # rows, in the order of their addresses
    children: list[str]  # of an index: further sitemaps


def content_of(sitemap: Sitemap, url: str, domain: str, policy: str) -> SitemapContent:
    """Pure. Other hosts are skipped; of a repeated address the first entry counts."""
    site, host = Site.of(f"https://{domain}/"), host_of(url)
    urls = {found: entry for entry in reversed(sitemap.entries) if (found := normal_url(entry.url, url))}
    if sitemap.kind is SitemapType.INDEX:
        return SitemapContent([], sorted(found for found in urls if site.has(found) or host_of(found) == host))
    own = sorted(found for found in urls if site.has(found) and len(found.encode()) <= MAX_URL_BYTES)
    return SitemapContent([_page(found, urls[found].last_modified, policy) for found in own], [])


def insert_pages(session: Session, domain_id: UUID, file_id: UUID, pages: Sequence[Mapping[str, Any]]) -> int:
    """Returns the number of new pages. A known page stays unchanged. A new one is queued behind the waiting pages of
    its site, as far as that is fair to other sites.
    """
    created, waiting = 0, _waiting(session, domain_id)
    for start in range(0, len(pages), CHUNK_ROWS):
        chunk = pages[start : start + CHUNK_ROWS]
        same = (Page.domain_id == domain_id) & Page.url.in_([page["url"] for page in chunk])
        known = set(session.scalars(select(Page.url).where(same)))
        rows = json.dumps([_in_line(page, waiting) for page in chunk if page["url"] not in known])
        values = {"rows": rows, "domain_id": domain_id, "file_id": file_id}
        created += session.connection().exec_driver_sql(INSERT_PAGES, values).rowcount
    return created


def _waiting(session: Session, domain_id: UUID) -> Counter[int | None]:
    """The number of queued pages of the domain, by level."""
    queued = (Page.domain_id == domain_id) & (Page.page_processing_status == PageProcessingStatus.QUEUED)
    found = session.execute(select(Page.priority_level, func.count()).where(queued).group_by(Page.priority_level))
    return Counter({row[0]: row[1] for row in found})


def _in_line(page: Mapping[str, Any], waiting: Counter[int | None]) -> dict[str, Any]:
    before = waiting[page["priority_level"]]
    waiting[page["priority_level"]] += 1
    return {**page, "priority": priority_in_line(page["priority"], before, PAGES_PER_POINT)}


def _page(url: str, last_modified: datetime | None, policy: str) -> dict[str, Any]:
    found = priority_of(url)
    queued = found.level is PriorityLevel.HIGH or (found.level is PriorityLevel.NORMAL and policy == "all")
    filtered = PageProcessingStatus.FILTERED if found.level is PriorityLevel.FILTERED else None
    return {
        "url": url,
        "last_modified": last_modified.isoformat() if last_modified else None,
        "lead_source": LEAD_SOURCE,
        "page_type": found.page_type,
        "path_depth": found.path_depth,
        "priority_level": found.level,
        "page_processing_status": PageProcessingStatus.QUEUED if queued else filtered,
        "priority": found.queue_priority,
    }


_COLUMNS = "url, last_modified, lead_source, page_type, path_depth, priority_level, page_processing_status, priority"
INSERT_PAGES = f"""
INSERT INTO pages (domain_id, sitemap_file_id, {_COLUMNS})
SELECT %(domain_id)s, %(file_id)s, {_COLUMNS} FROM json_populate_recordset(NULL::pages, %(rows)s::json)
ON CONFLICT (domain_id, url) DO NOTHING
"""  # noqa: S608 - made of constants
