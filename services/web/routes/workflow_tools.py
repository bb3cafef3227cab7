"""/api/v3/dev-tools/…: inspect the queues, run one now. Development only."""

from typing import Annotated

from fastapi import Query

from services.queues.overview import QueueOverview
from services.web.auth.guard import IdempotencyKey, Operator, Viewer
from services.web.parts import Parts
from services.web.problems import FORBIDDEN, HttpProblem
from services.web.routes.dev_tools import require_development
from services.web.routing import API, PartsOf, find_schedule, router
from services.web.schemas.schedules import RunRequested
from services.web.schemas.workflows import QueueList, QueueOut, RunOut
from services.workflows.domain_metadata import DOMAIN_METADATA

workflow_tools = router(f"{API}/dev-tools", "dev-tools")

HowMany = Annotated[int, Query(ge=1, le=50, description="Maximum number of domains to process.")]


@workflow_tools.get("/queues", deprecated=True)
def list_queues_in_development(parts: PartsOf, who: Viewer) -> QueueList:
    """The same as GET /api/v3/queues, for older callers."""
    require_development(parts)
    views = QueueOverview(parts.db, parts.settings).look()
    return QueueList(items=[QueueOut.model_validate(view) for view in views])


@workflow_tools.post("/trigger/{job_id}", status_code=202)
def trigger_job(job_id: str, parts: PartsOf, who: Operator, key: IdempotencyKey = None) -> RunRequested:
    """Run this job now, on any replica."""
    require_development(parts)
    return RunRequested(execution_id=parts.history.request_run(find_schedule(parts, job_id).schedule_id, who.actor))


@workflow_tools.post("/process-pending-domains")
def process_pending_domains(parts: PartsOf, who: Operator, limit: HowMany = 5) -> RunOut:
    """Process pending domains in the web process and wait for the result."""
    return _run_pending(parts, limit)


@workflow_tools.get("/process-pending-domains")
def process_pending_domains_by_get(parts: PartsOf, who: Operator, limit: HowMany = 5) -> RunOut:
    """The same by GET, for older callers. Refuses session cookies, so that a link cannot start work."""
    if who.by_cookie:
        raise HttpProblem(FORBIDDEN, "a session cookie cannot start work with GET; use POST, or send a token")
    return _run_pending(parts, limit)


def _run_pending(parts: Parts, limit: int) -> RunOut:
    require_development(parts)
    summary = DOMAIN_METADATA.run(settings=parts.settings, db=parts.db, at_most=limit)
    said = f"skipped: {summary.skipped}" if summary.skipped else f"{summary.claimed} domains processed"
    return RunOut(message=said, summary=summary.as_dict())
