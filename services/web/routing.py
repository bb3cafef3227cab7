"""Shared by the routers: the router factory, access to the parts, and looking up the schedule of a path."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Request

from database.pages import MAX_PAGE
from services.errors import ScheduleNotFound
from services.schedules.batch import ScheduleRecord
from services.schedules.listing import ScheduleFilter
from services.web.auth.guard import GuardedRoute
from services.web.instants import Instant as Instant
from services.web.parts import Parts, parts_of

API = "/api/v3"


async def _parts(request: Request) -> Parts:
    return parts_of(request)


PartsOf = Annotated[Parts, Depends(_parts)]
ScheduleReference = Annotated[str, Path(description="Id or name of the schedule.", examples=["nightly-example"])]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Page size.")]
Cursor = Annotated[str | None, Query(max_length=2000, description="`next_cursor` of the previous page.")]


def router(path: str, tag: str) -> APIRouter:
    """The full path is the prefix of the router, so that every route knows its own path."""
    return APIRouter(prefix=path, tags=[tag], route_class=GuardedRoute)


def find_schedule(parts: Parts, reference: str) -> ScheduleRecord:
    """Exact match by id or name; programs must never hit a schedule with a similar name."""
    schedule_id = _as_uuid(reference)
    if schedule_id is not None:
        found = parts.repository.get_schedule(schedule_id)
    else:
        page = parts.repository.list_schedules(ScheduleFilter(name=reference), limit=1)
        found = next(iter(page.items), None)
    if found is None:
        raise ScheduleNotFound(reference)
    return found


def schedule_id_of(parts: Parts, reference: str) -> UUID:
    """Also finds deleted schedules, whose history remains."""
    if schedule_id := _as_uuid(reference):
        return schedule_id
    try:
        return find_schedule(parts, reference).schedule_id
    except ScheduleNotFound:
        if deleted := parts.repository.find_deleted(reference):
            return deleted
        raise


def _as_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
