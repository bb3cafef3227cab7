"""Rows of `sitemap_files`: new files are added, known ones stay unchanged."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from database.workflow_models import SitemapFile
from database.workflow_statuses import TURNED_DOWN, DiscoveryMethod, SitemapFileStatus, SitemapImportStatus
from services.workflows.fair_turns import priority_in_line
from services.workflows.sitemap_discovery import MAX_FILES, FoundSitemap

CHUNK_ROWS = 500
FILES_PER_POINT = 10  # one per minute, the time that a file may take


def save_found(session: Session, domain_id: UUID, found: Iterable[FoundSitemap], *, goes_on: bool) -> None:
    """`goes_on`: new files are queued for their import."""
    waiting = _waiting(session, domain_id)
    rows = [
        {
            "domain_id": domain_id,
            "url": each.url,
            "sitemap_type": each.kind,
            "discovery_method": each.method,
            "status": _status(each),
            "url_count": each.url_count,
            "size_bytes": each.size_bytes,
            "sitemap_import_status": _import_status(each) if goes_on else None,
            "sitemap_import_error": each.problem,
            "priority": priority_in_line(0, before, FILES_PER_POINT),
        }
        for before, each in enumerate(sorted(found, key=lambda each: each.url), waiting)
    ]
    for start in range(0, len(rows), CHUNK_ROWS):
        statement = insert(SitemapFile).values(rows[start : start + CHUNK_ROWS])
        looked_into = statement.excluded.status != SitemapFileStatus.PENDING
        session.execute(
            statement.on_conflict_do_update(
                index_elements=["domain_id", "url"],
                set_={name: statement.excluded[name] for name in ("sitemap_type", "status", "url_count", "size_bytes")},
                where=looked_into,
            )
        )


def _status(found: FoundSitemap) -> SitemapFileStatus:
    if found.problem:
        return SitemapFileStatus.ERROR
    return SitemapFileStatus.COMPLETED if found.looked_into else SitemapFileStatus.PENDING


def _import_status(found: FoundSitemap) -> SitemapImportStatus:
    return SitemapImportStatus.QUEUED if found.readable else SitemapImportStatus.ERROR


def queue_children(session: Session, domain_id: UUID, urls: Sequence[str]) -> None:
    """The children of an index: waiting files are queued unless a curator rejected them; unknown ones are added. Beyond
    MAX_FILES of a domain nothing is added, so that indexes cannot continue forever.
    """
    if not urls:
        return
    known = set(session.scalars(select(SitemapFile.url).where(SitemapFile.domain_id == domain_id)))
    waiting = _waiting(session, domain_id)
    waits = (
        (SitemapFile.domain_id == domain_id)
        & SitemapFile.sitemap_import_status.is_(None)
        & SitemapFile.sitemap_import_curation_status.not_in(TURNED_DOWN)
    )
    queued = {"sitemap_import_status": SitemapImportStatus.QUEUED}
    session.execute(update(SitemapFile).where(waits, SitemapFile.url.in_(urls)).values(queued))
    new = [url for url in sorted(urls) if url not in known][: max(0, MAX_FILES - len(known))]
    found = {"domain_id": domain_id, "discovery_method": DiscoveryMethod.SITEMAP_INDEX, **queued}
    rows = [
        {"url": url, "priority": priority_in_line(0, before, FILES_PER_POINT), **found}
        for before, url in enumerate(new, waiting)
    ]
    for start in range(0, len(rows), CHUNK_ROWS):
        session.execute(insert(SitemapFile).values(rows[start : start + CHUNK_ROWS]).on_conflict_do_nothing())


def _waiting(session: Session, domain_id: UUID) -> int:
    """The number of queued files of the domain."""
    queued = SitemapFile.sitemap_import_status == SitemapImportStatus.QUEUED
    return session.execute(select(func.count()).where(SitemapFile.domain_id == domain_id, queued)).scalar_one()
