"""Access to `job_executions` for all programs but the engine: query, count, run now, cancel, record, clean up.

The engine claims and finishes its rows in ledger/claims.py; this module never writes to a row that a replica owns,
except for a cancellation request.
"""

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Select

from config import get_settings
from database.connection import DatabaseConnection, get_db_connection
from database.models import ExecutionStatus, JobExecution
from enhanced_scheduler.texts import MAX_WORD, storable, storable_json
from services.errors import InvalidInput, Problem, ScheduleNotFound
from services.ledger import history_sql as sql
from services.ledger.listing import (
    BY_CREATION,
    BY_FIRE,
    OVERLAP,
    OVERLAP_WITH_THE_GONE,
    ExecutionFilter,
    ExecutionPage,
    ExecutionRecord,
    by_domain,
    same_domain,
    select_records,
    to_execution,
)
from services.ledger.log_following import LogFollower
from services.ledger.logs import BEGINNING, ExecutionLogs, LogPosition
from services.ledger.retention import BATCH, HistoryRetention, Progress
from services.ledger.tallies import ExecutionTallies
from services.schedules.spec import config_id, parse_uuid
from services.wording.short_ids import ID_PREFIX, ids_that_begin

DAY_SECONDS = 86_400
POLL_SECONDS = 0.25

__all__ = [
    "ExecutionFilter",
    "ExecutionPage",
    "ExecutionRecord",
    "JobHistory",
    "Retry",
    "RetryOutcome",
    "get_job_history",
]


class RetryOutcome(StrEnum):
    REQUESTED = "requested"
    UNKNOWN = "unknown"  # there is no such execution, or it belongs to no schedule
    NO_SCHEDULE = "no_schedule"  # deleted meanwhile
    NOT_ENDED = "not_ended"  # this attempt, or a later one, waits or runs
    SUCCEEDED = "succeeded"


@dataclass(frozen=True, slots=True)
class Retry:
    """The result of a retry request."""

    outcome: RetryOutcome
    execution_id: UUID | None = None  # of the attempt that waits now


class JobHistory:
    """Safe to share between threads."""

    def __init__(self, db: DatabaseConnection, *, fence_horizon_seconds: int = DAY_SECONDS) -> None:
        self._db = db
        self._retention = HistoryRetention(db, fence_horizon_seconds)
        self._tallies = ExecutionTallies(db)
        self.logs = ExecutionLogs(db)

    # --- look ---

    def get_recent_executions(self, hours: float = 24, limit: int = 1000) -> list[ExecutionRecord]:
        """Newest first."""
        since = datetime.now(UTC) - timedelta(hours=hours)
        return self._read(BY_CREATION.apply(select_records().where(JobExecution.created_at >= since)).limit(limit))

    def get_executions_by_schedule(self, schedule_id: UUID | str, limit: int = 100) -> list[ExecutionRecord]:
        """Latest fire first; also of a deleted schedule."""
        found = JobExecution.schedule_id == parse_uuid(schedule_id, "schedule_id")
        return self._read(BY_FIRE.apply(select_records().where(found)).limit(limit))

    def get_executions_by_domain(self, domain: str, limit: int = 100) -> list[ExecutionRecord]:
        return self._read(by_domain(domain).apply(select_records().where(same_domain(domain))).limit(limit))

    def get_execution(self, execution_id: UUID | str) -> ExecutionRecord | None:
        found = self.get_executions([parse_uuid(execution_id, "execution_id")])
        return found[0] if found else None

    def get_executions(self, execution_ids: Collection[UUID]) -> list[ExecutionRecord]:
        return self._read(select_records().where(JobExecution.execution_id.in_(execution_ids)))

    def find_execution(self, reference: UUID | str) -> ExecutionRecord:
        """The one execution that a person means by an id or its beginning."""
        ids = ids_that_begin(str(reference))
        if ids is None:
            raise InvalidInput(
                Problem("execution", f"must be an id, or at least {ID_PREFIX} characters of it, got {str(reference)!r}")
            )
        found = self._read(select_records().where(JobExecution.execution_id.between(*ids)).limit(2))
        if len(found) != 1:
            many = "more than one execution begins like" if found else "there is no execution"
            raise InvalidInput(Problem("execution", f"{many} {reference}"))
        return found[0]

    def get_running(self) -> list[ExecutionRecord]:
        """What a replica has claimed or runs right now; newest first."""
        live = JobExecution.status.in_((ExecutionStatus.CLAIMED, ExecutionStatus.RUNNING))
        return self._read(BY_CREATION.apply(select_records().where(live)))

    def list_executions(
        self, where: ExecutionFilter = ExecutionFilter(), limit: int = 50, cursor: str | None = None
    ) -> ExecutionPage:
        """One page, newest first; `next_cursor` leads to the next one and is None on the last."""
        order = where.order
        records = self._read(order.page(select_records().where(*where.conditions()), limit, cursor))
        return order.cut(records, limit)

    def get_execution_statistics(self, days: int = 7) -> dict[str, int | float]:
        """Counts, durations and lateness (seconds) of the last days; 0.0 where there is nothing to measure.

        `total_executions` is `successful` + `failed`; what was abandoned or timed out has failed. Percentiles over more
        than the last two hours are off by 2 % at most (ledger/tallies.py), everything else is exact.
        """
        if not 1 <= days <= 36_500:
            raise InvalidInput(Problem("days", f"must be between 1 and 36500, got {days}"))
        self._tallies.count_hours()
        if (found := self._tallies.read(days)) is not None:
            return found
        with self._db.transaction() as connection:
            return dict(connection.exec_driver_sql(sql.STATISTICS, {"days": days}).one()._mapping)

    # --- ask for a run, or for its end ---

    def request_run(self, schedule_id: UUID | str, actor: str) -> UUID:
        """Let any replica run this schedule now, also a disabled one; its next fire is not consumed."""
        found = parse_uuid(schedule_id, "schedule_id")
        with self._durable() as connection:
            while True:
                values = {"schedule_id": found, "actor": storable(actor, MAX_WORD)}
                row = connection.exec_driver_sql(sql.REQUEST_RUN, values).first()
                if row is None:
                    raise ScheduleNotFound(found)
                if row.execution_id is not None:  # None: another request came in the same microsecond
                    connection.exec_driver_sql(sql.NOTIFY_PENDING)
                    execution_id: UUID = row.execution_id
                    return execution_id

    def request_cancel(self, execution_id: UUID | str, actor: str | None = None) -> bool:
        """End what waits at once, ask the owner of what runs, retries included; False when there is nothing to end."""
        asker = None if actor is None else storable(actor, MAX_WORD)
        values = {"execution_id": parse_uuid(execution_id, "execution_id"), "actor": asker}
        with self._durable() as connection:
            return connection.exec_driver_sql(sql.REQUEST_CANCEL, values).rowcount > 0

    def request_retry(self, execution_id: UUID | str, actor: str) -> Retry:
        """Let any replica run the fire of this execution once more, unless that went well or is still going on."""
        values = {"execution_id": parse_uuid(execution_id, "execution_id"), "actor": storable(actor, MAX_WORD)}
        with self._durable() as connection:
            row = connection.exec_driver_sql(sql.REQUEST_RETRY, values).first()
            if row is None:
                return Retry(RetryOutcome.UNKNOWN)
            if row.execution_id is not None:
                connection.exec_driver_sql(sql.NOTIFY_PENDING)
                return Retry(RetryOutcome.REQUESTED, row.execution_id)
        if not row.has_schedule:
            return Retry(RetryOutcome.NO_SCHEDULE)
        return Retry(RetryOutcome.SUCCEEDED if row.status == ExecutionStatus.SUCCESS else RetryOutcome.NOT_ENDED)

    def get_attempts(self, record: ExecutionRecord) -> list[ExecutionRecord]:
        """All attempts at the fire of this execution, first to last."""
        if record.schedule_id is None:
            return [record]
        return self._read(select_records().where(*_same_fire(record)).order_by(JobExecution.attempt))

    def wait_for(self, execution_id: UUID | str, timeout_seconds: float) -> ExecutionRecord | None:
        """The execution, or the last of its retries, as soon as it has ended; as it is when the time is over."""
        attempts: list[ExecutionRecord] = []
        for attempts in self.follow(execution_id, timeout_seconds):  # noqa: B007 - the last look counts
            pass
        return attempts[-1] if attempts else None

    def follow(self, execution_id: UUID | str, timeout_seconds: float) -> Iterator[list[ExecutionRecord]]:
        """All attempts so far, again and again, until the last one has ended or the time is over.

        A retry is written together with the end of the attempt before it, so no end is seen too early.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            record = self.get_execution(execution_id)
            attempts = [] if record is None else self.get_attempts(record)
            yield attempts
            left = deadline - time.monotonic()
            if not attempts or attempts[-1].is_terminal or left <= 0:
                return
            time.sleep(min(POLL_SECONDS, left))

    def follow_log(self, execution_id: UUID | str, after: LogPosition = BEGINNING) -> LogFollower:
        """For a reader that looks again and again, until `is_over`."""
        return LogFollower(self.logs, self.get_execution, parse_uuid(execution_id, "execution_id"), after)

    # --- programs that record work of their own ---

    def start_execution(
        self,
        schedule_id: UUID | str | None,
        job_id: str | None = None,
        domain: str | None = None,
        domain_config_id: UUID | str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> UUID:
        """Record that the caller runs something now. What is not given is taken from the schedule.

        No replica watches over it: who started it must complete it. Until then it counts as a running instance of its
        schedule.
        """
        values = {
            "schedule_id": None if schedule_id is None else parse_uuid(schedule_id, "schedule_id"),
            "job_id": None if job_id is None else storable(job_id, MAX_WORD),
            "domain": None if domain is None else storable(domain.strip(), MAX_WORD),
            "domain_config_id": None if domain_config_id is None else config_id(domain_config_id),
            "metadata": _json("metadata", metadata),
        }
        with self._durable() as connection:
            started: UUID | None = connection.exec_driver_sql(sql.START_OWN, values).scalar_one_or_none()
        if started is not None:
            return started
        if schedule_id is None:
            raise InvalidInput(Problem("domain", "is required without a schedule"))
        raise ScheduleNotFound(schedule_id)

    def complete_execution(
        self,
        execution_id: UUID | str,
        status: str = ExecutionStatus.SUCCESS,
        error_message: str | None = None,
        error_details: Mapping[str, Any] | None = None,
        scan_id: UUID | str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> bool:
        """Record how work begun with `start_execution` ended; False when it has ended already or is a replica's."""
        ends = [str(word) for word in ExecutionStatus if word.is_terminal]
        if status not in ends:
            raise InvalidInput(Problem("status", f"must be one of {', '.join(ends)}, got {status!r}"))
        values = {
            "execution_id": parse_uuid(execution_id, "execution_id"),
            "status": str(status),
            "error_message": None if error_message is None else storable(error_message),
            "error_details": _json("error_details", error_details),
            "scan_id": None if scan_id is None else parse_uuid(scan_id, "scan_id"),
            "metadata": _json("metadata", metadata),
        }
        with self._durable() as connection:
            return connection.exec_driver_sql(sql.COMPLETE_OWN, values).rowcount > 0

    # --- retention ---

    def cleanup_old_executions(
        self, days: int = 90, batch_size: int = BATCH, on_progress: Progress | None = None
    ) -> int:
        """Delete what ended and is older, and old logs; returns how many. `on_progress` hears the number so far."""
        self._retention.delete_logs(days)
        return self._retention.delete_executions(days, batch_size, on_progress)

    def cleanup_old_changes(self, days: int = 90, batch_size: int = BATCH, on_progress: Progress | None = None) -> int:
        """The same for `schedule_changes`, except what the audit of the rest needs."""
        return self._retention.delete_changes(days, batch_size, on_progress)

    def count_old_executions(self, days: int = 90) -> int:
        return self._retention.count_executions(days)

    def count_old_changes(self, days: int = 90) -> int:
        return self._retention.count_changes(days)

    # --- inside ---

    def _read(self, query: Select[Any]) -> list[ExecutionRecord]:
        with self._db.transaction() as connection:
            records = [to_execution(row) for row in connection.execute(query)]
            return _with_notes(connection, records)

    @contextmanager
    def _durable(self) -> Iterator[Connection]:
        """A transaction that is on disk when it is acknowledged, whatever the server's own setting says."""
        with self._db.transaction() as connection:
            connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
            yield connection


def _with_notes(connection: Connection, records: list[ExecutionRecord]) -> list[ExecutionRecord]:
    """An overlap is written while its replica may still live: that it was gone is known only when it is read."""
    decided = {each.execution_id: each.completed_at or each.created_at for each in records if each.reason == OVERLAP}
    if not decided:
        return records
    values = {"ids": list(decided), "first": min(decided.values()), "last": max(decided.values())}
    behind = {row.execution_id for row in connection.exec_driver_sql(sql.BEHIND_THE_GONE, values)}
    return [replace(each, note=OVERLAP_WITH_THE_GONE) if each.execution_id in behind else each for each in records]


def _same_fire(record: ExecutionRecord) -> tuple[ColumnElement[bool], ...]:
    return JobExecution.schedule_id == record.schedule_id, JobExecution.scheduled_for == record.scheduled_for


def _json(field: str, value: Mapping[str, Any] | None) -> str | None:
    try:
        return None if value is None else json.dumps(storable_json(value))
    except ValueError as error:
        raise InvalidInput(Problem(field, f"cannot be stored as JSON: {error}")) from None


@cache
def get_job_history() -> JobHistory:
    """The job history of this process."""
    return JobHistory(get_db_connection(), fence_horizon_seconds=get_settings().fence_horizon_seconds)
