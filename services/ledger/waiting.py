"""Rows that wait: retries, people's wishes, catch-up, what was handed back, what the replica that met it could not run.

To take and to settle are two things. Only a replica with a free worker that is able to run a row takes it
(`WaitingStore.take`): by priority, then the oldest first. Any replica settles any row (`Settling`): one that was
cancelled, deleted, disabled, changed, or whose time is over ends although all workers of all replicas are busy. Both
lock a row together with its schedule and ask the same question (verdicts.py, JUDGE_WAITING). What a row says about its
queue, needs and priority is a copy that says where to look for it; a wrong copy costs a look, never a wrong run.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from database.arrays import flag_array, number_array, text_array, uuid_array
from database.clock import awake_or_not
from database.connection import DatabaseConnection, DedicatedConnection
from database.models import ExecutionStatus
from services.ledger import waiting_sql as sql
from services.ledger.fires import Claim, Owner, Policy
from services.ledger.history_sql import NOTIFY_PENDING
from services.ledger.limits import UNLIMITED, Kept, Limited, Turn, full_keys, keep, lock_limited
from services.ledger.limits_sql import LIMIT, LIMIT_LANES, MOST_KEYS
from services.ledger.locked import Locked
from services.ledger.needs import UNSORTED, Abilities, Needs
from services.ledger.outbox import announce_another, announce_next
from services.ledger.retrying import CarefulRetries

SETTLED_AT_ONCE = 200
MOST_TAKEN = 500  # of one key
MOST_PASSED = 200  # rows looked at together where some wait for their limits in front of others
MOST_LOOKS = 100  # of a worker of the fleet at the next MOST_KEYS keys; it looks once per wake
PAUSES = (0.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # seconds between two looks at the rows of a changed schedule
NO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Lane:
    """Rows that wait for the same kind of replica, with the same priority; all of `needs` empty: not sorted yet.

    Those that wait for a limit are apart, by its key; `room` is what the limit leaves.
    """

    queue: str
    needs: tuple[str, ...]
    priority: int
    due_at: datetime  # of its oldest
    reason: str | None = None
    room: int | None = None


@dataclass(slots=True)
class TakeReport:
    """What may run at once, what must be started, and whether it is worth asking again soon.

    `due`: something was, although none of it may be for us. `busy`: another session decides a limit of some of it.
    """

    started: list[Claim] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    more: bool = False
    due: bool = field(default=False, compare=False)
    busy: bool = field(default=False, compare=False)  # another session decides about a limit of theirs
    is_blocked: bool = field(default=False, compare=False)  # rows whose limits are full stood before others
    has_passed: bool = field(
        default=False, compare=False
    )  # what is started was not announced: another row's wake found it


@dataclass(frozen=True, slots=True)
class Wish:
    """For so many free workers of one kind, the first of which begin at once. None: for every kind of execution."""

    count: int
    start: int = 0
    is_for: Callable[[Needs], bool] | None = None

    def wants(self, lane: Lane) -> bool:
        """What is not sorted yet, too: rows of the other kind are sorted by the look."""
        return self.is_for is None or lane.queue == UNSORTED or self.is_for(lane.needs)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Locked with their schedules."""

    ids: Sequence[UUID]
    theirs: Sequence[Locked]
    needs: Sequence[Needs]
    able: Sequence[bool]
    turns: Sequence[Turn]

    @property
    def keys(self) -> list[tuple[str, ...]]:
        return [tuple(locked.spec.all_limit_keys) for locked in self.theirs]

    def only(self, places: Iterable[int]) -> "_Rows":
        at = list(places)
        return _Rows(
            [self.ids[place] for place in at],
            [self.theirs[place] for place in at],
            [self.needs[place] for place in at],
            [self.able[place] for place in at],
            [self.turns[place] for place in at],
        )


class WaitingJudge:
    """The one question about rows that are locked with their schedules, in the transaction that locked them."""

    def __init__(
        self,
        connection: DedicatedConnection,
        owner: Owner,
        policy: Policy,
        horizon_seconds: float,
        abilities: Abilities,
        heartbeat_timeout_seconds: float,
    ) -> None:
        self.abilities, self.policy = abilities, policy
        self.heartbeat_timeout_seconds = heartbeat_timeout_seconds
        self._connection = connection
        self._always = {
            **owner.as_values(),
            "horizon": horizon_seconds,
            "timeout": heartbeat_timeout_seconds,
            "gap": heartbeat_timeout_seconds / 2,
        }

    def locked(self, row: Row[Any]) -> Locked | None:
        return Locked.read(row, self.policy) if row.schedule_id is not None else None

    def judge(
        self,
        execution_ids: Sequence[UUID],
        theirs: Sequence[Locked],
        due_at: Sequence[datetime],
        wish: Wish,
        *,
        are_limited: bool,
    ) -> tuple[list[Row[Any]], Limited]:
        """Take at most `count` of them, the first `start` straight to `running`; returns the rows that were written.

        Those with a limit that another session decides at the moment are left for the next time. Of more than `count`
        rows only those are written that are taken, and those that have to wait for a limit.
        """
        count, start = wish.count, wish.start
        needs = self.abilities.needs_of(theirs, self._connection)
        able = self.abilities.able(needs, [locked.spec.queue_name for locked in theirs])
        if wish.is_for is not None:
            able = [each and wish.is_for(own) for each, own in zip(able, needs, strict=True)]
        priorities = [locked.spec.priority for locked in theirs]
        turns = list(map(Turn, execution_ids, priorities, due_at))
        rows, limited = _Rows(execution_ids, theirs, needs, able, turns), UNLIMITED
        if are_limited and not self.abilities.ignored_limits:
            asked = {key for keys, able_ in zip(rows.keys, able, strict=True) if able_ for key in keys}
            limited = lock_limited(self._connection, asked)
            rows = rows.only(
                place for place, keys in enumerate(rows.keys) if not able[place] or not limited.is_busy(keys)
            )
        full: list[str | None] | None = None
        to_start = set(range(start))
        if limited.most:
            values = self._values_of(rows, to_start)
            full, wanting = full_keys(
                self._connection, sql.PREVIEW_WAITING, values, limited, rows.keys, rows.turns, count
            )
            taken = [place for place in wanting if full[place] is None][:count]
            without = rows.only(place for place in wanting if full[place] is not None)
            keep(self._connection, _to_keep(limited, without, {rows.ids[place] for place in taken}))
            to_start = set(taken[:start])
            if len(rows.ids) > count:
                kept = sorted({*taken, *(place for place in wanting if full[place] is not None)})
                rows, full = rows.only(kept), [full[place] for place in kept]
                to_start = {at for at, place in enumerate(kept) if place in to_start}
        elif len(rows.ids) > count:
            rows = rows.only(range(count))
        return self._connection.run(sql.JUDGE_WAITING, {**self._values_of(rows, to_start), "full_keys": full}), limited

    def _values_of(self, rows: _Rows, to_start: Collection[int]) -> dict[str, Any]:
        schedule_ids = [locked.schedule_id for locked in rows.theirs]
        return self._values(rows.ids, schedule_ids, rows.theirs, rows.needs, rows.able, to_start, settling=False)

    def settle(
        self,
        execution_ids: Sequence[UUID],
        schedule_ids: Sequence[UUID],
        theirs: Sequence[Locked | None],
        *,
        hinted: bool,
    ) -> list[Row[Any]]:
        """As a process that can run nothing. `hinted`: before its time, so that only what differs is written."""
        needs = iter(self.abilities.needs_of([locked for locked in theirs if locked], self._connection))
        known = [next(needs) if locked else None for locked in theirs]
        able = [False] * len(theirs)
        values = self._values(execution_ids, schedule_ids, theirs, known, able, (), settling=not hinted)
        return self._connection.run(sql.JUDGE_WAITING, values)

    def _values(
        self,
        execution_ids: Sequence[UUID],
        schedule_ids: Sequence[UUID],
        theirs: Sequence[Locked | None],
        needs: Sequence[Needs | None],
        able: Sequence[bool],
        to_start: Collection[int],
        *,
        settling: bool,
    ) -> dict[str, Any]:
        return {
            **self._always,
            "settling": settling,
            "execution_ids": uuid_array(execution_ids),
            "schedule_ids": uuid_array(schedule_ids),
            "limits": [locked and locked.policy.max_instances for locked in theirs],
            "graces": [locked and locked.policy.misfire_grace_seconds for locked in theirs],
            "enabled": [locked and locked.spec.enabled for locked in theirs],
            "effective_from": [locked and locked.effective_from for locked in theirs],
            "able": flag_array(able),
            "starts": flag_array(place in to_start for place in range(len(theirs))),
            "queues": [locked and locked.spec.queue_name for locked in theirs],
            "needs": [None if each is None else text_array(each) for each in needs],
            "priorities": [locked and locked.spec.priority for locked in theirs],
            "keys": [locked and text_array(locked.spec.all_limit_keys) for locked in theirs],
            "full_keys": None,
        }


def _to_keep(limited: Limited, without_room: _Rows, taken: Collection[UUID]) -> dict[str, Kept]:
    """Of one row, the first that has waited so long; and what is kept no more."""
    kept = (limited.to_keep(*each) for each in zip(without_room.keys, without_room.turns, strict=True))
    return next(filter(None, kept), {}) | limited.to_let_go(taken)


class WaitingStore:
    """For the thread that claims, on its connection."""

    def __init__(self, connection: DedicatedConnection, judge: WaitingJudge) -> None:
        self._connection, self._judge, self._retry = connection, judge, CarefulRetries()
        self._last_reason = ""  # the keys that wait are looked at by turns
        self._passed = 0  # rows to be looked at to get past those of full limits, since the last take met some

    def lanes(self, freed: Collection[str] = (), *, are_next: bool = True) -> list[Lane]:
        """Those in which something is due that this replica is able to run, or that nobody has sorted yet.

        Of what waits for a limit those of the `freed` keys and, if `are_next`, of the next keys that have room. Also
        notes whether a replica of an older version is alive.
        """
        abilities = self._judge.abilities
        unsorted = [] if abilities.waits_for_elders else [UNSORTED]
        values = {
            "queues": [*unsorted, *([] if abilities.elders else abilities.queues)],
            "elders": abilities.elders and not abilities.waits_for_elders,
            "words": None if abilities.elders else abilities.words(),
            "timeout": self._judge.heartbeat_timeout_seconds,
        }
        rows = self._connection.run(sql.LANES, values)
        abilities.elders, abilities.ignored_limits = rows[0].elders, rows[0].ignored_limits
        found = [Lane(row.queue, tuple(row.needs), row.priority, row.due_at) for row in rows if row.queue is not None]
        if abilities.elders and abilities.waits_for_elders:
            return []
        mine = self._mine(found)
        if rows[0].for_limits:
            is_wake = abilities.waits_for_elders and not mine and not freed and are_next
            mine += self._around() if is_wake else self._mine(self._limit_lanes(freed, are_next))
        return sorted(mine, key=lambda lane: (-lane.priority, lane.due_at))

    def _mine(self, lanes: Sequence[Lane]) -> list[Lane]:
        able = self._judge.abilities.able([lane.needs for lane in lanes], [lane.queue for lane in lanes])
        return [lane for lane, is_able in zip(lanes, able, strict=True) if is_able]

    def _around(self) -> list[Lane]:
        """What is for us among the next keys that have any; a wake does not come again for the keys after these."""
        has_begun_anew = not self._last_reason
        for _ in range(MOST_LOOKS):
            if mine := self._mine(self._limit_lanes((), are_next=True)):
                return mine
            if not self._last_reason:
                if has_begun_anew:
                    break
                has_begun_anew = True
        return []

    def _limit_lanes(self, freed: Collection[str], are_next: bool) -> list[Lane]:
        values = {
            "reasons": [LIMIT + key for key in freed],
            "after": self._last_reason if are_next else None,
            "are_ignored": self._judge.abilities.ignored_limits,
            "limit": MOST_TAKEN,
            "most_lanes": sql.MOST_LANES,
        }
        rows = self._connection.run(LIMIT_LANES, values)
        if are_next:
            self._last_reason = rows[0].last if rows[0].seen >= MOST_KEYS else ""
        return [
            Lane(row.queue, tuple(row.needs), row.priority, row.due_at, row.reason, row.room)
            for row in rows
            if row.queue is not None
        ]

    def take(self, count: int, start: int = 0, freed: Collection[str] = (), *, are_next: bool = True) -> TakeReport:
        """Take at most so many rows that are due; the first `start` of them have a worker and are started at once.

        Rows of full limits keep none behind them waiting: where there are some, more rows are locked than are taken.
        """
        return self._take_from(self.lanes(freed, are_next=are_next), Wish(count, start))

    def take_each(
        self, wishes: Sequence[Wish], freed: Collection[str] = (), *, are_next: bool = True
    ) -> Iterator[TakeReport]:
        """`take` for several kinds of workers, with one look at the lanes.

        One after the other: what was taken for the first kind is the caller's before the next one is asked for.
        """
        if len(wishes) == 1 and wishes[0].is_for is None:
            yield self.take(wishes[0].count, wishes[0].start, freed, are_next=are_next)
            return
        lanes = self.lanes(freed, are_next=are_next)
        for wish in wishes:
            yield self._take_from([lane for lane in lanes if wish.wants(lane)], wish)

    def announce_next(self, schedule_id: UUID, limit_keys: Collection[str]) -> None:
        """After an end was committed: a wake for another row of this schedule, or of these limits, found no room."""
        announce_next(self._connection, schedule_id, limit_keys)

    def announce_another(self) -> None:
        """After a take that has passed: the row whose wake it was still waits, without a message."""
        announce_another(self._connection, self._judge.abilities.queues)

    def _take_from(self, lanes: Sequence[Lane], wish: Wish) -> TakeReport:
        if not lanes:
            return TakeReport()
        most = max(wish.count, self._passed)
        report = self._retry(lambda careful: self._take(lanes, wish, most))
        if report.is_blocked and not (report.started or report.claims) and most < MOST_PASSED:
            report = self._retry(lambda careful: self._take(lanes, wish, MOST_PASSED))
            report.more = True
        self._passed = MOST_PASSED if report.is_blocked else 0
        return report

    def _take(self, lanes: Sequence[Lane], wish: Wish, most: int) -> TakeReport:
        report, asked_at = TakeReport(due=True), awake_or_not()
        with self._connection.transaction():
            values = {
                "queues": [lane.queue for lane in lanes],
                "needs": [text_array(lane.needs) for lane in lanes],
                "priorities": [lane.priority for lane in lanes],
                "reasons": [lane.reason for lane in lanes],
                "rooms": number_array(lane.room for lane in lanes),
                "max_instances": self._judge.policy.max_instances,
                "limit": most,
            }
            are_for_limits = any(lane.reason is not None for lane in lanes)
            statement = sql.LOCK_LIMITED_LANES if are_for_limits else sql.LOCK_LANES
            rows = self._connection.run(statement, values)
            if not rows:
                return report
            theirs = [Locked.read(row, self._judge.policy) for row in rows]
            schedules = {locked.schedule_id: locked for locked in theirs}
            ids, are_limited = [row.execution_id for row in rows], rows[0].are_limited
            due_at = [row.due_at for row in rows]
            written, limited = self._judge.judge(ids, theirs, due_at, wish, are_limited=are_limited)
            if any(row.status == ExecutionStatus.PENDING and not row.is_limited for row in written):
                self._connection.run(NOTIFY_PENDING)  # sorted into a lane of somebody else's
        for row in written:
            if row.status in (ExecutionStatus.RUNNING, ExecutionStatus.CLAIMED):
                locked = schedules[row.schedule_id]
                claim = locked.claim(row, row.due_at, limited.of(locked.spec.all_limit_keys), asked_at)
                (report.started if row.status == ExecutionStatus.RUNNING else report.claims).append(claim)
        report.busy = bool(limited.busy)
        report.has_passed = any(row.status == ExecutionStatus.RUNNING and not row.is_announced for row in written)
        report.is_blocked = any(row.is_limited for row in written) or (report.busy and not written)
        report.more = report.busy or any(row.status != ExecutionStatus.PENDING or row.is_limited for row in written)
        return report


@dataclass(frozen=True, slots=True)
class _Look:
    """At the waiting rows of these schedules, from this moment on."""

    schedule_ids: Collection[UUID]
    at: float  # monotonic
    pauses: Sequence[float] = PAUSES  # that are left

    def next(self, now: float) -> "_Look":
        return _Look(self.schedule_ids, now + self.pauses[0], self.pauses[1:])


class Settling:
    """Ends rows that cannot or need not run any more, and sorts the others into their lanes. Gives nobody a token."""

    def __init__(
        self,
        db: DatabaseConnection,
        owner: Owner,
        policy: Policy,
        horizon_seconds: float,
        abilities: Abilities,
        heartbeat_timeout_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._connection = db.dedicated()
        self._judge = WaitingJudge(
            self._connection, owner, policy, horizon_seconds, abilities, heartbeat_timeout_seconds
        )
        self._retry = CarefulRetries()
        self._snapshot: str | None = None  # the changes that it shows were looked at
        self._again: list[_Look] = []

    def close(self) -> None:
        self._connection.close()

    def settle(self, limit: int = SETTLED_AT_ONCE) -> int:
        """Look at those whose time to be looked at has come; returns how many there were."""
        return len(self._settle(sql.LOCK_TO_SETTLE, {"limit": limit}, hinted=False))

    def settle_changed(self, limit: int = SETTLED_AT_ONCE) -> None:
        """Look at those whose schedules were changed or deleted.

        Each is looked at several times, with growing pauses: another session may hold its schedule or its row just now,
        and that of a broken connection does until the server notices.
        """
        now = self._monotonic()
        statement = sql.CHANGED_LATELY if self._snapshot is None else sql.CHANGED
        (found,) = self._connection.run(statement, {"snapshot": self._snapshot})
        looks = [_Look(found.ids or (), now), *self._again]
        due = [look for look in looks if look.at <= now and look.schedule_ids]
        ids, after = uuid_array({schedule_id for look in due for schedule_id in look.schedule_ids}), NO_ID
        while due:
            rows = self._settle(sql.LOCK_CHANGED, {"ids": ids, "after": after, "limit": limit}, hinted=True)
            if len(rows) < limit:
                break
            after = max(row.execution_id for row in rows)
        later = [look for look in looks if look.at > now]
        self._again = later + [look.next(now) for look in due if look.pauses]
        self._snapshot = found.snapshot

    def _settle(self, statement: str, values: dict[str, Any], *, hinted: bool) -> list[Row[Any]]:
        """Those that were locked and looked at."""
        return self._retry(lambda careful: self._settle_once(statement, values, hinted))

    def _settle_once(self, statement: str, values: dict[str, Any], hinted: bool) -> list[Row[Any]]:
        with self._connection.transaction():
            rows = self._connection.run(statement, values)
            if rows:
                theirs = [self._judge.locked(row) for row in rows]
                ids, schedule_ids = [row.execution_id for row in rows], [row.wanted for row in rows]
                written = self._judge.settle(ids, schedule_ids, theirs, hinted=hinted)
                if hinted and any(row.status == ExecutionStatus.PENDING for row in written):
                    self._connection.run(NOTIFY_PENDING)  # a change has moved them into a lane of somebody else's
        return rows
