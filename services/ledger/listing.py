"""Which executions, newest first: the record, filters, and the orders of the keyset pages over `job_executions`.

The executions of one schedule are ordered by their fires, which its unique key has in order already; all others by the
row's creation.

Those of one domain are queried as a range in the order of (domain, creation). Queried as an equality in the order of
creation, the planner may scan the executions of all domains: it expects those of a busy domain to come soon, even if
none of them has the wanted status.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Boolean, ColumnElement, Row, Select, literal_column, select

from database.models import Cause, ExecutionStatus, JobExecution, Schedule
from database.pages import Keyset, PageOf
from services.errors import InvalidInput, Problem
from services.ledger.fate_sql import Fate, has_fate
from services.schedules.spec import aware, parse_uuid, plain_text

FAILED = (ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT, ExecutionStatus.ABANDONED)
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
    published_at: datetime | None = None  # when the workers of its queue were last told of it
    note: str | None = None  # what was unknown when the row was written; derived when it is read

    @property
    def why(self) -> str:
        """Why it ended as it did, as far as the row and what came after it say; empty for what went well."""
        return self.error_message or self.note or self.reason or ""

    @property
    def is_terminal(self) -> bool:
        return ExecutionStatus(self.status).is_terminal


ExecutionPage = PageOf[ExecutionRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFilter:
    """All conditions that are set must hold; `since` and `until` limit the creation of the row.

    `status` may be a comma-separated list. `outcome` (a Fate) finds one failed attempt of each fire that ended so;
    `error` is a part of the error of a failed attempt. `job_type` and `tag` are those that the schedule has now:
    what is left of a deleted one does not match.
    """

    schedule_id: UUID | str | None = None
    domain: str | None = None
    status: str | None = None
    cause: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    outcome: str | None = None
    error: str | None = None
    job_type: str | None = None
    tag: str | None = None
    execution_ids: Collection[UUID] | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """Raises InvalidInput for a word or an instant that no row can have."""
        found: list[ColumnElement[bool]] = []
        if self.schedule_id is not None:
            found.append(JobExecution.schedule_id == parse_uuid(self.schedule_id, "schedule_id"))
        if self.domain is not None:
            found.append(same_domain(self.domain))
        if self.status is not None:
            words = [_one_of("status", word, ExecutionStatus) for word in self.status.split(",")]
            found.append(JobExecution.status == words[0] if len(words) == 1 else JobExecution.status.in_(words))
        if self.cause is not None:
            found.append(JobExecution.cause == _one_of("cause", self.cause, Cause))
        if self.since is not None:
            found.append(JobExecution.created_at >= aware("since", self.since))
        if self.until is not None:
            found.append(JobExecution.created_at < aware("until", self.until))
        if self.execution_ids is not None:
            found.append(JobExecution.execution_id.in_(self.execution_ids))
        return [*found, *self._of_failures(), *self._of_schedules()]

    def _of_schedules(self) -> list[ColumnElement[bool]]:
        wanted: list[ColumnElement[bool]] = []
        if self.job_type is not None:
            wanted.append(Schedule.job_type == plain_text("job_type", self.job_type))
        if self.tag is not None:
            wanted.append(Schedule.tags.contains([plain_text("tag", self.tag)]))
        return [JobExecution.schedule_id.in_(select(Schedule.schedule_id).where(*wanted))] if wanted else []

    def _of_failures(self) -> list[ColumnElement[bool]]:
        if self.outcome is None and not self.error:
            return []
        found: list[ColumnElement[bool]] = [JobExecution.status.in_(FAILED)]  # of which there is an index
        if self.outcome is not None:
            found.append(literal_column(has_fate(Fate(_one_of("outcome", self.outcome, Fate))), Boolean))
        if self.error:
            plain_text("error", self.error)
            found.append(JobExecution.error_message.icontains(self.error, autoescape=True))
        return found

    @property
    def order(self) -> Keyset:
        if self.schedule_id is not None:
            return BY_FIRE
        return BY_CREATION if self.domain is None else by_domain(self.domain)


BY_CREATION = Keyset(name="created", columns=(JobExecution.created_at, JobExecution.execution_id))
BY_FIRE = Keyset(name="fire", columns=(JobExecution.scheduled_for, JobExecution.attempt))

_RECORD_COLUMNS = [
    getattr(JobExecution, item.name).label(item.name) for item in fields(ExecutionRecord) if item.name != "note"
]


def select_records() -> Select[Any]:
    return select(*_RECORD_COLUMNS)


def same_domain(domain: str) -> ColumnElement[bool]:
    first, *others = _spellings(domain)
    return JobExecution.domain.in_([first, *others]) if others else JobExecution.domain.between(first, first)


def by_domain(domain: str) -> Keyset:
    """Newest first, for what `same_domain` finds."""
    first, *others = _spellings(domain)
    return BY_CREATION if others else replace(BY_CREATION, same=((JobExecution.domain, first),))


def _spellings(domain: str) -> set[str]:
    """Domains are stored in lower case, the readable names of other jobs as they were written."""
    plain_text("domain", domain)
    return {domain.strip(), domain.strip().lower()}


def to_execution(row: Row[Any]) -> ExecutionRecord:
    return ExecutionRecord(**row._mapping)


def _one_of(field: str, value: str, words: type[StrEnum]) -> str:
    if value not in list(words):
        raise InvalidInput(Problem(field, f"must be one of {', '.join(words)}, got {value!r}"))
    return value
