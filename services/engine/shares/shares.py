"""Which buckets this replica loads, drops, tries first and scans.

The heart reports who lives (`update`), the watcher what it has loaded and dropped; the dispatcher asks who is first.
An error of membership costs load or 150 ms, never a fire: every holder tries every fire of its buckets, and a bucket is
dropped only by a replica without duty for it, after those with the duty have shown for a heartbeat timeout that they
hold it.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from math import ceil
from uuid import UUID

from services.engine.shares.membership import Member, Membership
from services.engine.shares.orders import duties, trying
from services.schedules.buckets import ALL, BUCKETS, NONE, UNKNOWN, buckets_in, set_of, to_bytes

# The next one in line tries so much later; it then finds the mark of the first, or takes over.
HANDICAP_SECONDS = 0.15
LONGEST_HANDICAP_SECONDS = 0.45
LAST = 99  # whatever the number of holders
ANNOUNCE_SECONDS = 1.0  # at most one extra heartbeat in this time
EVERY = frozenset(range(BUCKETS))

Steady = tuple[tuple[tuple[str, UUID], ...], float]  # those with the duty that show a bucket, and since when


class Shares:
    """One replica's view. Thread-safe: each method takes one lock for moments, and none calls out."""

    def __init__(
        self, instance_id: str, incarnation: UUID, *, copies: int, timeout_seconds: float, gap_seconds: float
    ) -> None:
        self._name, self._identity, self._copies = instance_id, (instance_id, incarnation), copies
        self._timeout, self._gap = timeout_seconds, gap_seconds
        self._lock = threading.Lock()
        self._membership = Membership()
        self._on_duty: tuple[tuple[str, str | None], ...] = ()
        self._duty: Sequence[tuple[str, ...]] = [()] * BUCKETS
        self._with_our_name = self._own_duty = NONE
        self._mask = NONE
        self._steady: dict[int, Steady] = {}  # of buckets that others have the duty for, and we still hold
        self._updated_at: float | None = None
        self._ranks: dict[int, int] = {}
        self._first: tuple[dict[int, int], int, list[int]] | None = None  # where they have us first, of what we held
        self._is_told, self._told_at = True, float("-inf")
        self._is_leaving = False
        self._given_away = [0, 0]  # since the last reading, for threads and for event loops

    # --- from the heart ---

    def update(self, found: Collection[Member], *, can_tell: bool, now: float, gone: Iterable[UUID] = ()) -> None:
        """After each heartbeat. Unless this replica has been alive itself (`can_tell`), nobody is taken for dead."""
        membership = Membership.of(found)
        with self._lock:
            if not can_tell:
                membership = membership.with_those_missing(self._membership, gone)
            membership = membership.with_own(*self._identity, self._mask)
            is_other = membership.triers != self._membership.triers
            self._membership, self._given_away = membership, [0, 0]
            if is_other:
                self._ranks = {}  # after the members: see _rank
            self._set_duty()
            if self._updated_at is None or now - self._updated_at > self._gap:
                self._steady = {}  # we have not seen what they showed meanwhile
            self._updated_at = now
            self._note_steady(now)

    @property
    def known(self) -> set[UUID]:
        """The processes of the last reading."""
        membership = self._membership
        return {each.incarnation for each in (*membership.members, *membership.elders)}

    @property
    def mask(self) -> bytes:
        """What a heartbeat says; from then on the change is announced."""
        with self._lock:
            self._is_told = True
            return to_bytes(self._mask)

    @property
    def held_mask(self) -> bytes:
        return to_bytes(self._mask)

    # --- from the watcher ---

    def next_to_load(self, most: int) -> list[int]:
        """Buckets of our duty that we lack: first those that nobody holds, then our first duty, then the rest."""
        with self._lock:
            missing = self._own_duty & ~self._mask
            if not missing:
                return []
            orphaned = NONE if self._membership.elders else missing & ~self._membership.held
            first = [bucket for bucket in buckets_in(missing) if self._duty[bucket][0] == self._name]
            ordered = dict.fromkeys((*buckets_in(orphaned), *first, *buckets_in(missing)))
            return list(ordered)[: max(1, most)]

    def loaded(self, buckets: Iterable[int]) -> None:
        self._hold(self._mask | set_of(buckets))

    def dropped(self, buckets: Collection[int]) -> None:
        """To be called before the entries go: from then on we do not count as one that tries."""
        self._hold(self._mask & ~set_of(buckets), dropped=buckets)

    def to_drop(self, now: float) -> list[int]:
        """Held, of others' duty, and shown by them in every heartbeat that we have read for one timeout."""
        with self._lock:
            read_at = self._updated_at
            if read_at is None or now - read_at > self._gap:
                return []
            return [bucket for bucket, (_, since) in self._steady.items() if read_at - since >= self._timeout]

    def announce(self, wake_heart: Callable[[], None], now: float) -> None:
        """Others need not wait for the next heartbeat to hear what we hold."""
        with self._lock:
            if self._is_told or now - self._told_at < ANNOUNCE_SECONDS:
                return
            self._told_at = now
        wake_heart()

    # --- at the end of the process ---

    def leave(self) -> None:
        """From now on this replica tries a fire only if no other one does."""
        with self._lock:
            self._is_leaving, self._ranks = True, {}

    @property
    def are_held_elsewhere(self) -> bool:
        """May this replica end, and no fire waits for that to be noticed?

        Only a reading that shows that we do not claim counts: of two holders that leave at once, the one that reads
        later sees that the other one has left, too. Without another replica nobody takes over, however long we wait.
        """
        with self._lock:
            members = self._membership.members
            if self._updated_at is None or any(each.identity == self._identity and each.claiming for each in members):
                return False
            others = [each for each in members if each.claiming and each.identity != self._identity]
            held = NONE
            for each in others:
                held |= each.holds if each.is_fresh and each.holds is not None else NONE
            return not others or bool(self._membership.elders) or not self._mask & ~held

    # --- from the dispatcher and the gap scan ---

    def handicap_seconds(self, bucket: int) -> float:
        """How long this replica waits before it tries a fire: nothing if it is first among those that hold it."""
        return min(self._rank(bucket) * HANDICAP_SECONDS, LONGEST_HANDICAP_SECONDS)

    def room_elsewhere(self, *, in_loop: bool = False) -> int:
        """How many fires may be given away before the next reading: of the free slots, our part among the full."""
        with self._lock:
            free = [each.free(in_loop=in_loop) for each in self._others_that_run()]
            return max(0, ceil(sum(free) / (free.count(0) + 1)) - self._given_away[in_loop])

    def is_able_elsewhere(self, needs: Iterable[str], queue: str, *, in_loop: bool = False) -> bool:
        """Is a replica with a free slot able to run it?"""
        wanted = frozenset(needs)
        with self._lock:
            others = self._others_that_run()
            return any(each.free(in_loop=in_loop) and each.is_able(wanted, queue) for each in others)

    def note_given_away(self, count: int, *, in_loop: bool = False) -> None:
        with self._lock:
            self._given_away[in_loop] += count

    def first_in(self) -> list[int]:
        """The held buckets in which this replica is first."""
        ranks, mask = self._ranks, self._mask  # in this order: what is stale goes with its dict
        known = self._first
        if known is None or known[0] is not ranks or known[1] != mask:
            known = self._first = (ranks, mask, [bucket for bucket in buckets_in(mask) if self._rank(bucket) == 0])
        return known[2].copy()

    @property
    def is_first_to_count(self) -> bool:
        """Among the replicas that count streaks. One of a version before is first in its buckets, too, but does not."""
        members = self._membership.members
        able = [each.identity for each in members if each.claiming and each.counts_streaks]
        return bool(able) and min(able) == self._identity

    # --- what people read ---

    @property
    def elders(self) -> tuple[str, ...]:
        """Living replicas of the version before: they hold everything and are in no order of ours."""
        return tuple(each.instance_id for each in self._membership.elders)

    @property
    def held(self) -> int:
        return self._mask.bit_count()

    @property
    def duty(self) -> int:
        return self._own_duty.bit_count()

    @property
    def lacking(self) -> int:
        """Buckets of our duty that are not loaded yet."""
        return (self._own_duty & ~self._mask).bit_count()

    @property
    def orphaned(self) -> int:
        """Buckets that no living replica holds and tries."""
        return 0 if self._membership.elders else (ALL & ~self._membership.held).bit_count()

    # --- under the lock ---

    def _others_that_run(self) -> list[Member]:
        members = self._membership.members
        return [each for each in members if each.claiming and each.is_fresh and each.identity != self._identity]

    def _hold(self, mask: int, dropped: Iterable[int] = ()) -> None:
        with self._lock:
            self._mask = mask
            self._membership = self._membership.with_own(*self._identity, mask)
            for bucket in dropped:
                self._steady.pop(bucket, None)
            self._is_told = False

    def _set_duty(self) -> None:
        """The orders change only with the set of those on duty."""
        places = tuple((each.instance_id, each.host) for each in self._membership.on_duty)
        if places != self._on_duty:
            self._on_duty = places
            self._duty = duties(places, self._copies)
            self._with_our_name = set_of(bucket for bucket in range(BUCKETS) if self._name in self._duty[bucket])
        is_member = any(each.identity == self._identity for each in self._membership.on_duty)
        self._own_duty = self._with_our_name if is_member else NONE

    def _note_steady(self, now: float) -> None:
        by_name = {each.instance_id: each for each in self._membership.members}
        steady: dict[int, Steady] = {}
        for bucket in buckets_in(self._mask & ~self._own_duty):
            holders = [by_name[name] for name in self._duty[bucket]]
            if len(holders) < self._copies:  # also none at all: while everybody pauses, everybody keeps what it holds
                continue
            if all(each.claiming and each.is_fresh and each.holds_bucket(bucket) for each in holders):
                who = tuple(each.identity for each in holders)
                former = self._steady.get(bucket)
                steady[bucket] = former if former is not None and former[0] == who else (who, now)
        self._steady = steady

    def _rank(self, bucket: int) -> int:
        """Our place, from 0, among the holders that claim; the last if we leave, or a newer process has our name.

        We count as a holder: whoever does not hold the bucket has no fires of it to try.
        """
        if bucket == UNKNOWN:
            return 0
        rank = self._ranks.get(bucket)
        if rank is None:
            ranks, members = self._ranks, self._membership.members  # in this order: a stale rank goes with its dict
            is_replaced = any(each.instance_id == self._name and each.identity != self._identity for each in members)
            names = {each.instance_id for each in members if each.claiming and each.holds_bucket(bucket)}
            is_last = is_replaced or (self._is_leaving and bool(names - {self._name}))
            rank = LAST if is_last else trying(bucket, names | {self._name}).index(self._name)
            ranks[bucket] = rank
        return rank


class EveryBucket(Shares):
    """A replica alone in the world, with the duty for everything; for programs and tests without a heart."""

    def __init__(self) -> None:
        super().__init__("only", UUID(int=0), copies=1, timeout_seconds=0, gap_seconds=0)
        self._own_duty, self._duty = ALL, [("only",)] * BUCKETS
