"""WF5 and WF6: every address in a sitemap becomes a page, an index brings further sitemaps."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import update
from sqlalchemy.orm import Session

from config import Settings
from database.workflow_models import MAX_URL_BYTES, Domain, SitemapFile
from database.workflow_statuses import PageProcessingStatus, SitemapFileStatus, SitemapType
from database.workflow_statuses import SitemapImportStatus as Status
from services.fetching import Fetcher, Limits
from services.scanning.urls import Site, host_of, normal_url
from services.workflows.deadline import remaining_seconds
from services.workflows.page_priorities import PriorityLevel, priority_of
from services.workflows.queue import Queue, queues
from services.workflows.queue_table import Words
from services.workflows.sitemap_documents import MAX_BYTES, Sitemap, read_sitemap
from services.workflows.sitemap_files import queue_children
from services.workflows.steps import Steps
from services.workflows.web_pages import get, polite_fetcher, usable

LIMITS = Limits(max_bytes=MAX_BYTES, max_seconds=60.0, cut=False)
CHUNK_ROWS = 500
LEAD_SOURCE = "sitemap_import"


@dataclass(frozen=True, slots=True)
class Snapshot:
    url: str
    domain: str


@dataclass(frozen=True, slots=True)
class Imported:
    sitemap: Sitemap
    pages: list[dict[str, Any]]  # rows, in the order of their addresses
    children: list[str]  # of an index


def load(session: Session, key: UUID) -> Snapshot:
    file = session.get_one(SitemapFile, key)
    return Snapshot(file.url, session.get_one(Domain, file.domain_id).domain)


def work(fetcher: Fetcher, snapshot: Snapshot, policy: str) -> Imported:
    answer = usable(get(fetcher, snapshot.url))
    sitemap = read_sitemap(answer.body, check=remaining_seconds)
    site = Site.of(f"https://{snapshot.domain}/")
    urls = {url: entry for entry in reversed(sitemap.entries) if (url := normal_url(entry.url, answer.url))}
    if sitemap.kind is SitemapType.INDEX:
        host = host_of(answer.url)
        return Imported(sitemap, [], sorted(url for url in urls if site.has(url) or host_of(url) == host))
    own = sorted(url for url in urls if site.has(url) and len(url.encode()) <= MAX_URL_BYTES)
    return Imported(sitemap, [_page(url, urls[url].last_modified, policy) for url in own], [])


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


def save(session: Session, key: UUID, found: Imported) -> None:
    file = session.get_one(SitemapFile, key)
    created = insert_pages(session, file, found.pages)
    queue_children(session, file.domain_id, found.children)
    file.status, file.sitemap_type = SitemapFileStatus.COMPLETED, found.sitemap.kind
    file.url_count, file.page_count = len(found.sitemap.entries), created
    file.size_bytes = found.sitemap.size_bytes


def insert_pages(session: Session, file: SitemapFile, pages: Sequence[Mapping[str, Any]]) -> int:
    """Returns how many are new. A page that is known stays as it is, whoever found it."""
    created = 0
    for start in range(0, len(pages), CHUNK_ROWS):
        rows = json.dumps(pages[start : start + CHUNK_ROWS])
        values = {"rows": rows, "domain_id": file.domain_id, "file_id": file.id}
        created += session.connection().exec_driver_sql(INSERT_PAGES, values).rowcount
    return created


def on_failed(session: Session, key: UUID, _error: str) -> None:
    session.execute(update(SitemapFile).where(SitemapFile.id == key).values(status=SitemapFileStatus.ERROR))


_COLUMNS = "url, last_modified, lead_source, page_type, path_depth, priority_level, page_processing_status, priority"
INSERT_PAGES = f"""
INSERT INTO pages (domain_id, sitemap_file_id, {_COLUMNS})
SELECT %(domain_id)s, %(file_id)s, {_COLUMNS} FROM json_populate_recordset(NULL::pages, %(rows)s::json)
ON CONFLICT (domain_id, url) DO NOTHING
"""  # noqa: S608 - made of constants


@contextmanager
def open_steps(settings: Settings) -> Iterator[Steps[UUID]]:
    with polite_fetcher(settings, LIMITS) as fetcher:
        yield Steps(
            load=load,
            work=lambda snapshot: work(fetcher, snapshot, settings.page_import_queue_policy),
            save=save,
            on_failed=on_failed,
        )


SITEMAP_IMPORT = queues.register(
    Queue(
        name="sitemap_import",
        job_id="process_sitemap_imports",
        display_name="Process Pending Sitemap Imports",
        settings="sitemap_import_scheduler",
        model=SitemapFile,
        words=Words(Status.QUEUED, Status.PROCESSING, Status.COMPLETE, Status.ERROR),
        status_field_name="sitemap_import_status",
        error_field_name="sitemap_import_error",
        steps=open_steps,
        downstream="page_curation",
        misfire_grace_seconds=1800,
    )
)
