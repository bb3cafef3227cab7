"""Keeps the timer equal to this replica's share of the table, live.

Buckets are loaded and dropped as engine/shares says. LISTEN only wakes the watcher: changes are found by transaction
ids, which miss neither a late commit nor a delete, and every `check_interval` all held buckets are compared by their
revisions. Changes are noted first and then loaded in parts: a change after a large one waits for one part of it, not
for all. schedules/upkeep.py does the writing.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from database.clock import DatabaseClock, awake_or_not
from database.connection import DatabaseConnection, Listener
from services.engine.loaded import Bucket, Loaded, LoadedBuckets
from services.engine.loops import Loop
from services.engine.places import InLoop
from services.engine.shares.shares import EveryBucket, Shares
from services.engine.timer import Entry, Timer
from services.errors import InvalidSchedule, Unavailable
from services.schedules.buckets import BUCKETS, bucket_of
from services.schedules.changes import LONGEST_COMMIT, NEWEST_REVISION
from services.schedules.upkeep import ScheduleUpkeep
from services.telemetry import metrics
from services.telemetry.collection import no_collection
from services.triggers import trigger_of

logger = logging.getLogger(__name__)

# A change reaches us some moments after its commit; a fire in between is ours to hand over all the same.
LOOK_BACK = timedelta(seconds=2)
TICK_SECONDS = 1.0
LISTEN_SECONDS = 0.5
POLL_WITHOUT_LISTEN_SECONDS = 1.0
LOAD_ROWS = 2000
LOAD_SECONDS = 0.25  # of loading buckets, until a tick looks for news
TAKEOVERS = 2  # heartbeat timeouts, within which a dead holder's buckets are loaded elsewhere
FIRST_BUCKETS = 16  # which tell how many rows a bucket has

COLUMNS = """revision, effective_from, enabled, frequency, time_config::text AS time_config, timezone,
             start_at, end_at, spread_seconds, priority, next_run, invalid_reason,
             job_type = ANY(%(in_loop)s::text[])
                 AND coalesce(job_config->>'isolation', '') <> 'process' AS is_in_loop"""


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
        shares: Shares | None = None,
        heartbeat_timeout_seconds: float = 15.0,
        listen: bool = True,
        on_pending: Callable[[], None] = lambda: None,
        on_share: Callable[[], None] = lambda: None,
        in_loop: InLoop | None = None,
    ) -> None:
        self._db, self._connection, self._timer, self._clock = db, db.dedicated(), timer, clock
        self._interval, self._listens, self._on_pending = check_interval_seconds, listen, on_pending
        self._shares, self._on_share = shares or EveryBucket(), on_share
        self._heartbeat_timeout = heartbeat_timeout_seconds
        self._in_loop, self._async_types = in_loop, sorted(in_loop.types) if in_loop else []
        self._listener: Listener | None = None
        self._snapshot: str | None = None
        self._news = False
        self._compare_at = self._poll_at = 0.0
        self._parts: deque[Part] = deque()  # seen, and not loaded yet
        self._newest = 0  # the revision that is applied as soon as all parts are
        self._upkeep = ScheduleUpkeep(self._connection)
        self.loaded = LoadedBuckets()
        self._loads = 0
        self._has_share = False  # all of it was loaded, once
        self._effective_from = datetime.min.replace(tzinfo=UTC)  # of the last row
        self.revision = 0

    @cached_property
    def loop(self) -> Loop:
        return Loop("watcher", self.tick, TICK_SECONDS)

    @property
    def is_loaded(self) -> bool:
        return self._snapshot is not None

    def known(self, buckets: Collection[int]) -> tuple[int, Mapping[int, Bucket]]:
        """A number of loads, and of these buckets the held ones with at least all that these brought."""
        return self._loads, self.loaded.copy(buckets)

    # --- the loop ---

    def tick(self) -> float | None:
        if self._snapshot is None or (self._listens and self._listener is None):
            self._connect()
        self._news = self._wait_for_news() or self._news
        if self._news:
            self.apply_changes()
            self._news = False  # not before: what failed is news until it is applied
        self._load_part()
        self._drop_buckets()
        self._load_buckets()
        if time.monotonic() >= self._compare_at:
            self.reconcile()
        self._upkeep.write_some()
        self._shares.announce(self._on_share, time.monotonic())
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
        is_busy = bool(self._parts) or self._upkeep.is_busy or bool(self._shares.next_to_load(1))
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
        news = self._connection.run(CHANGED_SINCE, {"snapshot": self._snapshot, "mask": self._shares.held_mask})[0]
        self._snapshot = news.snapshot  # what follows may fail, and is noted
        if news.truncated:
            self._compare_at = 0.0
            self.reconcile()
            return
        self._newest = max(self._newest, news.revision or 0)  # also of rows that are not in our share
        if news.ids:
            first, *rest = _parts(news.ids, news.changed_at)
            self._parts.extend(rest)
            self._parts.appendleft(first)
        self._load_part()

    def reconcile(self) -> None:
        """Compare the held buckets with the table, by revisions; a digest answers when nothing differs."""
        compare_at = time.monotonic() + self._interval
        self._compare()
        self._load_buckets()
        self._compare_at = compare_at

    def _compare(self) -> None:
        held = [bucket.number for bucket in self.loaded.held()]
        digest = self._connection.run(DIGEST)[0] if len(held) == BUCKETS else self._by_index(DIGEST_OF, held)[0]
        self._newest = max(self._newest, digest.newest)
        if (digest.total, digest.revisions) == self.loaded.digest:
            self._parts.clear()
        else:
            self._parts = deque(_parts([str(schedule_id) for schedule_id in sorted(self._differing(held))]))
        self._load_part()

    def _differing(self, held: list[int]) -> set[UUID]:
        digests = {row.bucket: (row.total, row.revisions) for row in self._by_index(DIGESTS, held)}
        differing = [bucket for bucket in self.loaded.held() if digests.get(bucket.number, (0, 0)) != bucket.digest]
        rows = self._by_index(REVISIONS, [bucket.number for bucket in differing])
        table = {row.schedule_id: row.revision for row in rows}
        known = {key: loaded.revision for bucket in differing for key, loaded in bucket.schedules.items()}
        return {key for key in table.keys() | known.keys() if table.get(key) != known.get(key)}

    def _by_index(self, sql: str, buckets: Sequence[int]) -> Sequence[Row[Any]]:
        """A third of the table looks like a scan of all of it to the planner, with helpers: that cost must not grow."""
        with self._connection.transaction():  # which uses indexes where it can
            self._connection.run("SET LOCAL max_parallel_workers_per_gather = 0")
            return self._connection.run(sql, {"buckets": list(buckets)})

    # --- what is loaded ---

    def _load_part(self) -> None:
        if self._parts:
            part = self._parts[0]
            self._load(self._connection.run(SOME_ROWS, {"ids": part.ids, "in_loop": self._async_types}))
            self._parts.popleft()
            if part.changed_at is not None:
                metrics.change_applied(max(0.0, (self._clock.now() - part.changed_at).total_seconds()))
        self._note_revision()

    def _note_revision(self) -> None:
        if not self._parts and self._has_share:
            self.revision = self._newest  # including that of a deletion, which no row of the table has
            metrics.revision_applied(self.revision)

    def _load_buckets(self) -> None:
        """Those of our duty that we lack, some at a time: what is ours may have changed after each."""
        until = time.monotonic() + LOAD_SECONDS
        while self._shares.lacking and (some := self._shares.next_to_load(self._most_buckets())):
            self._load_some(some)
            if time.monotonic() >= until:
                return
        self._has_share = True
        self._note_revision()

    def _most_buckets(self) -> int:
        held = self._shares.held
        return max(1, LOAD_ROWS * held // max(1, len(self.loaded))) if held else FIRST_BUCKETS

    def _load_some(self, numbers: Sequence[int]) -> None:
        watched = self._watched_until(numbers)
        rows = self._connection.run(ROWS_OF, {"buckets": numbers, "in_loop": self._async_types})
        new = {number: Bucket(number, self._loads, self._clock.now()) for number in numbers}
        try:
            with no_collection(freeze=True):  # what is loaded stays, and has no cycles
                self._load(rows, new, watched)
        except BaseException:
            self._take_out_all(new.values())  # half a bucket is none
            raise
        for bucket in new.values():
            self.loaded.add(bucket)  # as a whole: the gap scan vouches for what it finds here
        self._shares.loaded(numbers)

    def _watched_until(self, numbers: Sequence[int]) -> dict[int, datetime]:
        """From when on the fires of these buckets are ours to hand over: from where the gap scan of each ended.

        Those that hold it may be dead. What is older than their death can be, or than every living replica, is left to
        the gap scan, which paces itself and asks the catch-up rule.
        """
        now = self._clock.now()
        latest, earliest = now - LOOK_BACK, now - timedelta(seconds=TAKEOVERS * self._heartbeat_timeout)
        values = {"buckets": numbers, "timeout": self._heartbeat_timeout}
        found = {row.bucket: row.since for row in self._connection.run(WATCHED_SINCE, values)}
        return {number: min(latest, max(earliest, found.get(number) or latest)) for number in numbers}

    def _drop_buckets(self) -> None:
        """Ours no longer, and held by those who have the duty. What was handed over goes its way."""
        for number in self._shares.to_drop(awake_or_not()):
            self._shares.dropped([number])
            bucket = self.loaded.drop(number)
            self._take_out_all([bucket] if bucket else [])

    def _take_out_all(self, buckets: Iterable[Bucket]) -> None:
        for bucket in buckets:
            for known in bucket.schedules.values():
                self._take_out(known)
            if self._in_loop is not None:
                self._in_loop.schedules.difference_update(bucket.schedules)

    def _load(
        self,
        rows: Iterable[Row[Any]],
        new: Mapping[int, Bucket] | None = None,
        watched: Mapping[int, datetime] | None = None,
    ) -> None:
        """Take over these rows; one without a revision was deleted. `new`: they come with their buckets."""
        added = modified = removed = parked = 0
        now = self._clock.now()
        for row in rows:
            bucket = self.loaded.get(row.bucket) if new is None else new.get(row.bucket)
            if bucket is None:
                continue  # dropped since its change was noted
            if row.revision is None:
                removed += self._remove(bucket, row.schedule_id)
                continue
            known = bucket.schedules.get(row.schedule_id)
            added, modified = added + (known is None), modified + (known is not None)
            try:
                since = _since(row, known, now) if watched is None else max(row.effective_from, watched[row.bucket])
                self._take(row, bucket, since, now)
            except InvalidSchedule as error:
                self._know(row, bucket, None)
                parked += 1
                if row.invalid_reason != str(error):
                    self._upkeep.park(row.schedule_id, row.revision, str(error))
        self._loads += 1
        self._timer.wake()
        if added or modified or removed:
            metrics.schedules_changed(added=added, modified=modified, removed=removed, loaded=len(self._timer))
            logger.info(
                "schedules: %d added, %d modified, %d removed, %d parked",
                added,
                modified,
                removed,
                parked,
                extra={"event": "schedules_changed", "revision": self.revision},
            )

    def _remove(self, bucket: Bucket, schedule_id: UUID) -> bool:
        known = bucket.pop(schedule_id)
        if self._in_loop is not None:
            self._in_loop.note(schedule_id, is_in_loop=False)
        if known is not None:
            self._take_out(known)
        return known is not None

    def _take(self, row: Row[Any], bucket: Bucket, since: datetime, now: datetime) -> None:
        trigger = trigger_of(row)
        if not row.enabled:
            self._know(row, bucket, None)
            if row.next_run is not None:
                self._upkeep.plan(row.schedule_id, row.revision, None)
            return
        put = self._timer.put(row.schedule_id, trigger, row.spread_seconds, row.priority, since, bucket.number)
        self._know(row, bucket, put)
        if row.next_run is None or not trigger.fires_at(row.next_run):
            self._upkeep.plan(row.schedule_id, row.revision, trigger.next_after(now))

    def _know(self, row: Row[Any], bucket: Bucket, entry: Entry | None) -> None:
        if self._in_loop is not None:
            self._in_loop.note(row.schedule_id, is_in_loop=row.is_in_loop)
        former = bucket.schedules.get(row.schedule_id)
        load = self._loads if former is None or _is_new(row, former) else former.load
        if self._effective_from != row.effective_from:
            self._effective_from = row.effective_from  # what was written together shares it
        bucket.put(row.schedule_id, Loaded(row.revision, self._effective_from, entry, load))
        if former is not None:
            self._take_out(former)

    def _take_out(self, known: Loaded) -> None:
        if known.entry is not None:
            self._timer.remove(known.entry)


def _parts(ids: list[str], changed_at: datetime | None = None) -> Iterator[Part]:
    for first in range(0, len(ids), LOAD_ROWS):
        yield Part(ids[first : first + LOAD_ROWS], changed_at)


def _since(row: Row[Any], known: Loaded | None, now: datetime) -> datetime:
    """From when on the fires of a changed row are ours to hand over.

    A new timing that took long to commit has been in effect for a while: no other replica runs its fires so far.
    """
    effective_from: datetime = row.effective_from
    return max(effective_from, now - (LONGEST_COMMIT if _is_new(row, known) else LOOK_BACK))


def _is_new(row: Row[Any], known: Loaded | None) -> bool:
    """Is this timing another one than we knew?"""
    return known is None or bool(known.effective_from != row.effective_from)


# One row, whatever changed: a hundred thousand of them would take seconds to read. Every revision is noted, the rows of
# held buckets are loaded.
CHANGED_SINCE = f"""
SELECT pg_current_snapshot()::text AS snapshot, max(c.changed_at) AS changed_at, max(c.revision) AS revision,
       coalesce(bool_or(c.schedule_id IS NULL), false) AS truncated,
       (array_agg(DISTINCT c.schedule_id)
           FILTER (WHERE get_bit(%(mask)s::bytea, {bucket_of("c.schedule_id")}) = 1))::text[] AS ids
FROM schedule_changes AS c
WHERE c.txid >= pg_snapshot_xmin(%(snapshot)s::pg_snapshot)
  AND NOT pg_visible_in_snapshot(c.txid, %(snapshot)s::pg_snapshot)
"""  # noqa: S608

# One row per id: without a revision the schedule does not exist any more.
SOME_ROWS = f"""
SELECT asked.id AS schedule_id, {bucket_of("asked.id")} AS bucket, {COLUMNS}
FROM unnest(%(ids)s::uuid[]) AS asked (id) LEFT JOIN schedules AS s ON s.schedule_id = asked.id
"""  # noqa: S608

_IN_BUCKETS = f"{bucket_of('schedule_id')} = ANY(%(buckets)s::bigint[])"

ROWS_OF = f"SELECT schedule_id, {bucket_of('schedule_id')} AS bucket, {COLUMNS} FROM schedules WHERE {_IN_BUCKETS}"  # noqa: S608

# Never from before the oldest living replica: what is older belongs to the catch-up rule. Without any of them, as for a
# program that has no heart, nothing is known.
WATCHED_SINCE = """
SELECT b.bucket, CASE WHEN o.since IS NOT NULL THEN greatest(b.until, w.until, o.since) END AS since
FROM fires_watched_by_bucket AS b LEFT JOIN fires_watched AS w ON true, (
    SELECT min(started_at) AS since FROM scheduler_instances
    WHERE kind = 'replica' AND claiming AND heartbeat_at > clock_timestamp() - make_interval(secs => %(timeout)s)
) AS o
WHERE b.bucket = ANY(%(buckets)s::smallint[])
"""

# Revisions never repeat, so equal counts and sums of two sets of them mean equal sets, short of a miracle.
DIGEST = f"""
SELECT count(*) AS total, coalesce(sum(revision), 0) AS revisions, ({NEWEST_REVISION}) AS newest FROM schedules
"""  # noqa: S608

DIGEST_OF = f"{DIGEST.rstrip()} WHERE {_IN_BUCKETS}"

DIGESTS = f"""
SELECT {bucket_of("schedule_id")} AS bucket, count(*) AS total, sum(revision) AS revisions FROM schedules
WHERE {_IN_BUCKETS} GROUP BY 1
"""  # noqa: S608

REVISIONS = f"SELECT schedule_id, revision FROM schedules WHERE {_IN_BUCKETS}"  # noqa: S608
