"""WF3, second half: reads a domain's metadata from its home page, then queues the search for its sitemaps."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from uuid import UUID

from sqlalchemy.orm import Session

from config import Settings
from database.workflow_models import Domain, LocalBusiness
from database.workflow_statuses import TURNED_DOWN, SitemapAnalysisStatus
from database.workflow_statuses import DomainStatus as Status
from enhanced_scheduler.texts import storable_json
from services.fetching import Limits
from services.queues.queue import Queue, queues
from services.queues.queue_table import Words
from services.queues.steps import Steps
from services.workflows.parsing.site_metadata import SiteMetadata, detect_site_metadata
from services.workflows.web_pages import polite_fetcher

LIMITS = Limits(max_bytes=2 * 1024 * 1024, max_seconds=20.0)
UNDER_WAY = (SitemapAnalysisStatus.PROCESSING, SitemapAnalysisStatus.SUBMITTED)


@dataclass(frozen=True, slots=True)
class Snapshot:
    domain: str
    country: str | None


def load(session: Session, key: UUID) -> Snapshot:
    domain = session.get_one(Domain, key)
    business = session.get(LocalBusiness, domain.local_business_id) if domain.local_business_id else None
    return Snapshot(domain.domain, business.country if business else None)


def save(session: Session, key: UUID, found: SiteMetadata) -> None:
    """Known values are never overwritten by empty ones."""
    domain = session.get_one(Domain, key)
    said = storable_json(asdict(found))
    domain.meta_json = {**domain.meta_json, "final_url": said.pop("final_url")}
    for name, value in said.items():
        if value not in (None, []):
            setattr(domain, name, value)
    if domain.sitemap_analysis_status not in UNDER_WAY and domain.sitemap_curation_status not in TURNED_DOWN:
        domain.sitemap_analysis_status = SitemapAnalysisStatus.QUEUED


@contextmanager
def open_steps(settings: Settings) -> Iterator[Steps[UUID]]:
    with polite_fetcher(settings, LIMITS) as fetcher:

        def work(snapshot: Snapshot) -> SiteMetadata:
            return detect_site_metadata(snapshot.domain, fetcher, snapshot.country)

        yield Steps(load=load, work=work, save=save, own_sites=True)


DOMAIN_METADATA = queues.register(
    Queue(
        name="domain_metadata",
        job_id="process_pending_domains",
        display_name="Process Pending Domains",
        settings="domain_scheduler",
        concurrency=20,
        model=Domain,
        words=Words(Status.PENDING, Status.PROCESSING, Status.COMPLETED, Status.ERROR),
        status_field_name="status",
        error_field_name="last_error",
        steps=open_steps,
        downstream="sitemap_submission",
    )
)
