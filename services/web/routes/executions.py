"""/api/v3/executions: list, read, cancel, retry."""

from typing import Annotated
from uuid import UUID

from fastapi import Header, Query, Response

from services.job_history import RetryOutcome
from services.ledger.fate_sql import Fate
from services.ledger.listing import ExecutionFilter, ExecutionRecord
from services.ledger.logs import BEGINNING, PAGE, LogPosition
from services.ledger.timeline import timeline
from services.web.auth.guard import Admin, IdempotencyKey, Operator, Viewer
from services.web.bulk import WHY_NOT, Bulk
from services.web.event_streams import EXAMPLE, EventStream
from services.web.parts import Parts
from services.web.problems import CONFLICT, HttpProblem, not_found
from services.web.routing import API, Cursor, Instant, Limit, PartsOf, router, schedule_id_of
from services.web.schemas.executions import (
    BulkExecutionsResult,
    BulkOnExecutions,
    CancelRequested,
    ExecutionDetail,
    ExecutionOut,
    ExecutionPage,
    LogLineOut,
    LogOut,
    MomentOut,
    RefusedExecution,
)
from services.web.schemas.schedules import RunRequested

executions = router(f"{API}/executions", "executions")

Since = Annotated[Instant | None, Query(description="Created at or after this time.")]
Outcome = Annotated[
    Fate | None,
    Query(
        description="One failed attempt of each fire that failed for good (failed), was mended by a retry (recovered), "
        "or has a retry that waits or runs (retrying)."
    ),
]
ErrorPart = Annotated[str | None, Query(max_length=200, description="Part of the error of a failed attempt.")]
Until = Annotated[Instant | None, Query(description="Created before this time.")]


@executions.get("")
def list_executions(
    parts: PartsOf,
    who: Viewer,
    schedule: Annotated[str | None, Query(max_length=255, description="Id or name of the schedule.")] = None,
    domain: Annotated[str | None, Query(max_length=255)] = None,
    status: Annotated[
        str | None,
        Query(max_length=100, description="One status, or several separated by commas.", examples=["failed"]),
    ] = None,
    cause: Annotated[str | None, Query(max_length=16, examples=["manual"])] = None,
    outcome: Outcome = None,
    error: ErrorPart = None,
    job_type: Annotated[str | None, Query(max_length=64, description="Job type of the schedule.")] = None,
    tag: Annotated[str | None, Query(max_length=64, description="A tag of the schedule.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ExecutionPage:
    """A page of executions, newest first."""
    where = ExecutionFilter(
        schedule_id=None if schedule is None else schedule_id_of(parts, schedule),
        domain=domain,
        status=status,
        cause=cause,
        outcome=outcome,
        error=error,
        job_type=job_type,
        tag=tag,
        since=since,
        until=until,
    )
    return ExecutionPage.model_validate(parts.history.list_executions(where, limit, cursor))


@executions.post("/bulk", summary="Retry Or Cancel Many")
def change_many_executions(
    body: BulkOnExecutions, parts: PartsOf, who: Admin, key: IdempotencyKey = None
) -> BulkExecutionsResult:
    """Retry or cancel up to 1,000 executions, by id or by filter, newest first. With `dry_run` nothing is done."""
    where = ExecutionFilter(execution_ids=body.execution_ids)
    if body.filter is not None:
        match = body.filter.model_dump(exclude={"schedule"})
        name = body.filter.schedule
        where = ExecutionFilter(**match, schedule_id=None if name is None else schedule_id_of(parts, name))
    bulk = Bulk(parts.repository, parts.history, who.actor)
    done = bulk.executions(body.action, where, dry_run=body.dry_run, after=body.after, limit=body.limit)
    return BulkExecutionsResult(
        matched=done.matched,
        changed=done.changed,
        missing=done.missing,
        refused=[RefusedExecution(execution_id=one, reason=why[0].reason) for one, why in done.refused.items()],
        execution_ids=done.execution_ids,
        next_after=done.next_after,
        dry_run=body.dry_run,
    )


@executions.get("/{execution_id}")
def read_execution(execution_id: UUID, parts: PartsOf, who: Viewer) -> ExecutionDetail:
    """An execution with its attempts and timeline."""
    record = _find(parts, execution_id)
    return ExecutionDetail(
        **ExecutionOut.model_validate(record).model_dump(),
        domain_config_id=record.domain_config_id,
        fencing_token=record.fencing_token,
        error_details=None if record.error_details is None else dict(record.error_details),
        metadata=None if record.details is None else dict(record.details),
        attempts=[ExecutionOut.model_validate(attempt) for attempt in parts.history.get_attempts(record)],
        timeline=[MomentOut.model_validate(moment) for moment in timeline(record)],
    )


@executions.get("/{execution_id}/log")
def read_log(
    execution_id: UUID,
    parts: PartsOf,
    who: Viewer,
    after: Annotated[
        str | None, Query(max_length=50, description="`position` of the last line that you have.", examples=["4711-25"])
    ] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE, description="Lines.")] = PAGE,
) -> LogOut:
    """What the handler has logged so far, and its progress; also while it runs."""
    _find(parts, execution_id)
    position = BEGINNING if after is None else LogPosition.parse(after, "after")
    state = parts.history.logs.state(execution_id)
    lines = parts.history.logs.read(execution_id, position, limit)
    return LogOut(
        lines=[LogLineOut.of(line) for line in lines],
        next_position=str(lines[-1].position if lines else position),
        done=None if state is None else state.done,
        total=None if state is None else state.total,
        is_complete=state is not None and state.is_complete,
    )


@executions.get(
    "/{execution_id}/events",
    response_class=EventStream,
    responses={
        200: {
            "description": "Server-Sent Events",
            "content": {"text/event-stream": {"schema": {"type": "string"}, "example": EXAMPLE}},
        },
        204: {"description": "Last-Event-ID is the end: nothing more will come"},
        503: {"description": "Too many open streams"},
    },
)
async def follow_execution(
    execution_id: UUID,
    parts: PartsOf,
    who: Viewer,
    last_event_id: Annotated[
        str | None, Header(max_length=50, description="Continue after this event, as browsers do by themselves.")
    ] = None,
) -> Response:
    """The execution as Server-Sent Events, until it has ended: `status`, `log`, `progress`, and `end` as the last one.

    Each event's data is JSON. A stream ends after 15 minutes even if the execution runs on; reconnect with the last id.
    """
    position = BEGINNING if last_event_id is None else LogPosition.parse(last_event_id, "Last-Event-ID")
    return await parts.streams.open(parts.history.follow_log(execution_id, position), resumed=last_event_id is not None)


@executions.post(
    "/{execution_id}/cancel", status_code=202, responses={409: {"description": "The execution has already ended"}}
)
def cancel_execution(execution_id: UUID, parts: PartsOf, who: Operator) -> CancelRequested:
    """Cancel a pending execution at once, or ask the replica to stop a running one. Also cancels its retries."""
    _find(parts, execution_id)
    if not parts.history.request_cancel(execution_id, who.actor):
        raise HttpProblem(CONFLICT, f"execution {execution_id} has already ended")
    return CancelRequested(execution_id=execution_id, status=_find(parts, execution_id).status)


@executions.post("/{execution_id}/retry", status_code=202)
def retry_execution(
    execution_id: UUID, response: Response, parts: PartsOf, who: Operator, key: IdempotencyKey = None
) -> RunRequested:
    """Add another attempt at the same fire, if the last attempt has ended without success."""
    retry = parts.history.request_retry(execution_id, who.actor)
    if retry.outcome is RetryOutcome.UNKNOWN:
        raise not_found(f"execution {execution_id} that belongs to a schedule")
    if retry.execution_id is None:
        raise HttpProblem(CONFLICT, f"execution {execution_id} cannot be retried: {WHY_NOT[retry.outcome]}")
    response.headers["Location"] = f"{API}/executions/{retry.execution_id}"
    return RunRequested(execution_id=retry.execution_id)


def _find(parts: Parts, execution_id: UUID) -> ExecutionRecord:
    record = parts.history.get_execution(execution_id)
    if record is None:
        raise not_found(f"execution {execution_id}")
    return record
