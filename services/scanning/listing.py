"""Which scans, newest first, from where on: the record, filters and keyset pages over `scans`.

A page costs the same wherever it is: the cursor carries the last row's place, no OFFSET.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID

from sqlalchemy import ColumnElement, Select, literal, select, tuple_

from database.models import ScanRow
from services.checks.hostnames import spellings
from services.errors import InvalidInput, Problem
from services.scanning.findings import EngineName

MAX_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRecord:
    """A scan without its pages, cookies and changes; `summary` counts them."""

    scan_id: UUID
    execution_id: UUID | None
    schedule_id: UUID | None
    domain: str
    engine: str
    started_at: datetime
    finished_at: datetime
    previous_scan_id: UUID | None
    config: Mapping[str, Any]
    summary: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScanPage:
    items: list[ScanRecord]
    next_cursor: str | None

    @classmethod
    def of(cls, records: Sequence[ScanRecord], limit: int) -> Self:
        """From one record more than wanted, if there is one."""
        shown = list(records[:limit])
        return cls(shown, _cursor_after(shown[-1]) if len(records) > limit else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFilter:
    """All conditions that are set must hold; `since` and `until` limit when the scan ended."""

    domain: str | None = None
    engine: str | None = None
    schedule_id: UUID | None = None
    execution_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """Raises InvalidInput for a word or an instant that no row can have."""
        found: list[ColumnElement[bool]] = []
        if self.domain is not None:
            found.append(ScanRow.domain.in_(spellings(_text("domain", self.domain))))
        if self.engine is not None:
            if self.engine not in list(EngineName):
                raise InvalidInput(Problem("engine", f"must be one of {', '.join(EngineName)}, got {self.engine!r}"))
            found.append(ScanRow.engine == self.engine)
        if self.schedule_id is not None:
            found.append(ScanRow.schedule_id == self.schedule_id)
        if self.execution_id is not None:
            found.append(ScanRow.execution_id == self.execution_id)
        if self.since is not None:
            found.append(ScanRow.finished_at >= _aware("since", self.since))
        if self.until is not None:
            found.append(ScanRow.finished_at < _aware("until", self.until))
        return found


_COLUMNS = [getattr(ScanRow, item.name) for item in fields(ScanRecord)]


def select_page(wanted: ScanFilter, limit: int, cursor: str | None) -> Select[Any]:
    """One row more than a page, so that the end of the list is known."""
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(Problem("limit", f"must be between 1 and {MAX_PAGE}, got {limit}"))
    query = select(*_COLUMNS).where(*wanted.conditions())
    if cursor is not None:
        at, scan_id = _read(cursor)
        last = tuple_(literal(at, ScanRow.finished_at.type), literal(scan_id, ScanRow.scan_id.type))
        query = query.where(last > tuple_(ScanRow.finished_at, ScanRow.scan_id))
    return query.order_by(ScanRow.finished_at.desc(), ScanRow.scan_id.desc()).limit(limit + 1)


def _cursor_after(record: ScanRecord) -> str:
    place = [record.finished_at.isoformat(), str(record.scan_id)]
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _read(cursor: str) -> tuple[datetime, UUID]:
    try:
        at, scan_id = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        place = datetime.fromisoformat(at)
        if place.tzinfo is None:
            raise ValueError("no instant")
        return place.astimezone(UTC), UUID(scan_id)
    except (ValueError, TypeError, binascii.Error, AttributeError, RecursionError, OverflowError):
        raise InvalidInput(Problem("cursor", "must come from an earlier page of this list")) from None


def _aware(field: str, value: datetime) -> datetime:
    if value.tzinfo is None:
        raise InvalidInput(Problem(field, f"needs a UTC offset, as in {value.isoformat()}+00:00"))
    return value


def _text(field: str, value: str) -> str:
    if not value.isprintable():
        raise InvalidInput(Problem(field, "must not contain control characters"))
    return value.strip()
