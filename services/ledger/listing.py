"""Lists of executions, newest first: the record, filters and keyset pagination over `job_executions`.

Every page costs the same: the cursor contains the last row's position, so there is no OFFSET. The executions of one
schedule are ordered by fire, which its unique key provides; all others by the creation of the row.

Those of one domain are queried as a range in the order of (domain, creation). Queried as an equality in the order of
creation, the planner may scan the executions of all domains: it expects those of a busy domain to come soon, even if
none of them has the wanted status.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Row, Select, literal, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute

from database.models import Cause, ExecutionStatus, JobExecution
from services.errors import InvalidInput, Problem
from services.schedules.spec import aware, parse_uuid, plain_text

MAX_PAGE = 1000
OVERLAP = "overlap"
OVERLAP_WITH_THE_GONE = "overlap with an execution of a dead replica"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRecord:
    """A row of `job_executions`; `details` is the column `metadata`."""

    execution_id: UUID
    schedule_id: UUID | None
    job_id: str
    domain: str
    domain_config_id: UUID
    status: str
    started_at: datetime | None
    completed_at: datetime | None
    duration_seconds: float | None
    scan_id: UUID | None
    error_message: str | None
    error_details: Mapping[str, Any] | None
    details: Mapping[str, Any] | None
    created_at: datetime
    scheduled_for: datetime
    attempt: int
    cause: str
    due_at: datetime | None
    claimed_at: datetime | None
    instance_id: str | None
    incarnation: UUID | None
    fencing_token: int | None
    cancel_requested_at: datetime | None
    reason: str | None
    note: str | None = None  # what nobody could know when the row was written; derived when it is read

    @property
    def why(self) -> str:
        """Why it ended as it did, as far as the row and what came after it say; empty for what went well."""
        return self.error_message or self.note or self.reason or ""

    @property
    def is_terminal(self) -> bool:
        return ExecutionStatus(self.status).is_terminal


@dataclass(frozen=True, slots=True)
class ExecutionPage:
    items: list[ExecutionRecord]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFilter:
    """All conditions that are set must hold; `since` and `until` limit the creation of the row.

    `status` may be a comma-separated list.
    """

    schedule_id: UUID | str | None = None
    domain: str | None = None
    status: str | None = None
    cause: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """Raises InvalidInput for a word or an instant that no row can have."""
        found: list[ColumnElement[bool]] = []
        if self.schedule_id is not None:
            found.append(JobExecution.schedule_id == parse_uuid(self.schedule_id, "schedule_id"))
        if self.domain is not None:
            found.append(same_domain(self.domain))
        if self.status is not None:
            words = [_known("status", word, ExecutionStatus) for word in self.status.split(",")]
            found.append(JobExecution.status == words[0] if len(words) == 1 else JobExecution.status.in_(words))
        if self.cause is not None:
            found.append(JobExecution.cause == _known("cause", self.cause, Cause))
        if self.since is not None:
            found.append(JobExecution.created_at >= aware("since", self.since))
        if self.until is not None:
            found.append(JobExecution.created_at < aware("until", self.until))
        return found

    @property
    def order(self) -> "ExecutionOrder":
        if self.schedule_id is not None:
            return BY_FIRE
        return BY_CREATION if self.domain is None else by_domain(self.domain)


@dataclass(frozen=True, slots=True)
class ExecutionOrder:
    """Newest first by these columns, which are unique together."""

    name: str
    columns: tuple[InstrumentedAttribute[Any], ...]
    domain: str | None = None  # that all of them have

    def apply(self, query: Select[Any], cursor: str | None = None) -> Select[Any]:
        """Sort the query and start after the cursor's row."""
        same: tuple[Any, ...] = () if self.domain is None else (JobExecution.domain,)
        columns = (*same, *self.columns)
        if cursor is not None:
            place = zip((*(self.domain for _ in same), *self._read(cursor)), columns, strict=True)
            query = query.where(tuple_(*columns) < tuple_(*(literal(value, col.type) for value, col in place)))
        return query.order_by(*(column.desc() for column in columns))

    def cursor_after(self, record: ExecutionRecord) -> str:
        place = [getattr(record, column.key) for column in self.columns]
        return base64.urlsafe_b64encode(json.dumps([self.name, *place], default=str).encode()).decode()

    def _read(self, cursor: str) -> list[Any]:
        try:
            name, at, last = json.loads(base64.urlsafe_b64decode(cursor.encode()))
            if name != self.name:
                raise ValueError(f"an order {name}")
            place = aware("cursor", datetime.fromisoformat(at)).astimezone(UTC)  # Postgres knows fewer offsets
            return [place, _attempt(last) if self is BY_FIRE else UUID(last)]
        except (ValueError, TypeError, binascii.Error, AttributeError, RecursionError, OverflowError):
            raise InvalidInput(Problem("cursor", "must come from an earlier page of this list")) from None


BY_CREATION = ExecutionOrder("created", (JobExecution.created_at, JobExecution.execution_id))
BY_FIRE = ExecutionOrder("fire", (JobExecution.scheduled_for, JobExecution.attempt))

_RECORD_COLUMNS = [
    getattr(JobExecution, item.name).label(item.name) for item in fields(ExecutionRecord) if item.name != "note"
]


def select_records() -> Select[Any]:
    return select(*_RECORD_COLUMNS)


def same_domain(domain: str) -> ColumnElement[bool]:
    first, *others = _spelled(domain)
    return JobExecution.domain.in_([first, *others]) if others else JobExecution.domain.between(first, first)


def by_domain(domain: str) -> ExecutionOrder:
    """Newest first, for what `same_domain` finds."""
    first, *others = _spelled(domain)
    return BY_CREATION if others else replace(BY_CREATION, domain=first)


def _spelled(domain: str) -> set[str]:
    """Domains are stored in lower case, the readable names of other jobs as somebody wrote them."""
    plain_text("domain", domain)
    return {domain.strip(), domain.strip().lower()}


def to_execution(row: Row[Any]) -> ExecutionRecord:
    return ExecutionRecord(**row._mapping)


def _known(field: str, value: str, words: type[StrEnum]) -> str:
    if value not in list(words):
        raise InvalidInput(Problem(field, f"must be one of {', '.join(words)}, got {value!r}"))
    return value


def _attempt(value: Any) -> int:
    if type(value) is not int or not 0 < value < 2**31:
        raise ValueError("no attempt")
    return value
