"""Compares the fires that should have been with the rows that are, and closes every hole.

The first scan of a process looks back as far as history can fence and applies the catch-up rule to what nobody ran
meanwhile. Later ones hand late fires to the dispatcher, whose claim decides: run, or `missed`.
"""

import json
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from database.connection import DatabaseConnection
from database.models import Catchup
from services import metrics
from services.clock import DatabaseClock
from services.errors import InvalidSchedule
from services.fires import Fire, Policy
from services.gap_scan_sql import FORMER, INSERT, INSERT_FORMER, MISSING, POLICIES, SUMMARY
from services.schedule_watcher import Loaded
from services.triggers import Trigger, parse_trigger, spread_offset

logger = logging.getLogger(__name__)

LOCK_KEY = 0x67617073  # "gaps": one scan at a time
FIRES_PER_QUERY = 5000
FIRES_PER_SCHEDULE = 100_000  # a day of one per second; older ones of that kind are beyond any catch-up
SECOND = timedelta(seconds=1)
NOT_YET_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class CatchupLimits:
    horizon: timedelta
    window: timedelta
    max_fires: int
    settle: timedelta  # a fire that is younger still has its ordinary chance


@dataclass(slots=True)
class _Gap:
    """The fires of one schedule that have no row, oldest first."""

    schedule_id: UUID
    revision: int
    missing: list[datetime]


class GapScanner:
    def __init__(
        self,
        db: DatabaseConnection,
        clock: DatabaseClock,
        policy: Policy,
        limits: CatchupLimits,
        *,
        loaded: Callable[[], dict[UUID, Loaded]],
        hand_over: Callable[[Sequence[Fire]], None],
        look_for_pending: Callable[[], None],
        may_scan: Callable[[], bool],
    ) -> None:
        self._db, self._clock, self._policy, self._limits = db, clock, policy, limits
        self._loaded, self._hand_over, self._look_for_pending = loaded, hand_over, look_for_pending
        self._may_scan = may_scan
        self._scanned_until: datetime | None = None

    def tick(self) -> float | None:
        if not self._may_scan():
            return NOT_YET_SECONDS
        until = self._clock.now() - self._limits.settle
        since = self._scanned_until or until - self._limits.horizon
        with self._db.transaction() as connection:
            if not connection.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock({LOCK_KEY})").scalar_one():
                return self._limits.settle.total_seconds()
            gaps = list(self._gaps(connection, since, until))
            if self._scanned_until is None:
                self._catch_up(connection, gaps, until)
                self._record_former(connection, since, until)
        if self._scanned_until is not None:
            self._retry(gaps)
        self._scanned_until = self._settled_until(gaps, until)
        self._look_for_pending()
        return None

    def _settled_until(self, gaps: list[_Gap], until: datetime) -> datetime:
        """Where the next scan begins: before the oldest fire that still has no row, and with a margin for late ones."""
        oldest = min((gap.missing[0] for gap in gaps), default=until)
        if self._scanned_until is None:
            oldest = until  # the first scan has written a row for every gap
        return min(oldest - SECOND, until - self._limits.settle)

    # --- what is missing ---

    def _gaps(self, connection: Connection, since: datetime, until: datetime) -> Iterator[_Gap]:
        expected: dict[UUID, list[datetime]] = {}
        revisions: dict[UUID, int] = {}
        shared: dict[int, list[datetime]] = {}  # most schedules have the same few triggers, and no fire in this window
        count = 0
        for schedule_id, loaded in list(self._loaded().items()):
            if loaded.trigger is None:
                continue
            if loaded.spread or loaded.effective_from > since:
                # A fire counts from when it is due, not from its nominal time.
                first = max(since - loaded.spread, loaded.effective_from)
                kept = _fires(loaded.trigger, first, until - loaded.spread)
            elif id(loaded.trigger) in shared:
                kept = shared[id(loaded.trigger)]
            else:
                kept = shared[id(loaded.trigger)] = _fires(loaded.trigger, since, until)
            if kept:
                expected[schedule_id], revisions[schedule_id] = kept, loaded.revision
                count += len(kept)
            if count >= FIRES_PER_QUERY:
                yield from self._missing(connection, expected, revisions)
                expected, count = {}, 0
        yield from self._missing(connection, expected, revisions)

    def _missing(
        self, connection: Connection, expected: dict[UUID, list[datetime]], revisions: dict[UUID, int]
    ) -> Iterator[_Gap]:
        if not expected:
            return
        pairs = [(schedule_id, at) for schedule_id, fires in expected.items() for at in fires]
        values = {"ids": [pair[0] for pair in pairs], "at": [pair[1] for pair in pairs]}
        missing: dict[UUID, list[datetime]] = {}
        for row in connection.exec_driver_sql(MISSING, values):
            missing.setdefault(row.schedule_id, []).append(row.scheduled_for)
        for schedule_id, fires in missing.items():
            yield _Gap(schedule_id, revisions.get(schedule_id, 0), sorted(fires))

    # --- what becomes of it ---

    def _retry(self, gaps: list[_Gap]) -> None:
        loaded = self._loaded()
        fires = [
            Fire(gap.schedule_id, at, at + known.spread, known.priority)
            for gap in gaps
            if (known := loaded.get(gap.schedule_id)) is not None
            for at in islice(gap.missing, self._limits.max_fires * 10)
        ]
        metrics.gaps_found(handed_over=len(fires), caught_up=0, missed=0)
        if fires:
            logger.warning("%d fires have no row yet; they are tried again", len(fires), extra={"event": "gap"})
            self._hand_over(fires)

    def _catch_up(self, connection: Connection, gaps: list[_Gap], until: datetime) -> None:
        rows: list[dict[str, Any]] = []
        own = {
            row.schedule_id: row for row in connection.exec_driver_sql(POLICIES, {"ids": [g.schedule_id for g in gaps]})
        }
        for gap in gaps:
            if gap.schedule_id in own and own[gap.schedule_id].revision == gap.revision:
                rows += self._plan(gap, own[gap.schedule_id], until)
        for start in range(0, len(rows), FIRES_PER_QUERY):
            part = json.dumps(rows[start : start + FIRES_PER_QUERY], default=str)
            connection.exec_driver_sql(INSERT, {"rows": part})
        run = sum(row["status"] == "pending" for row in rows)
        metrics.gaps_found(handed_over=0, caught_up=run, missed=len(rows) - run)
        if rows:
            logger.warning(
                "after downtime: %d fires run late, %d recorded as missed",
                run,
                len(rows) - run,
                extra={"event": "catchup"},
            )

    def _record_former(self, connection: Connection, since: datetime, until: datetime) -> None:
        """Fires that nobody ran under a timing that has ended since: they are not caught up, but they have a row."""
        rows: list[dict[str, Any]] = []
        for former in connection.exec_driver_sql(FORMER, {"since": since}).all():
            missing = [
                at for gap in self._missing(connection, _expected(former, since, until), {}) for at in gap.missing
            ]
            facts = {"schedule_id": former.schedule_id, "job_id": former.name or str(former.schedule_id)}
            facts |= {"domain": former.domain, "domain_config_id": former.domain_config_id}
            if len(missing) > self._limits.max_fires:
                details = {"first": missing[0], "last": missing[-1], "count": len(missing)}
                rows.append({**facts, "scheduled_for": missing[0], "reason": SUMMARY, "details": details})
            else:
                rows += [{**facts, "scheduled_for": at, "reason": "changed", "details": None} for at in missing]
        if rows:
            connection.exec_driver_sql(INSERT_FORMER, {"rows": json.dumps(rows, default=str)})
            metrics.gaps_found(handed_over=0, caught_up=0, missed=len(rows))

    def _plan(self, gap: _Gap, own: Any, until: datetime) -> list[dict[str, Any]]:
        """The rows for one schedule's gap: which fires run now, which are recorded, and one line for the rest."""
        grace = timedelta(seconds=own.misfire_grace_seconds or self._policy.misfire_grace_seconds)
        policy = Catchup(own.catchup or self._policy.catchup)
        recent = [at for at in gap.missing if until - at <= max(self._limits.window, grace)]
        most = {Catchup.NONE: 0, Catchup.ONE: 1, Catchup.ALL: self._limits.max_fires}[policy]
        in_grace = sum(until - at <= grace for at in recent)
        run = recent[-max(most, min(in_grace, 1)) :] if max(most, in_grace) else []
        missed = [at for at in gap.missing if at not in set(run)]
        rows = [self._row(gap, at, "pending", None) for at in run]
        if len(missed) > self._limits.max_fires:
            details = {"first": missed[0], "last": missed[-1], "count": len(missed)}
            return [*rows, self._row(gap, missed[0], "missed", SUMMARY, details)]
        return [*rows, *(self._row(gap, at, "missed", "downtime") for at in missed)]

    @staticmethod
    def _row(gap: _Gap, at: datetime, status: str, reason: str | None, details: Any = None) -> dict[str, Any]:
        return {
            "schedule_id": gap.schedule_id,
            "revision": gap.revision,
            "scheduled_for": at,
            "status": status,
            "reason": reason,
            "details": details,
        }


def _fires(trigger: Trigger, after: datetime, until: datetime) -> list[datetime]:
    return list(deque(trigger.between(after, until), maxlen=FIRES_PER_SCHEDULE))


def _expected(former: Any, since: datetime, until: datetime) -> dict[UUID, list[datetime]]:
    """The fires that came due under a former timing, before it ended."""
    try:
        trigger = parse_trigger(former.frequency, former.time_config, former.timezone, former.start_at, former.end_at)
    except InvalidSchedule:
        return {}  # it was parked and never fired
    spread = spread_offset(former.schedule_id, former.spread_seconds)
    fires = _fires(trigger, max(since - spread, former.effective_from), min(until, former.ended_at) - spread)
    return {former.schedule_id: fires} if fires else {}
