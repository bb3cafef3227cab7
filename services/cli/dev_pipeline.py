"""The pipeline of `manage.py dev`: places of the demo directory that become contacts in the live view."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from config import Settings
from database.connection import DatabaseConnection
from database.workflow_models import Place
from database.workflow_statuses import DeepScanStatus, PlaceStatus
from services.cli.demo.directory import BUSINESSES, DemoBusiness
from services.cli.dev_demo import ACTOR, TAG
from services.queues.system_schedules import ACTOR as SYSTEM
from services.queues.system_schedules import install_system_schedules
from services.schedule_repository import ScheduleRepository
from services.schedules.listing import ScheduleFilter
from services.workflows import queues

EVERY_SECONDS = 6  # seven queues in a row: the first contacts appear within a minute


def pipeline_environment(site: str) -> dict[str, str]:
    """Variables that lead the replicas to the demo directory and its sites."""
    port = urlsplit(site).port
    return {
        "WORKFLOWS_ENABLED": "true",
        "GOOGLE_MAPS_API": "details",
        "GOOGLE_MAPS_API_KEY": "demo",  # never send the user's real key to the demo
        "GOOGLE_MAPS_BASE_URL": site,
        "FETCH_CONNECT_TO": f"*.example=127.0.0.1:{port}",
        "WORKFLOW_FETCH_DELAY_SECONDS": "0.1",
    }


def is_demo(repository: ScheduleRepository) -> bool:
    """True when the database has the demo's schedules; only then it also gets the demo's places."""
    return repository.count_schedules(ScheduleFilter(tag=TAG)) > 0


def prepare_pipeline(db: DatabaseConnection, repository: ScheduleRepository, settings: Settings) -> Iterator[str]:
    install_system_schedules(db, settings)
    for queue in queues.all():
        newest = repository.get_changes(queue.schedule_id, 1)
        if [change.changed_by for change in newest] == [SYSTEM]:  # never edited
            repository.update_schedule(queue.schedule_id, time_config={"seconds": EVERY_SECONDS}, actor=ACTOR)
    with db.get_background_session() as session:
        if session.scalar(select(func.count()).select_from(Place)) == 0:
            session.execute(insert(Place).values([_place(each, settings) for each in BUSINESSES]))
            yield f"{len(BUSINESSES)} places of the demo directory are queued for their deep scan"


def _place(business: DemoBusiness, settings: Settings) -> dict[str, Any]:
    """The row of a place that a search found and a curator selected."""
    return {
        "place_id": business.place_id,
        "name": business.name,
        "tenant_id": settings.default_tenant_id,
        "status": PlaceStatus.SELECTED,
        "deep_scan_status": DeepScanStatus.QUEUED,
    }
