"""WF2: a place becomes a business with its details."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from config import Settings
from database.workflow_models import LocalBusiness, Place
from database.workflow_statuses import DeepScanStatus as Status
from database.workflow_statuses import DomainExtractionStatus
from enhanced_scheduler.texts import storable_json
from services.queues.queue import Queue, queues
from services.queues.queue_table import Words
from services.queues.steps import Steps
from services.workflows.places import Business, open_provider


def load(session: Session, key: int) -> str:
    return session.get_one(Place, key).place_id


def save_business(session: Session, place_id: str, business: Business, goes_on: bool) -> None:
    """Writes the known values. Unknown values and a curator's status stay unchanged."""
    known = storable_json(business.known())
    entrance = {"domain_extraction_status": DomainExtractionStatus.QUEUED} if goes_on else {}
    statement = insert(LocalBusiness).values(place_id=place_id, **known, **entrance)
    session.execute(
        statement.on_conflict_do_update(index_elements=["place_id"], set_=known)
        if known
        else statement.on_conflict_do_nothing(index_elements=["place_id"])
    )


@contextmanager
def open_steps(settings: Settings) -> Iterator[Steps[int]]:
    def save(session: Session, key: int, business: Business) -> None:
        place = session.get_one(Place, key)
        place.tenant_id = place.tenant_id or settings.default_tenant_id
        save_business(session, place.place_id, business, settings.deep_scan_auto_queue_extraction)

    with open_provider(settings) as provider:
        yield Steps(load=load, work=provider.details, save=save)


DEEP_SCAN = queues.register(
    Queue(
        name="deep_scan",
        job_id="process_deep_scan_queue",
        display_name="WF2 - Deep Scan Queue Processor",
        settings="deep_scan_scheduler",
        concurrency=5,
        model=Place,
        words=Words(Status.QUEUED, Status.PROCESSING, Status.COMPLETED, Status.ERROR),
        status_field_name="deep_scan_status",
        error_field_name="deep_scan_error",
        steps=open_steps,
        downstream="domain_extraction",
    )
)
