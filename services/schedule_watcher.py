"""Keeps the timer equal to the table, live.

LISTEN only wakes the watcher: changes are found by transaction ids, which miss neither a late commit nor a delete, and
every `check_interval` the whole table is compared by its revisions. Changes are noted first and then loaded in parts:
a change after a large one waits for one part of it, not for all. schedules/upkeep.py does the writing.
"""

import gc
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text

from database.clock import DatabaseClock
from database.connection import DatabaseConnection, Listener
from services.engine.loaded import Loaded
from services.engine.loops import Loop
from services.engine.timer import Entry, Timer
from services.errors import InvalidSchedule, Unavailable
from services.schedules.changes import LONGEST_COMMIT, NEWEST_REVISION
from services.schedules.upkeep import ScheduleUpkeep
from services.telemetry import metrics
from services.triggers import trigger_of

logger = logging.getLogger(__name__)

# A change reaches us some moments after its commit; a fire in between is ours to hand over all the same.
LOOK_BACK = timedelta(seconds=2)
TICK_SECONDS = 1.0
LISTEN_SECONDS = 0.5
POLL_WITHOUT_LISTEN_SECONDS = 1.0
LOAD_ROWS = 2000

COLUMNS = """schedule_id, revision, effective_from, enabled, frequency, time_config::text AS time_config, timezone,
             start_at, end_at, spread_seconds, priority, next_run, invalid_reason"""


@dataclass(frozen=True, slots=True)
class Part:
    """Schedules that differed from the loaded state when they were checked."""

    ids: list[str]
    changed_at: datetime | None = None


class ScheduleWatcher:
    """`tick` belongs to one thread; the counters may be read by others."""

    def __init__(
        self,
        db: DatabaseConnection,
        timer: Timer,
        clock: DatabaseClock,
        *,
        check_interval_seconds: float,
        listen: bool = True,
        on_pending: Callable[[], None] = lambda: None,
    ) -> None:
        self._db, self._connection, self._timer, self._clock = db, db.dedicated(), timer, clock
        self._interval, self._listens, self._on_pending = check_interval_seconds, listen, on_pending
        self._listener: Listener | None = None
        self._snapshot: str | None = None
        self._news = False
        self._compare_at = self._poll_at = 0.0
        self._parts: deque[Part] = deque()  # seen, and not loaded yet
        self._newest = 0  # the revision that is applied as soon as all parts are
        self._upkeep = ScheduleUpkeep(self._connection)
        self.loaded: dict[UUID, Loaded] = {}
        self._loads = 0
        self._revisions = 0  # the sum over what is loaded
        self._effective_from = datetime.min.replace(tzinfo=UTC)  # of the last row
        self.revision = 0

    @cached_property
    def loop(self) -> Loop:
        return Loop("watcher", self.tick, TICK_SECONDS)

    @property
    def is_loaded(self) -> bool:
        return self._snapshot is not None

    def known(self) -> tuple[int, dict[UUID, Loaded]]:
        """A number of loads, and schedules with at least all that these brought. For other threads."""
        return self._loads, dict(self.loaded)

    # --- the loop ---

    def tick(self) -> float | None:
        if self._snapshot is None or (self._listens and self._listener is None):
            self._connect()
        self._news = self._wait_for_news() or self._news
        if self._news:
            self.apply_changes()
            self._news = False  # not before: what failed is news until it is applied
        if time.monotonic() >= self._compare_at:
            self.reconcile()
        self._load_part()
        self._upkeep.write_some()
        return 0.0

    def close(self) -> None:
        self._drop_listener()
        self._connection.close()

    def _connect(self) -> None:
        """LISTEN first, then look: a change in between is seen at least once."""
        if self._listens:
            self._drop_listener()
            self._listener = self._db.listener("schedules_changed", "executions_pending")
        try:
            snapshot = self._connection.run("SELECT pg_current_snapshot()::text AS snapshot")[0].snapshot
            self.reconcile()
        except BaseException:
            self._drop_listener()  # half a reconnect is none: the next tick has to begin again
            raise
        self._snapshot = snapshot

    def _drop_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _wait_for_news(self) -> bool:
        is_busy = bool(self._parts) or self._upkeep.is_busy
        if self._listener is None:
            return self._poll(is_busy)
        try:
            heard = self._listener.wait(0 if is_busy else LISTEN_SECONDS)
        except Unavailable:
            self._drop_listener()
            raise
        if "executions_pending" in heard:
            self._on_pending()
        return "schedules_changed" in heard

    def _poll(self, is_busy: bool) -> bool:
        wait_seconds = self._poll_at - time.monotonic()
        if wait_seconds > 0 and is_busy:
            return False
        time.sleep(max(0.0, wait_seconds))
        self._poll_at = time.monotonic() + POLL_WITHOUT_LISTEN_SECONDS
        return True

    # --- what changed ---

    def apply_changes(self) -> None:
        """Apply what was committed since we last looked; costs in proportion to the changes, not to the table.

        Of many changes only the first part at once: what is committed meanwhile gets its turn before the rest.
        """
        news = self._connection.run(CHANGED_SINCE, {"snapshot": self._snapshot})[0]
        self._snapshot = news.snapshot  # what follows may fail, and is noted
        if news.truncated:
            self._compare_at = 0.0
            self.reconcile()
        elif news.ids:
            self._newest = max(self._newest, news.revision or 0)
            first, *rest = _parts(news.ids, news.changed_at)
            self._parts.extend(rest)
            self._parts.appendleft(first)
            self._load_part()

    def reconcile(self) -> None:
        """Compare the whole table with the timer, by revisions; a digest answers when nothing differs."""
        compare_at = time.monotonic() + self._interval
        self._compare()
        self._compare_at = compare_at

    def _compare(self) -> None:
        digest = self._connection.run(DIGEST)[0]
        self._newest = max(self._newest, digest.newest)
        if (digest.total, digest.revisions) == (len(self.loaded), self._revisions):
            self._parts.clear()
        elif self.loaded:
            self._parts = deque(_parts([str(schedule_id) for schedule_id in sorted(self._differing())]))
        else:
            self._load_all()
        self._load_part()

    def _differing(self) -> set[UUID]:
        table = {row.schedule_id: row.revision for row in self._connection.run(REVISIONS)}
        return {
            schedule_id
            for schedule_id in table.keys() | self.loaded.keys()
            if schedule_id not in self.loaded or table.get(schedule_id) != self.loaded[schedule_id].revision
        }

    def _load_part(self) -> None:
        if self._parts:
            part = self._parts[0]
            self._load(self._connection.run(SOME_ROWS, {"ids": part.ids}), gone=map(UUID, part.ids))
            self._parts.popleft()
            if part.changed_at is not None:
                metrics.change_applied(max(0.0, (self._clock.now() - part.changed_at).total_seconds()))
        if not self._parts:
            self.revision = self._newest  # also that of a deletion, which no row of the table shows any more
            metrics.revision_applied(self.revision)

    def _load_all(self) -> None:
        with _no_collection(), self._db.transaction() as connection:
            # text(), not the driver's own call: only that streams from a server-side cursor.
            result = connection.execution_options(yield_per=LOAD_ROWS).execute(text(f"SELECT {COLUMNS} FROM schedules"))  # noqa: S608
            for rows in result.partitions(LOAD_ROWS):
                self._load(rows)

    def _load(self, rows: Iterable[Row[Any]], gone: Iterable[UUID] = ()) -> None:
        """Take over these rows; what is in `gone` and not among them was deleted."""
        added = modified = parked = 0
        now = self._clock.now()
        missing = set(gone)
        for row in rows:
            missing.discard(row.schedule_id)
            is_known = row.schedule_id in self.loaded
            added, modified = added + (not is_known), modified + is_known
            try:
                self._take(row, now)
            except InvalidSchedule as error:
                self._know(row, None)
                parked += 1
                if row.invalid_reason != str(error):
                    self._upkeep.park(row.schedule_id, row.revision, str(error))
        removed = [known for schedule_id in missing if (known := self.loaded.pop(schedule_id, None))]
        for known in removed:
            self._revisions -= known.revision
            self._take_out(known)
        self._loads += 1
        self._timer.wake()
        if added or modified or removed:
            metrics.schedules_changed(added=added, modified=modified, removed=len(removed), loaded=len(self._timer))
            logger.info(
                "schedules: %d added, %d modified, %d removed, %d parked",
                added,
                modified,
                len(removed),
                parked,
                extra={"event": "schedules_changed", "revision": self.revision},
            )

    def _take(self, row: Row[Any], now: datetime) -> None:
        trigger = trigger_of(row)
        if not row.enabled:
            self._know(row, None)
            if row.next_run is not None:
                self._upkeep.plan(row.schedule_id, row.revision, None)
            return
        since = self._since(row, self.loaded.get(row.schedule_id), now)
        self._know(row, self._timer.put(row.schedule_id, trigger, row.spread_seconds, row.priority, since))
        if row.next_run is None or not trigger.fires_at(row.next_run):
            self._upkeep.plan(row.schedule_id, row.revision, trigger.next_after(now))

    def _know(self, row: Row[Any], entry: Entry | None) -> None:
        former = self.loaded.get(row.schedule_id)
        load = self._loads if former is None or _is_new(row, former) else former.load
        if self._effective_from != row.effective_from:
            self._effective_from = row.effective_from  # what was written together shares it
        self.loaded[row.schedule_id] = Loaded(row.revision, self._effective_from, entry, load)
        self._revisions += row.revision
        if former is not None:
            self._revisions -= former.revision
            self._take_out(former)

    def _take_out(self, known: Loaded) -> None:
        if known.entry is not None:
            self._timer.remove(known.entry)

    def _since(self, row: Row[Any], known: Loaded | None, now: datetime) -> datetime:
        """From when on its fires are ours to hand over.

        New timing that took long to be committed has been valid for a while: its fires so far are nobody else's.
        """
        effective_from: datetime = row.effective_from
        return max(effective_from, now - (LONGEST_COMMIT if self.is_loaded and _is_new(row, known) else LOOK_BACK))


@contextmanager
def _no_collection() -> Iterator[None]:
    """What is loaded stays, and has no cycles: the garbage collector would walk all of it again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def _parts(ids: list[str], changed_at: datetime | None = None) -> Iterator[Part]:
    for first in range(0, len(ids), LOAD_ROWS):
        yield Part(ids[first : first + LOAD_ROWS], changed_at)


def _is_new(row: Row[Any], known: Loaded | None) -> bool:
    """Is this timing another one than we knew?"""
    return known is None or bool(known.effective_from != row.effective_from)


# One row, whatever changed: a hundred thousand of them would take seconds to read.
CHANGED_SINCE = """
SELECT pg_current_snapshot()::text AS snapshot, max(c.changed_at) AS changed_at, max(c.revision) AS revision,
       coalesce(bool_or(c.schedule_id IS NULL), false) AS truncated, array_agg(DISTINCT c.schedule_id)::text[] AS ids
FROM schedule_changes AS c
WHERE c.txid >= pg_snapshot_xmin(%(snapshot)s::pg_snapshot)
  AND NOT pg_visible_in_snapshot(c.txid, %(snapshot)s::pg_snapshot)
"""

SOME_ROWS = f"SELECT {COLUMNS} FROM schedules WHERE schedule_id = ANY(%(ids)s::uuid[])"  # noqa: S608

# Revisions never repeat, so equal counts and sums of two sets of them mean equal sets, short of a miracle.
DIGEST = f"""
SELECT count(*) AS total, coalesce(sum(revision), 0) AS revisions, ({NEWEST_REVISION}) AS newest FROM schedules
"""  # noqa: S608

REVISIONS = "SELECT schedule_id, revision FROM schedules"
