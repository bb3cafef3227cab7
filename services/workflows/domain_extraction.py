"""WF3, first half: the web site of a business becomes a domain that is queued for its metadata. No network."""

from urllib.parse import urlsplit
from uuid import UUID

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from database.workflow_models import Domain, LocalBusiness
from database.workflow_statuses import DomainExtractionStatus as Status
from services.checks.hostnames import bare_host
from services.jobs import PermanentFailure
from services.queues.queue import Queue, always, queues
from services.queues.queue_table import Words
from services.queues.steps import Steps


def domain_of(website_url: str) -> str:
    """The bare host of an address as people type it; PermanentFailure says why there is none."""
    address = website_url.strip()
    if "://" not in address:
        address = f"http://{address.removeprefix('//')}"
    try:
        host = bare_host(urlsplit(address).hostname or "")
    except ValueError as error:
        raise PermanentFailure(f"no domain in {website_url!r}: {error}") from None
    bare = host.removeprefix("www.")
    return bare if "." in bare else host


def extract(business_id: UUID, session: Session) -> None:
    business = session.get_one(LocalBusiness, business_id)
    if not (business.website_url or "").strip():
        return
    found = {"domain": domain_of(business.website_url or ""), "local_business_id": business_id}
    session.execute(insert(Domain).values(found).on_conflict_do_nothing(index_elements=["domain"]))


DOMAIN_EXTRACTION = queues.register(
    Queue(
        name="domain_extraction",
        job_id="process_domain_extraction_queue",
        display_name="WF3 - Domain Extraction Queue Processor",
        settings="domain_extraction_scheduler",
        model=LocalBusiness,
        words=Words(Status.QUEUED, Status.PROCESSING, Status.COMPLETED, Status.ERROR),
        status_field_name="domain_extraction_status",
        error_field_name="domain_extraction_error",
        steps=always(Steps.plain(extract)),
        downstream="domain_metadata",
    )
)
