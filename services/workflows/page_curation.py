"""WF7: reads the contacts on a page; each e-mail address becomes a contact of the domain."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import update
from sqlalchemy.orm import Session

from config import Settings
from database.workflow_models import Domain, LocalBusiness, Page
from database.workflow_statuses import ContactScrapeStatus
from database.workflow_statuses import PageProcessingStatus as Status
from services.fetching import Fetcher, Limits
from services.fetching.sites.urls import host_of
from services.jobs import PermanentFailure
from services.queues.deadline import remaining_seconds
from services.queues.queue import Queue, queues
from services.queues.queue_table import Words
from services.queues.steps import Steps
from services.workflows.contact_store import save_found
from services.workflows.parsing.contacts import FoundContact, find_contacts
from services.workflows.web_pages import get, html_of, is_of_site, polite_fetcher

LIMITS = Limits(max_bytes=2 * 1024 * 1024, max_seconds=20.0)


@dataclass(frozen=True, slots=True)
class Snapshot:
    url: str
    domain: str
    country: str | None


def load(session: Session, key: UUID) -> Snapshot:
    page = session.get_one(Page, key)
    domain = session.get_one(Domain, page.domain_id)
    business = session.get(LocalBusiness, domain.local_business_id) if domain.local_business_id else None
    return Snapshot(page.url, domain.domain, business.country if business else None)


def work(fetcher: Fetcher, snapshot: Snapshot) -> tuple[FoundContact, ...]:
    page = get(fetcher, snapshot.url)
    if not is_of_site(page.url, snapshot.domain):
        raise PermanentFailure(f"redirects to another site, {host_of(page.url)}")
    return find_contacts(html_of(page), page.url, snapshot.domain, snapshot.country, remaining_seconds)


def save(session: Session, key: UUID, found: Sequence[FoundContact]) -> None:
    page = session.get_one(Page, key)
    save_found(session, page, found)
    some, none = ContactScrapeStatus.CONTACT_FOUND, ContactScrapeStatus.NO_CONTACT_FOUND
    page.contact_scrape_status = some if found else none


def on_failed(session: Session, key: UUID, _error: str) -> None:
    session.execute(update(Page).where(Page.id == key).values(contact_scrape_status=ContactScrapeStatus.ERROR))


@contextmanager
def open_steps(settings: Settings) -> Iterator[Steps[UUID]]:
    with polite_fetcher(settings, LIMITS) as fetcher:
        yield Steps(
            load=load,
            work=lambda snapshot: work(fetcher, snapshot),
            save=save,
            on_failed=on_failed,
            own_sites=True,
        )


PAGE_CURATION = queues.register(
    Queue(
        name="page_curation",
        job_id="v2_page_curation_processor",
        display_name="Page Curation Queue Processor",
        settings="page_curation_scheduler",
        concurrency=10,
        model=Page,
        words=Words(Status.QUEUED, Status.PROCESSING, Status.COMPLETE, Status.ERROR),
        status_field_name="page_processing_status",
        error_field_name="page_processing_error",
        steps=open_steps,
    )
)
