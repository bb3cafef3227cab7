"""The life of a fire: due -> claimed -> started -> run -> finished. Fires that become due together form a batch.

One thread (`tick`) decides and writes; the pool runs the jobs; the finisher writes the results. A fire leaves this
module only with a row, with another replica's row, or because it is no longer a fire; while Postgres is down it waits.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from sqlalchemy.exc import DBAPIError

from database.clock import DatabaseClock
from services.distributed_lock import Answer, Coordinator
from services.engine.due_queue import whole_schedules
from services.engine.exchange import context_of, ending_of
from services.engine.finisher import Finisher
from services.engine.held_claims import HeldClaims, proof_of
from services.engine.loops import Loop
from services.engine.places import InLoop, Places
from services.engine.pool import WorkerPool
from services.engine.shares.shares import Shares
from services.errors import Unavailable
from services.jobs import ExecutionContext, JobResult
from services.ledger.claims import ClaimReport, ExecutionStore, Wanted, is_about_values
from services.ledger.fires import Claim, Decision, Fire, leases
from services.ledger.waiting import Wish
from services.telemetry import metrics

logger = logging.getLogger(__name__)

NO_ROOM_SECONDS = 1.0  # until other replicas get what waits
TICK_SECONDS = 1.0  # at least; what is due earlier says so
MAX_BATCH = 500
NOT_YET_SECONDS = 0.075
MAX_PROBED = 500  # held schedules that one tick asks about
UNVERIFIED_AGAIN_SECONDS = 1.0
TOGETHER_SECONDS = 0.1
PENDING_POLL_SECONDS = 1.0
BUSY_POLL_SECONDS = 0.1  # while there are some
PATIENCE_SECONDS = 0.5  # of pending rows with fires that are due
HAND_BACK_SECONDS = 5.0


class Dispatcher:
    def __init__(
        self,
        *,
        store: ExecutionStore,
        held: HeldClaims,
        coordinator: Coordinator,
        finisher: Finisher,
        shares: Shares,
        clock: DatabaseClock,
        instance_id: str,
        max_workers: int,
        verify_after_seconds: float,
        may_claim: Callable[[], bool],
        may_give_away: Callable[[], bool],
        fleet_queues: Collection[str] = (),
        in_loop: InLoop | None = None,
    ) -> None:
        self._store, self._held = store, held
        self._coordinator, self._finisher = coordinator, finisher
        self._shares, self._clock, self._instance_id = shares, clock, instance_id
        self._verify_after = verify_after_seconds
        self._may_claim, self._may_give_away = may_claim, may_give_away
        self._fleet_queues = frozenset(fleet_queues)
        finisher.tell(self.look_for_freed)
        self._pool: WorkerPool | None = None
        self._inbox: deque[Fire] = deque()
        self._in_loop = in_loop
        self.threads = Places(max_workers, lambda: held.in_pool)
        self.event_loop: Places | None = None  # without an async handler there is one kind of places
        self._kinds: tuple[Places, ...] = (self.threads,)
        if in_loop is not None:
            self.threads = Places(
                max_workers, lambda: held.in_pool - held.in_loop, lambda needs: not in_loop.is_for(needs)
            )
            self.event_loop = Places(in_loop.most, lambda: held.in_loop, in_loop.is_for)
            self._kinds = (self.threads, self.event_loop)
        self._in_claim: Sequence[Fire] = ()  # of the statement that runs right now
        self._lost: deque[tuple[float, Fire]] = deque()
        self._not_begun: list[Claim] = []  # started, and refused by the pool or taken back from it
        self._pending_at = 0.0
        self._freed: deque[str] = deque()  # limit keys whose waiting rows have not been looked at yet
        self._claims_work = False  # one of the last tick's did
        self._is_leaving = False
        self.given_away = 0  # fires whose rows wait for other replicas
        self.loop = Loop("dispatcher", self.tick, TICK_SECONDS, is_proof=self.claims_work)

    def use(self, pool: WorkerPool) -> None:
        self._pool = pool

    # --- called by other threads ---

    def hand_over(self, fires: Sequence[Fire]) -> None:
        """From the timer: these are due. Never fails and never waits."""
        self._inbox.extend(fires)
        self.loop.wake()

    def look_for_freed(self, keys: Iterable[str]) -> None:
        """From the finisher: places of these limits are free."""
        self._freed.extend(keys)
        self.loop.wake()

    def look_for_pending(self) -> None:
        """Called when a manual run was requested or a row was handed back."""
        self._pending_at = 0.0
        self.loop.wake()

    def done(self, context: ExecutionContext, result: JobResult, duration_seconds: float) -> None:
        """From the pool, once per execution."""
        proof = proof_of(context)
        claim = self._held.find(proof)
        self._held.leave_pool([proof])
        if claim is None:
            return
        self._places_of(claim).ended(duration_seconds)
        self._finisher.put(ending_of(claim, result, duration_seconds))
        self.loop.wake()

    def dropped(self, claims: Sequence[Claim]) -> None:
        """The gate refused them: this replica no longer holds these executions."""
        self._held.leave_pool(claim.proof for claim in claims)
        self._let_go(claims)

    @property
    def queued(self) -> int:
        """Fires that are due and have no row of ours yet."""
        return len(self._inbox) + sum(len(places.waiting) for places in self._kinds)

    @property
    def free_slots(self) -> int:
        """Workers that nothing waits for."""
        return self._unused(self.threads)

    @property
    def free_async_slots(self) -> int:
        return 0 if self.event_loop is None else self._unused(self.event_loop)

    def _unused(self, places: Places) -> int:
        return max(0, places.free - len(places.claimed) - len(self._inbox) - len(places.waiting))

    @property
    def oldest_wait_seconds(self) -> float:
        """Seconds since the oldest of them was due; 0 while there is none."""
        due = [fire.due_at for fire in (*list(self._inbox), *self._in_claim)]
        due += [waiting for places in self._kinds if (waiting := places.waiting.oldest_due_at) is not None]
        return max(0.0, self._clock.timestamp() - min(due).timestamp()) if due else 0.0

    @property
    def held_schedules(self) -> int:
        """Schedules whose fires wait because another session locks the schedule row."""
        return sum(places.waiting.held_schedules for places in self._kinds)

    def leave(self) -> None:
        """From now on nothing is claimed or started here: whatever becomes due is given away."""
        self._is_leaving = True
        self.loop.wake()

    # --- the loop ---

    def tick(self) -> float | None:
        self._claims_work = False
        if self._is_leaving:
            return self._give_away_all()
        self._sort_inbox()
        try:
            self._verify_lost()
            if self._may_claim():
                if time.monotonic() > self._pending_at + PATIENCE_SECONDS:
                    self._claim_pending()  # first, but only a share: neither kind may starve the other
                self._probe_held()
                self._claim_due()
                self._claim_pending()
                for places in self._kinds:
                    self._give_away_some(places)
        finally:  # what is ours already goes its way although nothing more can be claimed
            for places in self._kinds:
                self._start_claimed(places)
            self._hand_back_what_waits()
        return self._seconds_to_next()

    def claims_work(self) -> bool:
        """Did a claim of the last tick succeed, or are all slots taken, which also takes successful claims?

        A tick that may claim nothing, or has nothing to claim, proves nothing.
        """
        return self._claims_work or all(self._room(places) <= 0 for places in self._kinds)

    def drain(self) -> None:
        """Hand back claims that were not started; for the end of the process, after the loop has stopped."""
        for places in self._kinds:
            places.claimed = deque(self._give_back(list(places.claimed)))
        self._unstart_what_has_not_begun()

    def _give_away_some(self, places: Places) -> None:
        """There has been no room for a while: as many fires become rows as other replicas have room for, and all of the
        fleet's, which take no replica's place.
        """
        now = time.monotonic()
        if self._room(places) > 0 or not places.waiting.is_crowded:
            places.full_since = None
            return
        places.full_since = now if places.full_since is None else places.full_since
        if now - places.full_since < NO_ROOM_SECONDS or now < places.give_at or not self._may_give_away():
            return
        in_loop = places is self.event_loop
        if not (most := self._shares.room_elsewhere(in_loop=in_loop)) and not self._fleet_queues:
            return
        places.give_at = now + NO_ROOM_SECONDS  # what nobody wants costs a look each time
        before = self.given_away
        is_able = partial(self._shares.is_able_elsewhere, in_loop=in_loop)
        self._claim(places, self._next_to_give(places, most), Wanted(most, is_able, self._fleet_queues))
        if given := self.given_away - before:
            extra = {"event": "given_away", "fires": given}
            logger.info(
                "no room for %.0f s: gave %d fires to processes with free workers", NO_ROOM_SECONDS, given, extra=extra
            )

    def _next_to_give(self, places: Places, most: int) -> list[Fire]:
        """The most urgent; if only the fleet has room, by turns: a fire does not say whose it is."""
        now = self._clock.timestamp()
        passed_over = places.waiting.take(now, 0 if most else places.passed_over)
        fires = places.waiting.take(now, MAX_BATCH)
        places.passed_over = len(passed_over) + len(fires) if len(fires) >= MAX_BATCH and not most else 0
        self._put_back(passed_over)
        return fires

    def _give_away_all(self) -> float | None:
        """At the end of the process: claims that were not started, fires that are due, and those to be verified."""
        self._not_begun += filter(None, map(self._held.find, map(proof_of, self._the_pool().take_back(0.0))))
        self.drain()
        self._sort_inbox()
        if self._may_give_away():
            now = time.monotonic()
            self._lost = deque((now, fire) for _, fire in self._lost)
            self._verify_lost()
            self._probe_held()
            self._claim_due()
        next_at = min((at for places in self._kinds if (at := places.waiting.next_at()) is not None), default=None)
        return None if next_at is None else max(0.001, next_at - self._clock.timestamp())

    def _sort_inbox(self) -> None:
        while self._inbox:
            fire = self._inbox.popleft()
            at = fire.due_at.timestamp() + self._shares.handicap_seconds(fire.bucket)
            self._places_for(fire).waiting.put(fire, at)

    def _probe_held(self) -> None:
        """Asks with one statement which of the held schedules are free by now."""
        now = self._clock.timestamp()
        for places in self._kinds:
            held = places.waiting.to_probe(now, MAX_PROBED)
            if not held:
                continue
            free: set[UUID] = set()
            try:
                free = self._store.free_schedules(held)
            finally:
                places.waiting.probed(held, free, now)

    def _claim_due(self) -> None:
        """By turns: neither kind of places may starve the other."""
        now = self._clock.timestamp()  # of the tick: what has to wait once more is not tried twice in it
        has_claimed = True
        while has_claimed:
            has_claimed = False
            for places in self._kinds:
                has_claimed |= self._claim_some(places, now)

    def _claim_some(self, places: Places, now: float) -> bool:
        """False: there is no room, or nothing is due."""
        room = self._room(places)
        fires = places.waiting.take(now, min(max(room, places.batch), MAX_BATCH)) if room > 0 else []
        if not fires:
            return False
        answers = self._coordinator.mark_fires([fire.key for fire in fires])
        won = [fire for fire, answer in zip(fires, answers, strict=True) if answer is not Answer.LOST]
        lost = [fire for fire, answer in zip(fires, answers, strict=True) if answer is Answer.LOST]
        metrics.fires_filtered(won=len(won), lost=len(lost))
        verify_at = self._verify_at()
        self._lost.extend((verify_at, fire) for fire in lost)
        # Nothing but other replicas' fires: look at more of them at once next time.
        places.batch = 1 if won else min(2 * max(places.batch, len(fires)), MAX_BATCH)
        claimable, rest = whole_schedules(won, room)
        for fire in rest:
            places.waiting.put(fire, now)  # its mark stays ours
        self._claim(places, claimable)
        return True

    def _claim(self, places: Places, fires: Sequence[Fire], wanted: Wanted | None = None) -> None:
        """Or, if others want them or this replica leaves, give them away."""
        if not fires:
            return
        is_given = self._is_leaving or wanted is not None
        self._in_claim = fires
        try:
            start = 0 if places.claimed else places.startable
            report = self._store.give_away(fires, wanted) if is_given else self._store.claim(fires, start)
        except Exception as error:
            if isinstance(error, Unavailable) or (isinstance(error, DBAPIError) and not is_about_values(error)):
                self._put_back(fires)
                raise
            self._claim_apart(places, fires, wanted)
            return
        finally:
            self._in_claim = ()
        self._claims_work = True
        self._accept(report.claims, report.started)
        metrics.fires_decided(report.decisions.values())
        if is_given:
            self._note_given_away(places, fires, report)
        locked: dict[UUID, list[Fire]] = {}
        for fire, decision in report.decisions.items():
            if decision is Decision.LOCKED:
                locked.setdefault(fire.schedule_id, []).append(fire)
            elif decision is not Decision.CLAIMED:
                self._settle(replace(fire, due_at=report.due_at.get(fire, fire.due_at)), decision)
        if Decision.LATER in report.decisions.values():  # else the next fire of its schedule may still meet it
            self._pending_at = min(self._pending_at, time.monotonic() + BUSY_POLL_SECONDS)
        places.waiting.was_free(fire.schedule_id for fire in fires if not locked or fire.schedule_id not in locked)
        for some in locked.values():
            places.waiting.hold(some, self._clock.timestamp())

    def _note_given_away(self, places: Places, fires: Sequence[Fire], report: ClaimReport) -> None:
        given = sum(each is Decision.LATER for each in report.decisions.values())
        self.given_away += given
        self._shares.note_given_away(max(0, given - report.for_fleet), in_loop=places is self.event_loop)
        self._put_back([fire for fire in fires if fire not in report.decisions])

    def _put_back(self, fires: Sequence[Fire]) -> None:
        """The fires wait for Postgres, or for room; none of them has started."""
        for fire in fires:
            self._places_for(fire).waiting.put(fire, self._clock.timestamp())

    def _claim_apart(self, places: Places, fires: Sequence[Fire], wanted: Wanted | None) -> None:
        """Claim one by one, so that a fire that Postgres refuses does not fail the rest of its batch."""
        if len(fires) == 1:
            logger.exception("fire %s cannot be claimed", fires[0].key, extra={"event": "fire_unclaimable"})
            return
        middle = len(fires) // 2
        try:
            self._claim(places, fires[:middle], wanted)
        except (Unavailable, DBAPIError):
            self._put_back(fires[middle:])
            raise
        self._claim(places, fires[middle:], wanted)

    def _settle(self, fire: Fire, decision: Decision) -> None:
        if decision is Decision.EARLY:
            at = max(fire.due_at.timestamp(), self._clock.timestamp() + NOT_YET_SECONDS)
            self._places_for(fire).waiting.put(fire, at)
        elif decision not in (Decision.EXISTS, Decision.LATER):
            logger.info(
                "fire of %s at %s: %s",
                fire.schedule_id,
                fire.scheduled_for,
                decision,
                extra={"event": "fire_skipped", "schedule_id": str(fire.schedule_id), "outcome": decision.value},
            )

    def _accept(self, claims: Sequence[Claim], started: Sequence[Claim] = ()) -> None:
        asked = len(claims) + len(started)
        started, claims = self._held.accept(started, claims)
        if disowned := asked - len(claims) - len(started):
            logger.warning(
                "discarded %d claims: the answer arrived after this replica had handed the rows back",
                disowned,
                extra={"event": "claims_disowned"},
            )
        self._coordinator.take_leases(leases((*started, *claims)))
        now = time.monotonic()
        for claim in claims:
            self._places_of(claim).claimed.append((now, claim))
        self._run(started)

    def _verify_at(self) -> float:
        """Rounded, so that fires lost shortly after each other are verified by one statement."""
        at = time.monotonic() + self._verify_after
        last = self._lost[-1][0] if self._lost else 0.0
        return last if 0 <= at - last < TOGETHER_SECONDS else at

    def _verify_lost(self) -> None:
        """Redis marked these fires for another replica: a few seconds later each must have its row."""
        now = time.monotonic()
        fires: list[Fire] = []
        while self._lost and self._lost[0][0] <= now and len(fires) < 5 * MAX_BATCH:
            fires.append(self._lost.popleft()[1])
        if not fires:
            return
        try:
            missing = self._store.without_row(fires)
        except Exception:
            self._lost.extend((now, fire) for fire in fires)
            raise
        may_decide = self._may_give_away if self._is_leaving else self._may_claim
        for places in self._kinds:
            some = [fire for fire in missing if self._places_for(fire) is places]
            claimable, rest = whole_schedules(some, self._room(places) if may_decide() else 0)
            self._lost.extend((now + UNVERIFIED_AGAIN_SECONDS, fire) for fire in rest)
            metrics.fires_unverified(len(claimable))
            self._claim(places, claimable)

    def _claim_pending(self) -> None:
        now = time.monotonic()
        wishes, is_poll = [], now >= self._pending_at
        for places in self._kinds:
            if (room := self._room(places)) > 0:
                share = max(1, room // 4) if places.waiting.is_crowded else room
                start = 0 if places.claimed else places.startable
                wishes.append(Wish(min(share, MAX_BATCH), start, places.is_for))
        if not wishes or not (is_poll or self._freed):
            return
        freed = {self._freed.popleft() for _ in range(min(len(self._freed), MAX_BATCH))}
        if is_poll:
            self._pending_at = now + PENDING_POLL_SECONDS  # also if this fails: fires that are due come next
        for report in self._store.waiting.take_each(wishes, sorted(freed), are_next=is_poll):
            self._claims_work = True
            if report.more:
                self._pending_at = now + BUSY_POLL_SECONDS
            self._accept(report.claims, report.started)

    def _start_claimed(self, places: Places) -> None:
        held: list[tuple[float, Claim]] = []
        try:
            while places.claimed and (count := places.startable) > 0:
                self._start(places, min(count, MAX_BATCH, len(places.claimed)), held)
        finally:
            places.claimed.extendleft(reversed(held))  # with the next tick

    def _start(self, places: Places, count: int, held: list[tuple[float, Claim]]) -> None:
        """Start the first `count`; those whose row another session holds are added to `held`."""
        batch = [places.claimed.popleft() for _ in range(count)]
        try:
            report = self._store.start([claim for _, claim in batch])
        except Exception:
            places.claimed.extendleft(reversed(batch))  # nothing was started; whatever it was, they are still ours
            raise
        later = {claim.proof for claim in report.later}
        held += [item for item in batch if item[1].proof in later]
        self._run(report.started)
        settled = later | {claim.proof for claim in report.started}
        self._look_again(places, deque(item for item in batch if item[1].proof not in settled))

    def _look_again(self, places: Places, unstarted: deque[tuple[float, Claim]]) -> None:
        """Read them again: their schedules changed since the claim, or this replica no longer holds them."""
        while unstarted:
            since, claim = unstarted[0]
            try:
                newer = self._store.look_again(claim)
            except Exception:
                places.claimed.extendleft(reversed(unstarted))
                raise
            unstarted.popleft()
            if newer is None:
                self._let_go([claim])
            else:
                self._held.replace(newer)
                self._coordinator.release_leases(leases([claim]))  # its policy may have changed, too
                self._coordinator.take_leases(leases([newer]))
                self._places_of(newer).claimed.append((since, newer))

    def _run(self, started: Sequence[Claim]) -> None:
        if not started:
            return
        pool, now = self._the_pool(), self._clock.now()
        self._enter_pool(started)
        for claim in started:
            try:
                pool.submit(context_of(claim, self._instance_id))
            except RuntimeError as error:
                self._not_begun.append(claim)
                extra = {"event": "not_submitted", "execution_id": str(claim.execution_id)}
                logger.error("execution %s is handed back: %s", claim.execution_id, error, extra=extra)
            else:
                metrics.execution_started(claim, now)

    def _enter_pool(self, started: Sequence[Claim]) -> None:
        if self.event_loop is None:
            self.threads.begins()
            self._held.enter_pool(started)
            return
        for places in self._kinds:
            if some := [claim for claim in started if self._places_of(claim) is places]:
                places.begins()
                self._held.enter_pool(some, in_loop=places is self.event_loop)

    def _hand_back_what_waits(self) -> None:
        """Hand back executions claimed or started ahead that get no slot soon, so that another replica runs them."""
        limit = time.monotonic() - HAND_BACK_SECONDS
        for places in self._kinds:
            stale = [item for item in places.claimed if item[0] < limit]
            if stale:
                fresh = [item for item in places.claimed if item[0] >= limit]
                places.claimed = deque([*self._give_back(stale), *fresh])
            if places.is_overfull:
                in_loop = None if self.event_loop is None else places is self.event_loop
                contexts = self._the_pool().take_back(HAND_BACK_SECONDS, in_loop=in_loop)
                self._not_begun += filter(None, map(self._held.find, map(proof_of, contexts)))
        self._unstart_what_has_not_begun()

    def _unstart_what_has_not_begun(self) -> None:
        if self._not_begun:
            held = self._store.unstart(self._not_begun)
            self.dropped([claim for claim in self._not_begun if claim not in held])
            self._not_begun = held

    def _give_back(self, items: Sequence[tuple[float, Claim]]) -> list[tuple[float, Claim]]:
        """Hand them back; returns those whose row another session holds."""
        if not items:
            return []
        held = {claim.proof for claim in self._store.hand_back([claim for _, claim in items])}
        self._let_go([claim for _, claim in items if claim.proof not in held])
        return [item for item in items if item[1].proof in held]

    def _let_go(self, claims: Sequence[Claim]) -> None:
        self._coordinator.release_leases(leases(claims))
        self._held.forget(claims)

    # --- slots and times ---

    def _room(self, places: Places) -> int:
        return MAX_BATCH if self._is_leaving else places.room  # rows of others

    def _places_for(self, fire: Fire) -> Places:
        """As far as this replica knows; what a claim says about it decides (`_places_of`)."""
        if self.event_loop is None or self._in_loop is None or fire.schedule_id not in self._in_loop.schedules:
            return self.threads
        return self.event_loop

    def _places_of(self, claim: Claim) -> Places:
        if self.event_loop is None or self._in_loop is None:
            return self.threads
        return self.event_loop if self._in_loop.runs(claim.spec.job_type, claim.spec.job_config) else self.threads

    def _seconds_to_next(self) -> float | None:
        soon = [PENDING_POLL_SECONDS]
        # A kind without room has nothing to be early for: a free slot wakes us.
        if roomy := [places for places in self._kinds if self._room(places) > 0] if self._may_claim() else []:
            soon.append(0.0 if self._freed else self._pending_at - time.monotonic())
            nexts = [at for places in roomy if (at := places.waiting.next_at()) is not None]
            if nexts:
                soon.append(min(nexts) - self._clock.timestamp())
        if self._lost:
            soon.append(self._lost[0][0] - time.monotonic())
        return max(0.001, min(soon))

    def _the_pool(self) -> WorkerPool:
        if self._pool is None:
            raise RuntimeError("the dispatcher has no pool yet")
        return self._pool
