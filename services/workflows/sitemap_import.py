"""WF5 and WF6: every address in a sitemap becomes a page, and an index adds further sitemaps."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import update
from sqlalchemy.orm import Session

from config import Settings
from database.workflow_models import Domain, SitemapFile
from database.workflow_statuses import SitemapFileStatus
from database.workflow_statuses import SitemapImportStatus as Status
from services.fetching import Fetcher, Limits
from services.fetching.sites.listing import BadSitemap
from services.fetching.sites.sitemaps import MAX_BYTES, Sitemap, read_sitemap
from services.jobs import PermanentFailure
from services.queues.deadline import remaining_seconds
from services.queues.queue import Queue, queues
from services.queues.queue_table import Words
from services.queues.steps import Steps
from services.workflows.sitemap_files import queue_children
from services.workflows.sitemap_pages import SitemapContent, content_of, insert_pages
from services.workflows.web_pages import get, polite_fetcher, usable

LIMITS = Limits(max_bytes=MAX_BYTES, max_seconds=60.0, cut=False)


@dataclass(frozen=True, slots=True)
class Snapshot:
    url: str
    domain: str


@dataclass(frozen=True, slots=True)
class Imported:
    sitemap: Sitemap
    content: SitemapContent


def load(session: Session, key: UUID) -> Snapshot:
    file = session.get_one(SitemapFile, key)
    return Snapshot(file.url, session.get_one(Domain, file.domain_id).domain)


def work(fetcher: Fetcher, snapshot: Snapshot, policy: str) -> Imported:
    answer = usable(get(fetcher, snapshot.url))
    try:
        sitemap = read_sitemap(answer.body, check=remaining_seconds)
    except BadSitemap as error:
        raise PermanentFailure(str(error)) from None
    return Imported(sitemap, content_of(sitemap, answer.url, snapshot.domain, policy))


def save(session: Session, key: UUID, found: Imported) -> None:
    file = session.get_one(SitemapFile, key)
    file.page_count = insert_pages(session, file.domain_id, file.id, found.content.pages)
    queue_children(session, file.domain_id, found.content.children)
    file.status, file.sitemap_type = SitemapFileStatus.COMPLETED, found.sitemap.kind
    file.url_count, file.size_bytes = len(found.sitemap.entries), found.sitemap.size_bytes
    if found.sitemap.problem:  # keeps the readable entries, and the error that may have hidden others
        file.status, file.sitemap_import_status = SitemapFileStatus.ERROR, Status.ERROR
        file.sitemap_import_error = found.sitemap.problem


def on_failed(session: Session, key: UUID, _error: str) -> None:
    session.execute(update(SitemapFile).where(SitemapFile.id == key).values(status=SitemapFileStatus.ERROR))


@contextmanager
def open_steps(settings: Settings) -> Iterator[Steps[UUID]]:
    with polite_fetcher(settings, LIMITS) as fetcher:
        yield Steps(
            load=load,
            work=lambda snapshot: work(fetcher, snapshot, settings.page_import_queue_policy),
            save=save,
            on_failed=on_failed,
            own_sites=True,
        )


SITEMAP_IMPORT = queues.register(
    Queue(
        name="sitemap_import",
        job_id="process_sitemap_imports",
        display_name="Process Pending Sitemap Imports",
        settings="sitemap_import_scheduler",
        concurrency=4,
        model=SitemapFile,
        words=Words(Status.QUEUED, Status.PROCESSING, Status.COMPLETE, Status.ERROR),
        status_field_name="sitemap_import_status",
        error_field_name="sitemap_import_error",
        steps=open_steps,
        downstream="page_curation",
        misfire_grace_seconds=1800,
    )
)
