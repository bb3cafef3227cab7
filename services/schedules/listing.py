"""Lists of schedules: filters, sort order and keyset pagination.

Every page costs the same: the cursor contains the last row's sort value, so there is no OFFSET.
"""

import base64
import binascii
import json
from collections.abc import Collection
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, func, literal, literal_column, or_, tuple_
from sqlalchemy.orm import InstrumentedAttribute

from database.models import Schedule, Source
from services.checks.hostnames import spellings
from services.errors import InvalidInput, Problem
from services.schedules.spec import plain_text

MAX_PAGE = 1000

# With the replacement for NULL, so that rows without a value have a position in the order.
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


@dataclass(frozen=True, slots=True)
class Order:
    """`next_run` ascends, `-next_run` descends; ties are broken by the id."""

    key: str = "domain"
    descending: bool = False

    @classmethod
    def parse(cls, text: str) -> "Order":
        order = cls(text.removeprefix("-"), text.startswith("-"))
        if order.key not in SORT_KEYS:
            raise InvalidInput(Problem("sort", f"must be one of {', '.join(SORT_KEYS)}, got {text!r}"))
        return order

    def apply(self, query: Select[Any], cursor: str | None) -> Select[Any]:
        """Sort the query and start after the cursor's row."""
        column, for_null = SORT_KEYS[self.key]
        position: ColumnElement[Any] = column.expression if for_null is None else func.coalesce(column, for_null)
        here = tuple_(position, Schedule.schedule_id)
        if cursor is not None:
            value, schedule_id = self._read_cursor(cursor)
            last = literal(value, column.type) if value is not None or for_null is None else for_null
            there = tuple_(last, literal(schedule_id, Schedule.schedule_id.type))
            query = query.where(here < there if self.descending else here > there)
        return query.order_by(*(part.desc() if self.descending else part for part in (position, Schedule.schedule_id)))

    def cursor_after(self, record: Any) -> str:
        value = getattr(record, self.key)
        plain = value.isoformat() if isinstance(value, datetime) else value
        return base64.urlsafe_b64encode(json.dumps([str(self), plain, str(record.schedule_id)]).encode()).decode()

    def _read_cursor(self, cursor: str) -> tuple[Any, UUID]:
        try:
            order, value, schedule_id = json.loads(base64.urlsafe_b64decode(cursor.encode()))
            if order != str(self):
                raise InvalidInput(Problem("cursor", f"belongs to the sort order {order!r}, not {str(self)!r}"))
            return self._read_position(value), UUID(schedule_id)
        except (ValueError, TypeError, binascii.Error, AttributeError, RecursionError, OverflowError):
            raise InvalidInput(Problem("cursor", "must come from an earlier page of this list")) from None

    def _read_position(self, value: Any) -> Any:
        """The sort value from a cursor, which may be forged."""
        if value is None and SORT_KEYS[self.key][1] is not None:
            return None
        if self.key == "priority":
            if type(value) is not int or abs(value) >= 2**31:
                raise ValueError("no priority")
            return value
        if self.key in ("domain", "name"):
            if "\0" in value:
                raise ValueError("no text")
            return value.encode().decode()
        instant = datetime.fromisoformat(value)
        if instant.tzinfo is None:
            raise ValueError("no instant")
        return instant.astimezone(UTC)

    def __str__(self) -> str:
        return f"-{self.key}" if self.descending else self.key
