"""Which schedules, in which order: filters, and the orders of the keyset pages over the table."""

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, literal, literal_column, or_
from sqlalchemy.orm import InstrumentedAttribute

from database.models import Schedule, Source
from database.pages import Keyset
from services.checks.hostnames import spellings
from services.errors import InvalidInput, Problem
from services.schedules.spec import plain_text

# What stands for NULL, so that rows without a value still have a place in the order.
SORT_KEYS: dict[str, tuple[InstrumentedAttribute[Any], ColumnElement[Any] | None]] = {
    "domain": (Schedule.domain, None),
    "name": (Schedule.name, literal("\U0010ffff")),
    "next_run": (Schedule.next_run, literal_column("'infinity'::timestamptz")),
    "last_run": (Schedule.last_run, literal_column("'-infinity'::timestamptz")),
    "priority": (Schedule.priority, None),
    "created_at": (Schedule.created_at, None),
    "updated_at": (Schedule.updated_at, None),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFilter:
    """All conditions that are set must hold."""

    search: str | None = None  # part of the domain or the name
    enabled: bool | None = None
    name: str | None = None
    schedule_ids: Collection[UUID] | None = None
    after: UUID | None = None  # in the order of the ids
    domain: str | None = None
    job_type: str | None = None
    source: str | None = None
    tag: str | None = None
    last_status: str | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        found: list[ColumnElement[bool]] = []
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, str):
                plain_text(item.name, value)
            if value is not None and item.name in ("enabled", "name", "job_type", "source", "last_status"):
                found.append(getattr(Schedule, item.name) == value)
        if self.source is not None and self.source not in list(Source):
            raise InvalidInput(Problem("source", f"must be one of {', '.join(Source)}, got {self.source!r}"))
        if self.domain is not None:
            found.append(Schedule.domain.in_(spellings(self.domain.strip())))
        if self.schedule_ids is not None:
            found.append(Schedule.schedule_id.in_(self.schedule_ids))
        if self.after is not None:
            found.append(Schedule.schedule_id > self.after)
        if self.tag is not None:
            found.append(Schedule.tags.contains([self.tag]))
        if self.search:
            found.append(
                or_(
                    Schedule.domain.icontains(self.search, autoescape=True),
                    Schedule.name.icontains(self.search, autoescape=True),
                )
            )
        return found


def order_of(sort: str) -> Keyset:
    """`next_run` ascends, `-next_run` descends; ties are broken by the id. Raises InvalidInput."""
    key = sort.removeprefix("-")
    if key not in SORT_KEYS:
        raise InvalidInput(Problem("sort", f"must be one of {', '.join(SORT_KEYS)}, got {sort!r}"))
    column, null = SORT_KEYS[key]
    return Keyset(name=sort, columns=(column, Schedule.schedule_id), null=null, descending=sort != key)
