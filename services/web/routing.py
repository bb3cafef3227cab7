"""What the routers share: how one is made, how handlers get the parts, how a schedule in a path is found."""

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import AfterValidator

from services.errors import ScheduleNotFound
from services.schedules.batch import ScheduleRecord
from services.schedules.listing import MAX_PAGE, ScheduleFilter
from services.web.auth.guard import GuardedRoute
from services.web.parts import Parts, parts_of

API = "/api/v3"


async def _parts(request: Request) -> Parts:
    return parts_of(request)


PartsOf = Annotated[Parts, Depends(_parts)]
ScheduleReference = Annotated[str, Path(description="Its id or its name.", examples=["nightly-example"])]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Items of a page.")]
Cursor = Annotated[str | None, Query(max_length=2000, description="`next_cursor` of the page before.")]


def _in_utc(instant: datetime) -> datetime:
    """Postgres knows no offsets beyond sixteen hours. One without an offset stays as it is: the services refuse it."""
    try:
        return instant.astimezone(UTC) if instant.tzinfo else instant
    except OverflowError:
        raise ValueError("must be between the years 1 and 9999 in UTC") from None


Instant = Annotated[datetime, AfterValidator(_in_utc)]


def router(path: str, tag: str) -> APIRouter:
    """The whole path is here and not where it is included, so that a route knows its own."""
    return APIRouter(prefix=path, tags=[tag], route_class=GuardedRoute)


def find_schedule(parts: Parts, reference: str) -> ScheduleRecord:
    """Exactly by id or by name: a program must not hit another schedule because it looks alike."""
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
    """Also of a schedule that was deleted: its history is still there."""
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
