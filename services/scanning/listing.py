"""Lists of scans, newest first: record, filters and keyset pages over `scans`."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, select

from database.models import ScanRow
from database.pages import Keyset, PageOf
from services.checks.hostnames import spellings
from services.errors import InvalidInput, Problem
from services.scanning.findings import EngineName


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


ScanPage = PageOf[ScanRecord]


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
        """Raises InvalidInput for a value that no row can have."""
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


NEWEST_FIRST = Keyset(columns=(ScanRow.finished_at, ScanRow.scan_id))
_COLUMNS = [getattr(ScanRow, item.name) for item in fields(ScanRecord)]


def select_page(wanted: ScanFilter, limit: int, cursor: str | None) -> Select[Any]:
    return NEWEST_FIRST.page(select(*_COLUMNS).where(*wanted.conditions()), limit, cursor)


def _aware(field: str, value: datetime) -> datetime:
    if value.tzinfo is None:
        raise InvalidInput(Problem(field, f"needs a UTC offset, as in {value.isoformat()}+00:00"))
    return value


def _text(field: str, value: str) -> str:
    if not value.isprintable():
        raise InvalidInput(Problem(field, "must not contain control characters"))
    return value.strip()
