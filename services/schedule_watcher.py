"""Makes the timer equal to the table, live.

LISTEN is only the wake-up: what changed is asked by transaction ids, which misses neither a late commit nor a delete,
and every `check_interval` the whole table is compared by its revisions. Rows that make no sense are parked.
"""

import gc
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text

from database.connection import DatabaseConnection, Listener
from services import metrics
from services.clock import DatabaseClock
from services.errors import InvalidSchedule, Unavailable
from services.replica_listing import NEWEST_REVISION
from services.timer import Entry, Timer
from services.triggers import stored_trigger

logger = logging.getLogger(__name__)

# A change reaches us some moments after its commit; a fire in between is ours to hand over all the same.
LOOK_BACK = timedelta(seconds=2)
LONGEST_COMMIT = timedelta(hours=1)
LISTEN_SECONDS = 0.5
POLL_WITHOUT_LISTEN_SECONDS = 1.0
LOAD_ROWS = 2000
REPAIR_ROWS = 500
SECOND = timedelta(seconds=1)

COLUMNS = """schedule_id, revision, effective_from, enabled, frequency, time_config::text AS time_config, timezone,
             start_at, end_at, spread_seconds, priority, next_run, invalid_reason"""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What this replica knows about a schedule; without an entry in the timer it is switched off or parked."""

    revision: int
    effective_from: datetime
    entry: Entry | None
    load: int = 0  # how many loads were finished when this timing came


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
        self._compare_at = 0.0
        self._unparked: dict[UUID, tuple[int, str]] = {}  # makes no sense, and the table does not say so yet
        self.loaded: dict[UUID, Loaded] = {}
        self._loads = 0
        self._revisions = 0  # the sum over what is loaded
        self._effective_from = datetime.min.replace(tzinfo=UTC)  # of the last row
        self.revision = 0

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
        if self._wait_for_news():
            self.apply_changes()
        if time.monotonic() >= self._compare_at:
            self.reconcile()
        if self._unparked:
            self._park()
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
        if self._listener is None:
            time.sleep(POLL_WITHOUT_LISTEN_SECONDS)
            return True
        try:
            heard = self._listener.wait(LISTEN_SECONDS)
        except Unavailable:
            self._drop_listener()
            raise
        if "executions_pending" in heard:
            self._on_pending()
        return "schedules_changed" in heard

    # --- what changed ---

    def apply_changes(self) -> None:
        """Apply what was committed since we last looked; costs in proportion to the changes, not to the table."""
        rows = self._connection.run(CHANGED_SINCE, {"snapshot": self._snapshot})
        changed = {row.schedule_id for row in rows if row.change_id is not None}
        if None in changed:  # the table was truncated
            self.reconcile()
        elif changed:
            self._load(self._connection.run(SOME_ROWS, {"ids": list(changed)}), gone=changed)
            self._note_applied(max(row.revision or 0 for row in rows))
            newest = max(row.changed_at for row in rows)
            metrics.change_applied(max(0.0, (self._clock.now() - newest).total_seconds()))
        self._snapshot = rows[0].snapshot

    def reconcile(self) -> None:
        """Compare the whole table with the timer, by revisions; a digest answers when nothing differs."""
        compare_at = time.monotonic() + self._interval
        self._compare()
        self._compare_at = compare_at

    def _compare(self) -> None:
        digest = self._connection.run(DIGEST)[0]
        if (digest.total, digest.revisions) != (len(self.loaded), self._revisions):
            self._load_differing()
        self._note_applied(digest.newest)

    def _load_differing(self) -> None:
        if not self.loaded:
            self._load_all()
            return
        table = {row.schedule_id: row.revision for row in self._connection.run(REVISIONS)}
        differing = {
            schedule_id
            for schedule_id in table.keys() | self.loaded.keys()
            if schedule_id not in self.loaded or table.get(schedule_id) != self.loaded[schedule_id].revision
        }
        self._load(self._connection.run(SOME_ROWS, {"ids": list(differing)}), gone=differing)

    def _note_applied(self, revision: int) -> None:
        """Also that of a deletion, which no row of the table shows any more."""
        self.revision = max(self.revision, revision)
        metrics.revision_applied(self.revision)

    def _load_all(self) -> None:
        with _no_collection(), self._db.transaction() as connection:
            # text(), not the driver's own call: only that streams from a server-side cursor.
            result = connection.execution_options(yield_per=LOAD_ROWS).execute(text(f"SELECT {COLUMNS} FROM schedules"))  # noqa: S608
            for rows in result.partitions(LOAD_ROWS):
                self._load(rows)

    def _load(self, rows: Iterable[Row[Any]], gone: Iterable[UUID] = ()) -> None:
        """Take over these rows; what is in `gone` and not among them was deleted."""
        added = modified = 0
        parked = 0
        planned: list[tuple[UUID, int, datetime | None]] = []
        now = self._clock.now()
        missing = set(gone)
        for row in rows:
            missing.discard(row.schedule_id)
            is_known = row.schedule_id in self.loaded
            added, modified = added + (not is_known), modified + is_known
            try:
                self._take(row, now, planned)
            except InvalidSchedule as error:
                self._know(row, None)
                self._unparked[row.schedule_id] = row.revision, str(error)
                parked += 1
            self.revision = max(self.revision, row.revision)
        removed = [known for schedule_id in missing if (known := self.loaded.pop(schedule_id, None))]
        for known in removed:
            self._revisions -= known.revision
            self._take_out(known)
        self._loads += 1
        self._timer.wake()
        self._park()
        self._repair_next_run(planned)
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

    def _take(self, row: Row[Any], now: datetime, planned: list[tuple[UUID, int, datetime | None]]) -> None:
        trigger = stored_trigger(row.frequency, row.time_config, row.timezone, row.start_at, row.end_at)
        if not row.enabled:
            self._know(row, None)
            if row.next_run is not None:
                planned.append((row.schedule_id, row.revision, None))
            return
        since = self._since(row, self.loaded.get(row.schedule_id), now)
        self._know(row, self._timer.put(row.schedule_id, trigger, row.spread_seconds, row.priority, since))
        if row.next_run is None or trigger.next_after(row.next_run - SECOND) != row.next_run:
            planned.append((row.schedule_id, row.revision, trigger.next_after(now)))

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

    def _park(self) -> None:
        """A row that somebody holds is parked by a later tick: nobody's change waits for it."""
        wanted = [
            {"schedule_id": str(schedule_id), "revision": revision, "reason": reason}
            for schedule_id, (revision, reason) in self._unparked.items()
        ]
        rows = self._connection.run(PARK, {"rows": json.dumps(wanted)}) if wanted else []
        self._unparked = {row.schedule_id: (row.revision, row.reason) for row in rows if not row.parked}
        for row in rows:
            if row.parked:
                logger.error(
                    "schedule %s is parked: %s",
                    row.schedule_id,
                    row.reason,
                    extra={"event": "schedule_parked", "schedule_id": str(row.schedule_id)},
                )

    def _repair_next_run(self, planned: list[tuple[UUID, int, datetime | None]]) -> None:
        """A change made by plain SQL leaves next_run as it was."""
        planned.sort(key=itemgetter(0))
        for first in range(0, len(planned), REPAIR_ROWS):  # few at a time: the fires of a locked schedule wait for us
            part = planned[first : first + REPAIR_ROWS]
            values = [{"schedule_id": str(item[0]), "revision": item[1], "next_run": item[2]} for item in part]
            self._connection.run(REPAIR_NEXT_RUN, {"rows": json.dumps(values, default=str)})


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


def _is_new(row: Row[Any], known: Loaded | None) -> bool:
    """Is this timing another one than we knew?"""
    return known is None or bool(known.effective_from != row.effective_from)


CHANGED_SINCE = """
SELECT pg_current_snapshot()::text AS snapshot, c.change_id, c.schedule_id, c.changed_at, c.revision
FROM (SELECT 1) AS always LEFT JOIN schedule_changes AS c
    ON c.txid >= pg_snapshot_xmin(%(snapshot)s::pg_snapshot)
    AND NOT pg_visible_in_snapshot(c.txid, %(snapshot)s::pg_snapshot)
"""

SOME_ROWS = f"SELECT {COLUMNS} FROM schedules WHERE schedule_id = ANY(%(ids)s::uuid[])"  # noqa: S608

# Revisions never repeat, so equal counts and sums of two sets of them mean equal sets, short of a miracle.
DIGEST = f"""
SELECT count(*) AS total, coalesce(sum(revision), 0) AS revisions, ({NEWEST_REVISION}) AS newest FROM schedules
"""  # noqa: S608

REVISIONS = "SELECT schedule_id, revision FROM schedules"

# Answers with those that are not parked yet, and whether they are now.
PARK = """
WITH wanted AS (
    SELECT * FROM json_to_recordset(%(rows)s::json) AS w (schedule_id uuid, revision bigint, reason text)
), unparked AS MATERIALIZED (
    SELECT w.* FROM wanted AS w JOIN schedules AS s ON s.schedule_id = w.schedule_id AND s.revision = w.revision
    WHERE s.invalid_reason IS DISTINCT FROM w.reason
), free AS MATERIALIZED (
    SELECT schedule_id FROM schedules WHERE schedule_id IN (SELECT schedule_id FROM unparked)
    ORDER BY schedule_id FOR NO KEY UPDATE SKIP LOCKED
), parked AS (
    UPDATE schedules AS s SET last_status = 'invalid', invalid_reason = u.reason, next_run = NULL
    FROM unparked AS u JOIN free USING (schedule_id)
    WHERE s.schedule_id = u.schedule_id AND s.revision = u.revision
    RETURNING s.schedule_id
)
SELECT u.*, parked.schedule_id IS NOT NULL AS parked FROM unparked AS u LEFT JOIN parked USING (schedule_id)
"""

# One join, planned well also while the table has no statistics yet; locks only what it changes.
REPAIR_NEXT_RUN = """
WITH wrong AS (
    SELECT s.schedule_id, planned.next_run
    FROM json_to_recordset(%(rows)s::json) AS planned (schedule_id uuid, revision bigint, next_run timestamptz)
    JOIN schedules AS s ON s.schedule_id = planned.schedule_id AND s.revision = planned.revision
    WHERE s.next_run IS DISTINCT FROM planned.next_run
    ORDER BY s.schedule_id FOR NO KEY UPDATE OF s SKIP LOCKED)
UPDATE schedules AS s SET next_run = wrong.next_run FROM wrong WHERE s.schedule_id = wrong.schedule_id
"""
