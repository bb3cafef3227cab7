"""Compares expected fires with recorded rows and closes every gap.

The first scan of a process continues where the last scan of any replica ended, and applies the catch-up policy to fires
that became due while no replica ran. Other late fires go to the dispatcher, whose claim decides: run, or `missed`. A
scan consists of many short steps, one per tick. Each has its own transaction, and between them the loop can stop and
reports progress. Start reading at `GapScanner.tick`.
"""

import json
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from database.clock import DatabaseClock
from database.connection import DatabaseConnection
from database.models import Catchup
from services.engine.gap_scan.plan import Gap, Planned, catch_up, record, try_again
from services.engine.gap_scan.scanner_sql import (
    ATTENDED_SINCE,
    FORMER,
    INSERT,
    LOCK,
    MISSING,
    POLICIES,
    WATCHED,
    WATCHED_UNTIL,
)
from services.engine.gap_scan.walk import Block, Part, Piece, Watched, Window, expected_fires, parts_of
from services.engine.loaded import Loaded
from services.engine.loops import Loop
from services.errors import InvalidSchedule
from services.ledger.fires import Fire, Policy
from services.ledger.verdicts import Tolerances
from services.schedules.changes import LONGEST_COMMIT
from services.telemetry import metrics
from services.triggers import Trigger, spread_offset, trigger_of

logger = logging.getLogger(__name__)

ROWS_PER_INSERT = 5000
FORMERS_PER_BLOCK = 1000
SECOND = timedelta(seconds=1)
NOT_YET_SECONDS = 0.5
AT_ONCE_SECONDS = 0.0
EVERY_LOAD_IS_OLD = sys.maxsize
ALWAYS = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class _Scan:
    """One scan over all schedules, with its progress."""

    window: Window
    attended_since: datetime | None  # what came due later was somebody's to run; None: nobody was there
    looked_at: datetime  # when it began, by Postgres' clock
    loads: int  # that it has seen
    blocks: Iterator[Block]
    block: Block | None = None
    ended: deque[Row[Any]] = field(default_factory=deque)  # definitions, read from the log and not looked at yet
    formers: dict[UUID, Row[Any]] = field(default_factory=dict)  # of the block, if it is one of ended definitions
    last_change: int = 0
    gaps: dict[UUID, Gap] = field(default_factory=dict)  # of the block
    behind: dict[UUID, datetime] = field(default_factory=dict)  # what the next scan has to look at again
    handed_over: int = 0
    caught_up: int = 0
    missed: int = 0

    def is_downtime(self, gap: Gap) -> bool:
        return self.attended_since is None or gap.first + gap.watched.spread <= self.attended_since

    def note_behind(self, schedule_ids: Iterable[UUID]) -> None:
        for schedule_id in schedule_ids:
            first = self.gaps[schedule_id].first
            self.behind[schedule_id] = min(first - SECOND, self.behind.get(schedule_id, first))


class GapScanner:
    def __init__(
        self,
        db: DatabaseConnection,
        clock: DatabaseClock,
        policy: Policy,
        limits: Tolerances,
        *,
        interval_seconds: float = 30.0,
        heartbeat_timeout_seconds: float,
        loaded: Callable[[], tuple[int, dict[UUID, Loaded]]],
        hand_over: Callable[[Sequence[Fire]], None],
        look_for_pending: Callable[[], None],
        may_scan: Callable[[], bool],
    ) -> None:
        self._db, self._clock, self._policy, self._limits = db, clock, policy, limits
        self._interval, self._heartbeat_timeout = interval_seconds, heartbeat_timeout_seconds
        self._loaded, self._hand_over, self._look_for_pending = loaded, hand_over, look_for_pending
        self._may_scan = may_scan
        self._scan: _Scan | None = None
        self._done: _Scan | None = None

    @cached_property
    def loop(self) -> Loop:
        return Loop("gap-scan", self.tick, self._interval)

    @property
    def is_up_to_date(self) -> bool:
        """Has a first scan accounted for what came due before this process?"""
        return self._done is not None

    def tick(self) -> float | None:
        """One step; if it fails, the same one again."""
        if not self._may_scan():
            return NOT_YET_SECONDS
        scan = self._scan = self._scan or self._begin()
        block = scan.block = scan.block or next(scan.blocks, None) or self._former_block(scan)
        if block is None:
            is_first = self._done is None
            self._complete(scan)
            return self._limits.settle.total_seconds() if is_first else None  # what came due around our start
        if piece := block.piece():
            self._compare(scan, block, piece)
        else:
            self._close(scan)
        return AT_ONCE_SECONDS

    # --- what is looked at ---

    def _begin(self) -> _Scan:
        attended_since, looked_at = self._attended_since()
        until = self._now(looked_at) - self._limits.settle
        oldest = until - self._limits.history
        if self._done is None:
            window = Window(max(self._go_on_from(until), oldest), until, oldest, EVERY_LOAD_IS_OLD)
        else:
            attended_since = ALWAYS  # by ourselves
            since = max(self._settled(self._done), oldest)
            window = Window(since, until, oldest, self._done.loads, self._done.behind)
        loads, loaded = self._loaded()
        return _Scan(window, attended_since, looked_at, loads, expected_fires(loaded, window))

    def _now(self, looked_at: datetime) -> datetime:
        """By the slower clock: what is still to come must never be recorded as missed, which fences it."""
        return min(self._clock.now(), looked_at)

    def _attended_since(self) -> tuple[datetime | None, datetime]:
        with self._db.transaction() as connection:
            found = connection.exec_driver_sql(ATTENDED_SINCE, {"timeout": self._heartbeat_timeout}).one()
            return found.since, found.now

    def _go_on_from(self, until: datetime) -> datetime:
        """Where the last scan of anybody ended, less what may have been committed late; else as far as we may run."""
        with self._db.transaction() as connection:
            watched_until: datetime | None = connection.exec_driver_sql(WATCHED_UNTIL).scalar_one_or_none()
        if watched_until is None:
            return until - self._limits.horizon
        return min(watched_until, until) - LONGEST_COMMIT

    def _settled(self, scan: _Scan) -> datetime:
        """Where the next scan begins, with a margin for late ones."""
        return scan.window.until - self._limits.settle

    def _former_block(self, scan: _Scan) -> Block | None:
        """Definitions that have ended since: what they owed up to then."""
        if not scan.ended:
            scan.ended.extend(self._ended(scan))
        # One of each schedule: a gap is of one stretch, and a summary must not speak for what lies between two.
        while scan.ended and scan.ended[0].schedule_id not in scan.formers:
            row = scan.ended.popleft()
            scan.formers[row.schedule_id], scan.last_change = row, row.change_id
        return Block(list(_former_parts(scan.formers.values(), scan.window))) if scan.formers else None

    def _ended(self, scan: _Scan) -> Sequence[Row[Any]]:
        since = min([scan.window.since, *scan.window.behind.values()])
        values = {"since": since, "after": scan.last_change, "limit": FORMERS_PER_BLOCK}
        with self._db.transaction() as connection:
            return connection.exec_driver_sql(FORMER, values).all()

    # --- what is missing ---

    def _compare(self, scan: _Scan, block: Block, piece: Piece) -> None:
        with self._db.transaction() as connection:
            rows = connection.exec_driver_sql(MISSING, piece.as_values()).all()
        watched = block.watched() if rows else {}
        for schedule_id, at in rows:
            if gap := scan.gaps.get(schedule_id):
                gap.add(at)
            else:
                scan.gaps[schedule_id] = Gap(watched[schedule_id], at, self._limits.held)
        block.advance(piece)

    # --- what becomes of it ---

    def _close(self, scan: _Scan) -> None:
        if scan.gaps and scan.formers:
            self._write(scan, {key: (scan.formers[key], record(gap, self._limits)) for key, gap in scan.gaps.items()})
        elif scan.gaps:
            self._settle(scan)
        scan.block, scan.gaps, scan.formers = None, {}, {}

    def _settle(self, scan: _Scan) -> None:
        planned, late = {}, []
        for gap, row in self._unchanged(scan.gaps):
            fires, rows = self._plan(scan, gap, row)
            planned[row.schedule_id] = row, rows
            late += fires
        self._write(scan, planned)
        self._hand_over(late)
        self._look_for_pending()
        scan.handed_over += len(late)
        scan.note_behind(fire.schedule_id for fire in late)  # they have no row yet

    def _plan(self, scan: _Scan, gap: Gap, row: Row[Any]) -> tuple[list[Fire], list[Planned]]:
        if not scan.is_downtime(gap):
            return try_again(gap, self._limits, scan.window.until)
        grace = timedelta(seconds=row.misfire_grace_seconds or self._policy.misfire_grace_seconds)
        rule = Catchup(row.catchup or self._policy.catchup)
        return [], catch_up(gap, rule, grace, self._limits, scan.window.until)

    def _unchanged(self, gaps: Mapping[UUID, Gap]) -> list[tuple[Gap, Row[Any]]]:
        """Those whose schedule is as it was when the scan began; of the others the former definition owes the fires."""
        with self._db.transaction() as connection:
            rows = connection.exec_driver_sql(POLICIES, {"ids": list(gaps)}).all()
        found = [(gaps[row.schedule_id], row) for row in rows]
        return [(gap, row) for gap, row in found if gap.watched.revision == row.revision]

    def _write(self, scan: _Scan, planned: Mapping[UUID, tuple[Row[Any], list[Planned]]]) -> None:
        """What could not be written stays a gap."""
        rows = [
            {**_identity(row, scan.gaps[schedule_id]), **asdict(item)}
            for schedule_id, (row, items) in sorted(planned.items())
            for item in items
        ]
        written = self._insert(rows, scan.looked_at)
        for schedule_id, (_, items) in planned.items():
            done = [item for item in items if (schedule_id, item.scheduled_for) in written]
            scan.caught_up += sum(item.fires for item in done if item.status == "pending")
            scan.missed += sum(item.fires for item in done if item.status == "missed")
            if len(done) < len(items):
                scan.note_behind([schedule_id])
        scan.note_behind(scan.gaps.keys() - planned.keys())

    def _insert(self, rows: Sequence[dict[str, Any]], looked_at: datetime) -> set[tuple[UUID, datetime]]:
        written: set[tuple[UUID, datetime]] = set()
        for start in range(0, len(rows), ROWS_PER_INSERT):
            some = rows[start : start + ROWS_PER_INSERT]
            values = {"rows": json.dumps(some, default=str), "looked_at": looked_at}
            with self._db.transaction() as connection:
                locked = connection.exec_driver_sql(LOCK, {"ids": list({row["schedule_id"] for row in some})})
                held = list(locked.scalars())
                inserted = connection.exec_driver_sql(INSERT, {**values, "held": held}).all()
            written |= {(row.schedule_id, row.scheduled_for) for row in inserted}
        return written

    def _complete(self, scan: _Scan) -> None:
        accounted_until = min([self._settled(scan), *scan.behind.values()])
        self._db.run_alone(WATCHED, {"since": scan.window.since, "until": accounted_until})
        metrics.gaps_found(handed_over=scan.handed_over, caught_up=scan.caught_up, missed=scan.missed)
        if scan.handed_over or scan.caught_up or scan.missed:
            logger.warning(
                "fires without a row: %d dispatched again, %d caught up, %d recorded as missed",
                scan.handed_over,
                scan.caught_up,
                scan.missed,
                extra={"event": "gap" if self._done else "catchup"},
            )
        self._scan, self._done = None, scan
        self._look_for_pending()


def _identity(row: Row[Any], gap: Gap) -> dict[str, Any]:
    facts = {"job_id": row.job_id, "domain": row.domain, "domain_config_id": row.domain_config_id}
    return {"schedule_id": row.schedule_id, "revision": gap.watched.revision, **facts}


def _former_parts(rows: Iterable[Row[Any]], window: Window) -> Iterator[Part]:
    groups: dict[int, tuple[Trigger, list[Watched]]] = {}
    for row in rows:
        try:
            trigger = trigger_of(row)
        except InvalidSchedule:
            continue  # it was parked and never fired
        groups.setdefault(id(trigger), (trigger, []))[1].append(_former(row, window))
    for trigger, watched in groups.values():
        yield from parts_of(trigger, watched)


def _former(row: Row[Any], window: Window) -> Watched:
    """The stretch of an ended definition; what was still waiting for its spread when it ended never came due."""
    spread = spread_offset(row.schedule_id, row.spread_seconds)
    after = min(window.since - spread, window.behind.get(row.schedule_id, window.until))
    until = min(window.until, row.ended_at) - spread
    return Watched(row.schedule_id, max(after, row.effective_from), until, spread)
