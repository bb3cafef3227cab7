"""The proof of G3: recompute every due fire from the schedules' own history and compare it with the rows.

Schedules are judged in ranges of their ids, a batch after the other, each in a short snapshot of its own: a long one
would keep dead rows from being cleaned up. Every schedule is in one range, and a later snapshot sees more rows, never
fewer, so each fire of the window is judged once. Within a batch the periods of timing and the rows are read side by
side, in constant memory. Start reading at `audit`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row

from config import Settings
from database.connection import DatabaseConnection
from services.errors import InvalidInput, InvalidSchedule, Problem
from services.insight.audit_sql import DUPLICATES, RANGE, ROWS, SEGMENTS, STRANGERS, UNFINISHED, WATCHED
from services.ledger.verdicts import CHANGE_EDGE, EARLY, Tolerances
from services.schedules.buckets import BUCKETS
from services.triggers import spread_offset, trigger_of

SHOWN = 100  # findings of each kind that are listed; all are counted
FETCHED = 2000
BATCH_SCHEDULES, BATCH_FIRES = 500, 2000  # a batch ends with the schedule that reaches one of them
SLICE = timedelta(minutes=10)
LEAST, MOST = UUID(int=0), UUID(int=2**128 - 1)

Progress = Callable[[int], None]
Stretch = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Finding:
    """One fire that violates a rule."""

    schedule_id: UUID
    schedule: str  # its name or domain
    scheduled_for: datetime
    status: str | None = None


@dataclass(slots=True)
class Findings:
    """Counts all findings and lists the first; empty means that nothing is wrong."""

    count: int = 0
    first: list[Finding] = field(default_factory=list)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.first)

    def add(self, finding: Finding) -> None:
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append(finding)


@dataclass(slots=True)
class AuditReport:
    """The fires due in (since, until] and their outcome."""

    since: datetime
    until: datetime
    schedules: int = 0
    expected: int = 0
    accounted: int = 0
    duplicates: int = 0
    on_the_edge: int = 0  # too recent, or too close to a change, to be judged
    in_progress: int = 0
    watched: dict[int | None, Stretch] = field(default_factory=dict)  # by bucket: gap scans have verified every fire
    unexplained: Findings = field(default_factory=Findings)  # verified, due, but without a row
    unwatched: Findings = field(default_factory=Findings)  # without a row, and no gap scan has checked yet
    extra: Findings = field(default_factory=Findings)  # a row for a fire that was never due
    contradicted: Findings = field(default_factory=Findings)  # recorded as missed by a summary, but run afterwards
    unfinished: Findings = field(default_factory=Findings)  # should have ended by now

    @property
    def is_clean(self) -> bool:
        wrong = self.unexplained, self.unwatched, self.extra, self.contradicted, self.unfinished
        return not (self.duplicates or any(wrong))

    def is_watched(self, bucket: int, due_at: datetime) -> bool:
        """Whether a gap scan of the bucket, or of all, has checked that moment."""
        stretches = (self.watched.get(bucket), self.watched.get(None))
        return any(since < due_at <= until for since, until in filter(None, stretches))

    @property
    def watched_by_all(self) -> Stretch | None:
        """What the gap scans of every bucket have checked."""
        if None in self.watched:
            return self.watched[None]
        if len(self.watched) < BUCKETS:
            return None
        return max(since for since, _ in self.watched.values()), min(until for _, until in self.watched.values())


@dataclass(frozen=True, slots=True)
class _Window:
    since: datetime
    until: datetime
    settled_at: datetime  # fires due later may still be claimed
    vouched_at: datetime  # fires due later may still be found by a gap scan, unless one has checked already

    def fires(self, segment: Row[Any]) -> Iterator[tuple[datetime, datetime, bool]]:
        """The fires of one period of timing, each with its due time and whether it must have a row by now."""
        if not segment.enabled:
            return
        try:
            trigger = trigger_of(segment)
        except InvalidSchedule:
            return  # parked: it never fires
        wait = spread_offset(segment.schedule_id, segment.spread_seconds)
        until = min(self.until, segment.ended_at or self.until)
        certain_until = min(self.settled_at, segment.ended_at - CHANGE_EDGE if segment.ended_at else self.settled_at)
        for at in trigger.between(max(self.since, segment.effective_from), until):
            yield at, at + wait, at + wait <= certain_until


def audit(
    db: DatabaseConnection,
    since: datetime,
    until: datetime | None = None,
    on_progress: Progress | None = None,
    *,
    settle_seconds: float = 10,
    vouch_seconds: float | None = None,
    patience_seconds: float = 60,
    misfire_grace_seconds: int = 300,
    timeout_seconds: int = 3600,
    max_instances: int = 1,
    horizon_seconds: float = 86_400,
) -> AuditReport:
    """Judge every fire in (since, until]; `on_progress` receives the number of schedules so far, between two batches.

    `audit_by` derives the tolerances from the settings: how long a fire may lack a row until a gap scan has verified
    it, and how long an execution may stay open. Grace, timeout and instances are the defaults of a schedule without
    policies. The horizon is the longest wait of a retry or a catch-up run for room. Deleted history cannot be judged:
    `since` must lie within the retention.
    """
    with _snapshot(db) as connection:
        vouch = timedelta(seconds=settle_seconds if vouch_seconds is None else vouch_seconds)
        window = _window(connection, since, until, timedelta(seconds=settle_seconds), vouch)
        report = AuditReport(window.since, window.until)
        report.watched = {row.bucket: (row.since, row.until) for row in connection.exec_driver_sql(WATCHED)}
        limits = {"grace": misfire_grace_seconds, "timeout": timeout_seconds, "patience": patience_seconds}
        limits |= {"max_instances": max_instances, "horizon": horizon_seconds}
        for row in connection.exec_driver_sql(UNFINISHED, limits):
            _note_open(row, report)
    heard = on_progress or (lambda _: None)
    strangers = _strangers(db, window, lambda: heard(0))
    first: UUID | None = LEAST
    while first is not None:
        first = _judge_batch(db, window, first, strangers, report)
        heard(report.schedules)
    return report


def _judge_batch(
    db: DatabaseConnection, window: _Window, first: UUID, strangers: list[UUID], report: AuditReport
) -> UUID | None:
    """Judge the schedules from this id on, as many as fit into one batch; returns the id after them, if any is left."""
    with _snapshot(db) as connection:
        last = _end_of_range(connection, first, strangers)
        values: dict[str, Any] = {"since": window.since, "until": window.until, "first": first, "last": last}
        segments = list(connection.exec_driver_sql(SEGMENTS, values))
        among = strangers[bisect_left(strangers, first) : bisect_right(strangers, last)]
        ids = sorted({*among, *(segment.schedule_id for segment in segments)})
        judged = 0
        with closing(_stream(connection, ROWS, {**values, "ids": ids})) as rows:
            for schedule_id, stretches, found in _side_by_side(segments, rows):
                judged += _judge(window, stretches, found, report)
                if judged >= BATCH_FIRES:
                    last = schedule_id
                    break
        whole = ids[: bisect_right(ids, last)]
        report.duplicates += connection.exec_driver_sql(DUPLICATES, {**values, "ids": whole}).scalar_one()
    return None if last == MOST else UUID(int=last.int + 1)


class _Rows:
    """The rows of one schedule in order of time, each read once."""

    def __init__(
        self, window: _Window, segments: list[Row[Any]], rows: Iterator[Row[Any]], report: AuditReport
    ) -> None:
        self._window, self._rows, self._report = window, rows, report
        self._ends = [segment.ended_at for segment in segments if segment.enabled and segment.ended_at]
        self._next = next(rows, None)
        self.taken = 0
        self._summaries: list[Row[Any]] = []

    def account_for(self, at: datetime) -> bool:
        """Whether this fire has a row or is covered by a summary. Rows before it belong to no fire."""
        has_row = False
        while self._next is not None and self._next.scheduled_for <= at:
            has_row = self._next.scheduled_for == at
            self._take(self._next, is_fire=has_row)
        return has_row or any(summary.covers_until >= at for summary in self._summaries)

    def take_rest(self) -> None:
        while self._next is not None:
            self._take(self._next, is_fire=False)

    def _take(self, row: Row[Any], *, is_fire: bool) -> None:
        self.taken += 1
        finding = Finding(row.schedule_id, row.domain, row.scheduled_for, row.status)
        self._summaries = [summary for summary in self._summaries if summary.covers_until >= row.scheduled_for]
        if row.is_run and any(summary.created_at < row.created_at for summary in self._summaries):
            self._report.contradicted.add(finding)
        if row.covers_until:
            self._summaries.append(row)
        if not (is_fire or row.is_no_fire or row.scheduled_for <= self._window.since or self._is_early(row)):
            self._report.extra.add(finding)
        self._next = next(self._rows, None)

    def _is_early(self, row: Row[Any]) -> bool:
        """Claimed slightly early, as a claim may be, under a definition that ended within that margin."""
        return any(timedelta(0) < row.scheduled_for - ended_at <= EARLY for ended_at in self._ends)


def audit_by(
    settings: Settings,
    db: DatabaseConnection,
    since: datetime,
    until: datetime | None = None,
    on_progress: Progress | None = None,
) -> AuditReport:
    """`audit` with the tolerances of replicas that have these settings."""
    allowed = Tolerances.from_settings(settings)
    return audit(
        db,
        since,
        until,
        on_progress,
        settle_seconds=allowed.settle.total_seconds(),
        vouch_seconds=allowed.vouch.total_seconds(),
        patience_seconds=allowed.unfinished.total_seconds(),
        misfire_grace_seconds=settings.job_misfire_grace_time,
        timeout_seconds=settings.job_timeout_seconds,
        max_instances=settings.job_max_instances,
        horizon_seconds=allowed.horizon.total_seconds(),
    )


def _judge(window: _Window, segments: list[Row[Any]], found: Iterator[Row[Any]], report: AuditReport) -> int:
    """One schedule: walk through its fires and rows together, both in order of time; returns how many there were."""
    report.schedules += bool(segments)
    before = report.expected + report.on_the_edge
    rows = _Rows(window, segments, found, report)
    for segment in segments:
        for at, due_at, is_certain in window.fires(segment):
            is_accounted = rows.account_for(at)
            has_chance = due_at > window.vouched_at and not report.is_watched(segment.bucket, due_at)
            if not is_certain or (has_chance and not is_accounted):
                report.on_the_edge += 1
            else:
                _note_fire(segment, at, due_at, is_accounted, report)
    rows.take_rest()
    return report.expected + report.on_the_edge - before + rows.taken


def _note_fire(segment: Row[Any], at: datetime, due_at: datetime, is_accounted: bool, report: AuditReport) -> None:
    report.expected += 1
    if is_accounted:
        report.accounted += 1
    else:
        kind = report.unexplained if report.is_watched(segment.bucket, due_at) else report.unwatched
        kind.add(Finding(segment.schedule_id, segment.name or segment.domain, at))


def _note_open(row: Row[Any], report: AuditReport) -> None:
    if row.overdue:
        report.unfinished.add(Finding(row.schedule_id, row.domain, row.scheduled_for, row.status))
    else:
        report.in_progress += 1


# --- reading ---


@contextmanager
def _snapshot(db: DatabaseConnection) -> Iterator[Connection]:
    """All statements see the same snapshot, without a statement timeout.

    Not by SQLAlchemy's isolation level, whose reset may cost the pool a place (database/connection.py, _autocommit).
    """
    with db.transaction() as connection:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET LOCAL statement_timeout = 0")
        yield connection


def _window(
    connection: Connection, since: datetime, until: datetime | None, settle: timedelta, vouch: timedelta
) -> _Window:
    now: datetime = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
    for name, instant in (("since", since), ("until", until)):
        if instant is not None and instant.tzinfo is None:
            raise InvalidInput(Problem(name, f"needs a UTC offset, as in {instant.isoformat()}+00:00"))
    last = min(until or now, now)
    if since >= last:
        raise InvalidInput(Problem("since", f"must be before {last.isoformat()}, got {since.isoformat()}"))
    return _Window(since, last, now - settle, now - vouch)


def _strangers(db: DatabaseConnection, window: _Window, rest: Callable[[], None]) -> list[UUID]:
    """The ids in the window's rows that belong to no schedule, in order."""
    found: set[UUID] = set()
    begin: datetime | None = window.since - timedelta(minutes=1)
    while begin is not None:
        with _snapshot(db) as connection:
            values = {"begin": begin, "slice": SLICE, "until": window.until}
            begin, strangers = connection.exec_driver_sql(STRANGERS, values).one()
        found.update(strangers)
        rest()
    return sorted(found)


def _end_of_range(connection: Connection, first: UUID, strangers: list[UUID]) -> UUID:
    """The last id of a range with at most as many schedules as a batch may have; open at the end if all are in it."""
    values = {"first": first, "schedules": BATCH_SCHEDULES}
    ids = list(connection.exec_driver_sql(RANGE, values).scalars())
    begin = bisect_left(strangers, first)
    ids = sorted({*ids, *strangers[begin : begin + BATCH_SCHEDULES]})[:BATCH_SCHEDULES]
    return ids[-1] if len(ids) == BATCH_SCHEDULES else MOST


def _stream(connection: Connection, sql: str, values: dict[str, Any]) -> Generator[Row[Any], None, None]:
    """Read from a server-side cursor in chunks."""
    result = connection.execution_options(yield_per=FETCHED).exec_driver_sql(sql, values)
    try:
        yield from result
    finally:
        result.close()


def _side_by_side(
    segments: Iterable[Row[Any]], rows: Iterable[Row[Any]]
) -> Iterator[tuple[UUID, list[Row[Any]], Iterator[Row[Any]]]]:
    """Merges both streams, ordered by schedule: segments with rows of each schedule; either may be missing."""
    by_schedule = attrgetter("schedule_id")
    groups = groupby(rows, by_schedule)
    group = next(groups, None)
    for schedule_id, stretches in groupby(segments, by_schedule):
        while group is not None and group[0] < schedule_id:
            yield group[0], [], group[1]
            group = next(groups, None)
        if group is not None and group[0] == schedule_id:
            yield schedule_id, list(stretches), group[1]
            group = next(groups, None)
        else:
            yield schedule_id, list(stretches), iter(())
    while group is not None:
        yield group[0], [], group[1]
        group = next(groups, None)
