"""Compares expected fires with recorded rows and closes every gap.

A replica scans the buckets in which it tries first, and some that nobody seems to scan. Its first scan of a bucket
continues where the last scan of any replica ended, and applies the catch-up policy to fires that became due while no
replica ran. Other late fires go to the dispatcher, whose claim decides: run, or `missed`. A scan consists of many short
steps, one per tick. Each has its own transaction, and between them the loop can stop and reports progress. Start
reading at `GapScanner.tick`.
"""

import json
import logging
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from database.clock import DatabaseClock
from database.connection import LOCK_TIMEOUT_SECONDS, DatabaseConnection
from database.models import Catchup
from services.engine.gap_scan.plan import Gap, Planned, catch_up, record, try_again
from services.engine.gap_scan.scanner_sql import (
    ATTENDED_SINCE,
    FORMER,
    INSERT,
    LAGGING,
    LOCK,
    MISSING,
    POLICIES,
    SCHEDULES_OF,
    WATCHED,
    WATCHED_BY_ALL,
    WATCHED_UNTIL,
)
from services.engine.gap_scan.walk import Block, Part, Piece, Watched, Window, expected_fires, parts_of
from services.engine.loaded import Bucket, Loaded
from services.engine.loops import Loop
from services.engine.timer import Entry
from services.errors import InvalidSchedule
from services.ledger.fires import Fire, Policy
from services.ledger.verdicts import Tolerances
from services.schedules.buckets import set_of, to_bytes
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
LAGS = 3  # intervals without a scan, after which a bucket is anybody's
MOST_LAGGING = 8  # of them at once

Known = Mapping[int, Bucket]


@dataclass(frozen=True, slots=True)
class _Done:
    """What the last scan of a bucket left for the next one of this process."""

    until: datetime
    attended_since: datetime
    loads: int
    behind: Mapping[UUID, datetime]


@dataclass(frozen=True, slots=True)
class _Group:
    """Buckets that are scanned together, from the same moment on."""

    buckets: tuple[int, ...]
    since: datetime | None  # None: no scan has ended yet
    done: _Done | None = None  # by the last scan of this process
    new_load: int = EVERY_LOAD_IS_OLD  # timing that came with it or later was not looked at by the last scan
    from_table: bool = False  # not ours


@dataclass(slots=True)
class _Scan:
    """One scan over some buckets, with its progress."""

    group: _Group
    window: Window
    attended_since: datetime | None  # what came due later was a living replica's to run; None: there was none
    looked_at: datetime  # when it began, by Postgres' clock
    snapshot: str  # what Postgres shows to everybody who looks from then on
    loads: int  # that it has seen
    blocks: Iterator[Block]
    block: Block | None = None
    ended: deque[Row[Any]] = field(default_factory=deque)  # definitions, read from the log and not looked at yet
    formers: dict[UUID, Row[Any]] = field(default_factory=dict)  # of the block, if it is one of ended definitions
    last_change: int = 0
    gaps: dict[UUID, Gap] = field(default_factory=dict)  # of the block
    behind: dict[int, dict[UUID, datetime]] = field(default_factory=dict)  # what the next scan has to look at again
    handed_over: int = 0
    caught_up: int = 0
    missed: int = 0

    def is_downtime(self, gap: Gap) -> bool:
        return self.attended_since is None or gap.first + gap.watched.spread <= self.attended_since

    @property
    def attended_until_now(self) -> datetime:
        """The same for the next scan: downtime that could not be recorded yet stays downtime."""
        return self.window.until if self.attended_since is None else self.attended_since

    def note_behind(self, schedule_ids: Iterable[UUID]) -> None:
        for schedule_id in schedule_ids:
            gap = self.gaps[schedule_id]
            behind = self.behind.setdefault(gap.watched.bucket, {})
            behind[schedule_id] = min(gap.first - SECOND, behind.get(schedule_id, gap.first))


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
        first_in: Callable[[], list[int]],
        loaded: Callable[[Collection[int]], tuple[int, Known]],
        hand_over: Callable[[Sequence[Fire]], None],
        look_for_pending: Callable[[], None],
        may_scan: Callable[[], bool],
    ) -> None:
        self._db, self._clock, self._policy, self._limits = db, clock, policy, limits
        self._interval, self._heartbeat_timeout = interval_seconds, heartbeat_timeout_seconds
        self._first_in, self._loaded = first_in, loaded
        self._hand_over, self._look_for_pending = hand_over, look_for_pending
        self._may_scan = may_scan
        self._groups: deque[_Group] | None = None  # of this round, and not begun yet
        self._scan: _Scan | None = None
        self._done: dict[int, _Done] = {}
        self._scanned: dict[int, _Done] = {}  # in this round
        self._is_first = False  # one of the round's buckets was new to us

    @cached_property
    def loop(self) -> Loop:
        return Loop("gap-scan", self.tick, self._interval)

    def tick(self) -> float | None:
        """One step; if it fails, the same one again."""
        if not self._may_scan():
            return NOT_YET_SECONDS
        if self._groups is None:
            self._groups = self._begin_round()
        if self._scan is None and self._groups:
            self._scan = self._begin(self._groups[0])
            self._groups.popleft()
        if self._scan is None:
            return self._end_round()
        self._step(self._scan)
        return AT_ONCE_SECONDS

    def _step(self, scan: _Scan) -> None:
        block = scan.block = scan.block or next(scan.blocks, None) or self._former_block(scan)
        if block is None:
            self._complete(scan)
        elif piece := block.piece():
            self._compare(scan, block, piece)
        else:
            self._close(scan)

    # --- which buckets ---

    def _begin_round(self) -> deque[_Group]:
        mine = self._first_in()
        _, held = self._loaded(mine)
        again: dict[tuple[datetime, datetime, int], list[int]] = {}
        new: dict[int, Bucket] = {}
        for number, bucket in held.items():
            done = self._done.get(number)
            if done is None or bucket.load >= done.loads:  # we did not scan it, or it has been away meanwhile
                new[number] = bucket
            else:
                again.setdefault((done.until, done.attended_since, done.loads), []).append(number)
        self._is_first = bool(new)
        groups = deque(self._go_on(key, numbers) for key, numbers in again.items())
        groups.extend(self._from_watermarks(new))
        groups.extend(self._from_watermarks(dict.fromkeys(self._lagging(mine))))
        return groups

    def _go_on(self, key: tuple[datetime, datetime, int], buckets: list[int]) -> _Group:
        until, attended_since, loads = key
        behind = {key: at for bucket in buckets for key, at in self._done[bucket].behind.items()}
        done = _Done(until, attended_since, loads, behind)
        return _Group(tuple(buckets), until - self._limits.settle, done)

    def _from_watermarks(self, new: Mapping[int, Bucket | None]) -> Iterator[_Group]:
        """Those whose last scans ended at about the same time are scanned together, from the earliest of them on.

        First those that we have been holding since before: of them only the time since then is to be looked at, and
        timing that has come meanwhile. Of the others also the hour in which a transaction may have been open.
        """
        if not new:
            return
        with self._db.transaction() as connection:
            rows = connection.exec_driver_sql(WATCHED_UNTIL, {"buckets": list(new)}).all()
        near = timedelta(seconds=self._interval)
        watched = {row.bucket: row.until for row in rows}
        attended = {number: _is_attended(new[number], until, near) for number, until in watched.items()}
        for is_attended in (True, False):
            some = [number for number in watched if attended[number] is is_attended]
            yield from _neighbours(some, watched, new, near, is_attended=is_attended)

    def _lagging(self, mine: Collection[int]) -> list[int]:
        attended = self._attendance().since
        if attended is None:
            return []
        lag = LAGS * self._interval + self._limits.vouch.total_seconds()
        values = {"attended": attended, "lag": lag, "mine": list(mine), "limit": MOST_LAGGING}
        return sorted(row.bucket for row in self._db.run_alone(LAGGING, values))

    def _end_round(self) -> float | None:
        self._done, self._scanned, self._groups = self._scanned, {}, None
        self._look_for_pending()
        unknown = any(bucket not in self._done for bucket in self._first_in())
        # What came due around our start, and buckets that have come meanwhile, need not wait for the interval.
        return self._limits.settle.total_seconds() if self._is_first or unknown else None

    # --- what is looked at ---

    def _begin(self, group: _Group) -> _Scan:
        attendance = self._attendance()
        attended_since, looked_at = attendance.since, attendance.now
        until = self._now(looked_at) - self._limits.settle
        oldest = until - self._limits.history
        if group.done is None:
            window = Window(max(self._go_on_from(group, until), oldest), until, oldest, group.new_load)
        else:
            attended_since, since = group.done.attended_since, max(group.since or oldest, oldest)
            window = Window(since, until, oldest, group.done.loads, group.done.behind)
        loads, known = (0, self._from_table(group.buckets)) if group.from_table else self._loaded(group.buckets)
        schedules = {key: each for bucket in known.values() for key, each in bucket.schedules.items()}
        group = replace(group, buckets=tuple(known))
        blocks = expected_fires(schedules, window)
        return _Scan(group, window, attended_since, looked_at, attendance.snapshot, loads, blocks)

    def _from_table(self, buckets: Sequence[int]) -> Known:
        """Buckets that we do not hold, as the table has them now."""
        with self._db.transaction() as connection:
            rows = connection.exec_driver_sql(SCHEDULES_OF, {"buckets": list(buckets)}).all()
        found = {number: Bucket(number) for number in buckets}
        for row in rows:
            try:
                trigger = trigger_of(row)
            except InvalidSchedule:
                continue
            spread = spread_offset(row.schedule_id, row.spread_seconds)
            entry = Entry(row.schedule_id, trigger, spread, row.priority, row.effective_from, False, row.bucket)
            found[row.bucket].put(row.schedule_id, Loaded(row.revision, row.effective_from, entry))
        return found

    def _now(self, looked_at: datetime) -> datetime:
        """By the slower clock: what is still to come must never be recorded as missed, which fences it."""
        return min(self._clock.now(), looked_at)

    def _attendance(self) -> Row[Any]:
        with self._db.transaction() as connection:
            return connection.exec_driver_sql(ATTENDED_SINCE, {"timeout": self._heartbeat_timeout}).one()

    def _go_on_from(self, group: _Group, until: datetime) -> datetime:
        """Where the last scan of any replica ended, less a margin for late commits; else as far back as may run."""
        if group.since is None:
            return until - self._limits.horizon
        return min(group.since, until) - (LONGEST_COMMIT if group.new_load == EVERY_LOAD_IS_OLD else timedelta(0))

    def _settled_until(self, scan: _Scan) -> datetime:
        """Where the next scan begins, with a margin for late ones."""
        return scan.window.until - self._limits.settle

    def _former_block(self, scan: _Scan) -> Block | None:
        """Definitions that have ended since: what they owed up to then."""
        if not scan.ended:
            scan.ended.extend(self._ended_definitions(scan))
        # One of each schedule: a gap is of one stretch, and a summary must not speak for what lies between two.
        while scan.ended and scan.ended[0].schedule_id not in scan.formers:
            row = scan.ended.popleft()
            scan.formers[row.schedule_id], scan.last_change = row, row.change_id
        return Block(list(_former_parts(scan.formers.values(), scan.window))) if scan.formers else None

    def _ended_definitions(self, scan: _Scan) -> Sequence[Row[Any]]:
        since = min([scan.window.since, *scan.window.behind.values()])
        mask = to_bytes(set_of(scan.group.buckets))
        values = {"since": since, "after": scan.last_change, "limit": FORMERS_PER_BLOCK, "mask": mask}
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
        for gap, row in self._unchanged_gaps(scan.gaps):
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

    def _unchanged_gaps(self, gaps: Mapping[UUID, Gap]) -> list[tuple[Gap, Row[Any]]]:
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
        written = self._insert(rows, scan)
        for schedule_id, (_, items) in planned.items():
            done = [item for item in items if (schedule_id, item.scheduled_for) in written]
            scan.caught_up += sum(item.fires for item in done if item.status == "pending")
            scan.missed += sum(item.fires for item in done if item.status == "missed")
            if len(done) < len(items):
                scan.note_behind([schedule_id])
        scan.note_behind(scan.gaps.keys() - planned.keys())

    def _insert(self, rows: Sequence[dict[str, Any]], scan: _Scan) -> set[tuple[UUID, datetime]]:
        written: set[tuple[UUID, datetime]] = set()
        for start in range(0, len(rows), ROWS_PER_INSERT):
            some = rows[start : start + ROWS_PER_INSERT]
            looked = {"looked_at": scan.looked_at, "snapshot": scan.snapshot}
            with self._db.transaction() as connection:
                # A deleted schedule cannot be held: two scans that record its fires meet in the unique key.
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
                locked = connection.exec_driver_sql(LOCK, {"ids": list({row["schedule_id"] for row in some})})
                held = list(locked.scalars())
                values = {"rows": json.dumps(some, default=str), "held": held, **looked}
                inserted = connection.exec_driver_sql(INSERT, values).all()
            written |= {(row.schedule_id, row.scheduled_for) for row in inserted}
        return written

    def _complete(self, scan: _Scan) -> None:
        settled, buckets = self._settled_until(scan), scan.group.buckets
        accounted = [min([settled, *scan.behind.get(bucket, {}).values()]) for bucket in buckets]
        self._db.run_alone(WATCHED, {"since": scan.window.since, "buckets": list(buckets), "until": accounted})
        self._db.run_alone(WATCHED_BY_ALL, {})
        metrics.gaps_found(handed_over=scan.handed_over, caught_up=scan.caught_up, missed=scan.missed)
        if scan.handed_over or scan.caught_up or scan.missed:
            logger.warning(
                "fires without a row: %d dispatched again, %d caught up, %d recorded as missed",
                scan.handed_over,
                scan.caught_up,
                scan.missed,
                extra={"event": "gap" if scan.group.done else "catchup"},
            )
        self._scan = None
        if not scan.group.from_table:
            for bucket in buckets:
                self._scanned[bucket] = _Done(
                    scan.window.until, scan.attended_until_now, scan.loads, scan.behind.get(bucket, {})
                )


def _is_attended(bucket: Bucket | None, until: datetime | None, near: timedelta) -> bool:
    """Have we been holding it since before its last scan ended, so that we know all changes that this did not see?"""
    if bucket is None or bucket.loaded_at is None or until is None:
        return False
    return bucket.loaded_at + near < until


def _neighbours(
    buckets: Iterable[int],
    watched: Mapping[int, datetime | None],
    new: Mapping[int, Bucket | None],
    near: timedelta,
    *,
    is_attended: bool,
) -> Iterator[_Group]:
    together: dict[tuple[datetime | None, bool], list[int]] = {}
    since: datetime | None = None
    for number in sorted(buckets, key=lambda number: (str(watched[number] or ""), number)):
        until = watched[number]
        if until is None or since is None or until - since > near:
            since = until
        together.setdefault((since, new[number] is None), []).append(number)
    for (moment, from_table), numbers in together.items():
        loads = [bucket.load + 1 for number in numbers if (bucket := new[number]) is not None]
        new_load = min(loads) if is_attended else EVERY_LOAD_IS_OLD
        yield _Group(tuple(numbers), moment, new_load=new_load, from_table=from_table)


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
        groups.setdefault(id(trigger), (trigger, []))[1].append(_former_stretch(row, window))
    for trigger, watched in groups.values():
        yield from parts_of(trigger, watched)


def _former_stretch(row: Row[Any], window: Window) -> Watched:
    """The stretch of an ended definition; what was still waiting for its spread when it ended never came due."""
    spread = spread_offset(row.schedule_id, row.spread_seconds)
    after = min(window.since - spread, window.behind.get(row.schedule_id, window.until))
    until = min(window.until, row.ended_at) - spread
    return Watched(row.schedule_id, max(after, row.effective_from), until, spread, bucket=row.bucket)
