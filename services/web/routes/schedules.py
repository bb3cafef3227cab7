"""/api/v3/schedules: list, create, read, change, delete, enable or disable many."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Header, Query, Response

from services.errors import InvalidSchedule, ScheduleNotFound
from services.insight.unhandled_jobs import unoffered
from services.jobs import default_registry
from services.jobs.credentials import credential_warnings, without_credentials
from services.schedules.batch import ScheduleRecord
from services.schedules.defaults import whole_definition
from services.schedules.listing import SORT_KEYS, ScheduleFilter
from services.schedules.spec import unknown_fields
from services.web.auth.guard import Admin, IdempotencyKey, Operator, Viewer
from services.web.auth.roles import Identity, Role
from services.web.bulk import Bulk
from services.web.etags import check_match, etag_of, is_known
from services.web.problems import NO_CONDITION, HttpProblem
from services.web.routing import API, Cursor, Limit, PartsOf, ScheduleReference, find_schedule, router
from services.web.schemas.schedules import (
    BulkResult,
    BulkSwitch,
    FieldProblem,
    NewSchedule,
    RefusedSwitch,
    ScheduleChanges,
    ScheduleDefinition,
    ScheduleOut,
    SchedulePage,
)

schedules = router(f"{API}/schedules", "schedules")

OUR_ARGUMENTS = frozenset({"self", "schedule_id", "expected_revision", "actor"})  # of the repository's methods

IfMatch = Annotated[
    str | None, Header(description='The ETag, or `"<revision>"`, on which the change is based.', examples=['"42"'])
]


@schedules.get("")
def list_schedules(
    parts: PartsOf,
    who: Viewer,
    search: Annotated[str | None, Query(description="Part of the domain or name.", max_length=255)] = None,
    enabled: bool | None = None,
    domain: Annotated[str | None, Query(max_length=255)] = None,
    job_type: Annotated[str | None, Query(max_length=64)] = None,
    source: Annotated[str | None, Query(description="manual, api or system.", max_length=16)] = None,
    tag: Annotated[str | None, Query(max_length=64)] = None,
    last_status: Annotated[str | None, Query(description="For example failed or invalid.", max_length=50)] = None,
    sort: Annotated[str, Query(description=f"{', '.join(SORT_KEYS)}; a leading - sorts descending.")] = "domain",
    limit: Limit = 50,
    cursor: Cursor = None,
    count: Annotated[bool, Query(description="Also return the total number of matches.")] = False,
) -> SchedulePage:
    """A page of schedules."""
    where = ScheduleFilter(
        search=search,
        enabled=enabled,
        domain=domain,
        job_type=job_type,
        source=source,
        tag=tag,
        last_status=last_status,
    )
    page = parts.repository.list_schedules(where, sort=sort, limit=limit, cursor=cursor)
    total = parts.repository.count_schedules(where) if count else None
    return SchedulePage(
        items=[_schedule_out(item, who) for item in page.items], next_cursor=page.next_cursor, total=total
    )


@schedules.post("", status_code=201)
def create_schedule(
    body: NewSchedule, response: Response, parts: PartsOf, who: Operator, key: IdempotencyKey = None
) -> ScheduleOut:
    """Create a schedule. Every replica picks it up within a second."""
    created = parts.repository.create_schedule(actor=who.actor, **_fields(body.given(), "schedule_id"))
    record = find_schedule(parts, str(created))
    response.headers["Location"] = f"{API}/schedules/{record.schedule_id}"
    return _answer(record, response, who, _unoffered(parts, record))


@schedules.post("/bulk", summary="Run, Enable, Disable Or Delete Many")
def change_many_schedules(body: BulkSwitch, parts: PartsOf, who: Admin, key: IdempotencyKey = None) -> BulkResult:
    """Run, enable, disable or delete up to 1,000 schedules, by id or by filter.

    An invalid schedule can only be disabled or deleted. With `dry_run` nothing is done.
    """
    match = body.filter.model_dump() if body.filter else {"schedule_ids": body.schedule_ids}
    done = Bulk(parts.repository, parts.history, who.actor).schedules(
        body.action,
        ScheduleFilter(**match),
        note=body.note,
        dry_run=body.dry_run,
        expected=body.expected,
        after=body.after,
        limit=body.limit,
    )
    refused = [
        RefusedSwitch(schedule_id=schedule_id, errors=[FieldProblem.model_validate(problem) for problem in problems])
        for schedule_id, problems in done.refused.items()
    ]
    return BulkResult(
        matched=done.matched,
        changed=done.changed,
        unchanged=done.unchanged,
        missing=done.missing,
        refused=refused,
        execution_ids=done.execution_ids,
        next_after=done.next_after,
        dry_run=body.dry_run,
    )


@schedules.get("/{schedule}", response_model=ScheduleOut, responses={304: {"description": "Not Modified"}})
def read_schedule(
    schedule: ScheduleReference,
    response: Response,
    parts: PartsOf,
    who: Viewer,
    if_none_match: Annotated[str | None, Header()] = None,
) -> ScheduleOut | Response:
    """A schedule. With If-None-Match, 304 if it has not changed."""
    record = find_schedule(parts, schedule)
    if is_known(if_none_match, record):
        return Response(status_code=304, headers={"ETag": etag_of(record)})
    return _answer(record, response, who)


@schedules.put("/{schedule}", responses={428: {"description": "If-Match is missing"}})
def replace_schedule(
    schedule: ScheduleReference,
    body: ScheduleDefinition,
    response: Response,
    parts: PartsOf,
    who: Operator,
    if_match: IfMatch = None,
) -> ScheduleOut:
    """Replace the whole definition; fields that the body omits return to their defaults. Requires If-Match."""
    if if_match is None:
        raise HttpProblem(NO_CONDITION, "PUT replaces the whole definition; send If-Match with the ETag that you read")
    return _change(schedule, whole_definition(_fields(body.given())), response, parts, who, if_match)


@schedules.patch("/{schedule}")
def change_schedule(
    schedule: ScheduleReference,
    body: ScheduleChanges,
    response: Response,
    parts: PartsOf,
    who: Operator,
    if_match: IfMatch = None,
) -> ScheduleOut:
    """Change individual fields, including `enabled`. The resulting schedule must be valid."""
    return _change(schedule, _fields(body.given()), response, parts, who, if_match)


@schedules.delete("/{schedule}", status_code=204)
def delete_schedule(schedule: ScheduleReference, parts: PartsOf, who: Admin, if_match: IfMatch = None) -> None:
    """Delete a schedule. Its executions and change history remain."""
    record = find_schedule(parts, schedule)
    expected = check_match(if_match, record)
    if not parts.repository.delete_schedule(record.schedule_id, expected_revision=expected, actor=who.actor):
        raise ScheduleNotFound(schedule)


def _fields(given: dict[str, Any], *also: str) -> dict[str, Any]:
    """They become keyword arguments, so refuse names of our own arguments. The spec reports other unknown fields."""
    if strangers := unknown_fields([name for name in given if name in OUR_ARGUMENTS.difference(also)]):
        raise InvalidSchedule(*strangers)
    return given


def _change(
    reference: str, changes: dict[str, Any], response: Response, parts: PartsOf, who: Operator, if_match: str | None
) -> ScheduleOut:
    record = find_schedule(parts, reference)
    expected = check_match(if_match, record)
    after = parts.repository.update_schedule(record.schedule_id, expected_revision=expected, actor=who.actor, **changes)
    return _answer(after, response, who, _unoffered(parts, after))


def _answer(record: ScheduleRecord, response: Response, who: Identity, warnings: Sequence[str] = ()) -> ScheduleOut:
    response.headers["ETag"] = etag_of(record)
    found = [*credential_warnings(record.job_config), *warnings]
    return _schedule_out(record, who).model_copy(update={"warnings": found})


def _unoffered(parts: PartsOf, record: ScheduleRecord) -> list[str]:
    timeout = parts.settings.heartbeat_timeout_seconds
    return unoffered(parts.db, record, default_registry, timeout) if record.enabled else []


def _schedule_out(record: ScheduleRecord, who: Identity) -> ScheduleOut:
    shown = ScheduleOut.model_validate(record)
    return (
        shown
        if who.may(Role.OPERATOR)
        else shown.model_copy(
            update={
                "job_config": without_credentials(record.job_config),
                "ping_url": without_credentials(record.ping_url, "ping_url"),
            }
        )
    )
