"""/api/v3/schedules/…: run now, backfill, preview, change history, explain."""

from collections.abc import Callable
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from fastapi import Query, Response

from services.errors import InvalidInput, Problem
from services.insight.explain.explainer import parse_moment
from services.insight.explain.words import moment
from services.jobs.credentials import without_credentials
from services.schedules.changes import Change
from services.schedules.preview import Preview, preview_definition
from services.web.auth.guard import IdempotencyKey, Operator, Viewer
from services.web.auth.roles import Role
from services.web.problems import not_found
from services.web.routing import API, Limit, PartsOf, ScheduleReference, find_schedule, router, schedule_id_of
from services.web.schemas.executions import ExplanationOut
from services.web.schemas.schedules import (
    BackfillOut,
    BackfillWish,
    ChangeList,
    ChangeOut,
    Difference,
    FieldProblem,
    FireOut,
    PreviewOut,
    RunRequested,
    ScheduleChanges,
)

schedule_actions = router(f"{API}/schedules", "schedules")

HowMany = Annotated[int, Query(ge=1, le=100, description="Number of fires.")]
Zone = Annotated[
    str | None,
    Query(max_length=64, description="Time zone of the local times; default: the schedule's own."),
]


@schedule_actions.post("/preview")
def preview_new_schedule(
    body: ScheduleChanges, parts: PartsOf, who: Viewer, n: HowMany = 5, zone: Zone = None
) -> PreviewOut:
    """The next fires of a definition. Only an invalid timing gives 422; other problems are part of the response."""
    return _preview_out(preview_definition(body.given(), n, announced=parts.repository.announced_types), zone)


@schedule_actions.post("/{schedule}/preview")
def preview_schedule(
    schedule: ScheduleReference,
    parts: PartsOf,
    who: Viewer,
    body: ScheduleChanges | None = None,
    n: HowMany = 5,
    zone: Zone = None,
) -> PreviewOut:
    """The next fires of a schedule, with the given changes applied."""
    definition = find_schedule(parts, schedule).changed_by(body.given() if body else {})
    return _preview_out(preview_definition(definition, n, announced=parts.repository.announced_types), zone)


@schedule_actions.post("/{schedule}/run", status_code=202)
def run_schedule(
    schedule: ScheduleReference, response: Response, parts: PartsOf, who: Operator, key: IdempotencyKey = None
) -> RunRequested:
    """Run a schedule once, now, on any replica, even if it is disabled. Its next fire is not affected."""
    execution_id = parts.history.request_run(find_schedule(parts, schedule).schedule_id, who.actor)
    response.headers["Location"] = f"{API}/executions/{execution_id}"
    return RunRequested(execution_id=execution_id)


@schedule_actions.post("/{schedule}/backfill", status_code=202)
def backfill_schedule(
    schedule: ScheduleReference, body: BackfillWish, parts: PartsOf, who: Operator, key: IdempotencyKey = None
) -> BackfillOut:
    """Run past fires that did not succeed, oldest first, even if the schedule is disabled."""
    found = find_schedule(parts, schedule)
    since, until = (parse_moment(text, found.timezone, name) for name, text in (("from", body.from_), ("to", body.to)))
    made = parts.backfills.request(found.schedule_id, since, until, who.actor, limit=body.limit, dry_run=body.dry_run)
    return BackfillOut.model_validate(made)


@schedule_actions.get("/{schedule}/changes")
def list_schedule_changes(schedule: ScheduleReference, parts: PartsOf, who: Viewer, limit: Limit = 50) -> ChangeList:
    """Change history of a schedule, newest first; also of a deleted one."""
    schedule_id = schedule_id_of(parts, schedule)
    changes = parts.repository.get_changes(schedule_id, limit)
    if not changes and parts.repository.get_schedule(schedule_id) is None:
        raise not_found(f"schedule {schedule}")
    show = (lambda value, _: value) if who.may(Role.OPERATOR) else without_credentials
    return ChangeList(items=[_change_out(change, show) for change in changes])


@schedule_actions.get("/{schedule}/explain")
def explain_schedule(
    schedule: ScheduleReference,
    parts: PartsOf,
    who: Viewer,
    at: Annotated[
        str | None,
        Query(
            max_length=64,
            description="ISO 8601; without an offset, in the schedule's time zone. Default: the latest fire.",
            examples=["2027-01-31T02:00"],
        ),
    ] = None,
) -> ExplanationOut:
    """Why a fire ran, did not run, or ran late."""
    return ExplanationOut.model_validate(parts.explainer.explain_text(schedule_id_of(parts, schedule), at))


def _preview_out(preview: Preview, zone: str | None) -> PreviewOut:
    timezone = zone or preview.timezone
    try:
        ZoneInfo(timezone)
    except (ValueError, OSError, KeyError):
        raise InvalidInput(Problem("zone", f"there is no time zone {timezone!r}")) from None
    return PreviewOut(
        description=preview.description,
        timezone=timezone,
        fires=[FireOut(at=fire, local=moment(fire, timezone)) for fire in preview.fires],
        warnings=preview.warnings,
        problems=[FieldProblem.model_validate(problem) for problem in preview.problems],
    )


def _change_out(change: Change, show: Callable[[Any, str], Any]) -> ChangeOut:
    differences = [
        Difference(field=name, old=show(old, name), new=show(new, name))
        for name, (old, new) in sorted(change.differences.items())
    ]
    return ChangeOut(
        changed_at=change.changed_at,
        changed_by=change.changed_by,
        operation=change.operation,
        revision=change.revision,
        differences=differences,
    )
