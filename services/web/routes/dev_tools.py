"""/api/v3/dev-tools: development only; 404 in any other environment."""

from datetime import UTC, datetime

from database.pages import MAX_PAGE
from services.errors import InvalidSchedule
from services.insight.replicas import list_replicas
from services.ledger.listing import ExecutionFilter
from services.schedules.batch import ScheduleRecord
from services.web.auth.guard import Viewer
from services.web.parts import Parts
from services.web.problems import not_found
from services.web.routing import API, PartsOf, router
from services.web.schemas.system import JobOut, SchedulerStatus

dev_tools = router(f"{API}/dev-tools", "dev-tools")


def require_development(parts: Parts) -> None:
    if parts.settings.environment.lower() not in ("development", "dev"):
        raise not_found("such path here; ENVIRONMENT=development enables the dev tools")


@dev_tools.get("/scheduler_status")
def scheduler_status(parts: PartsOf, who: Viewer) -> SchedulerStatus:
    """Jobs of the scheduler that all replicas share: the first 1,000 by next run."""
    require_development(parts)
    page = parts.repository.list_schedules(sort="next_run", limit=MAX_PAGE)
    waiting = parts.history.list_executions(ExecutionFilter(status="pending"), MAX_PAGE).items
    pending = {execution.schedule_id for execution in waiting}
    live = list_replicas(parts.db, parts.settings.heartbeat_timeout_seconds).live
    return SchedulerStatus(
        status="running" if live else "stopped",
        jobs=[_job(record, record.schedule_id in pending) for record in page.items],
        total_jobs=parts.repository.count_schedules(),
        timestamp=datetime.now(UTC),
    )


def _job(record: ScheduleRecord, pending: bool) -> JobOut:
    return JobOut(
        id=record.job_id,
        schedule_id=record.schedule_id,
        name=record.domain,
        trigger=_trigger(record),
        next_run_time=record.next_run,
        pending=pending,
        enabled=record.enabled,
        last_run=record.last_run,
        last_status=record.last_status,
    )


def _trigger(record: ScheduleRecord) -> str:
    try:
        return record.trigger.describe()
    except InvalidSchedule as error:
        return f"invalid: {error}"
