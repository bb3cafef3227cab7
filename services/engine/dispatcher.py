"""The life of a fire: due -> claimed -> started -> run -> finished. Fires that become due together form a batch.

One thread (`tick`) decides and writes; the pool runs the jobs; the finisher writes the results. A fire leaves this
module only with a row, with another replica's row, or because it is no longer a fire; while Postgres is down it waits.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from sqlalchemy.exc import DBAPIError

from database.clock import DatabaseClock
from services.distributed_lock import Answer, Coordinator
from services.engine.due_queue import DueQueue, whole_schedules
from services.engine.exchange import context_of, ending_of
from services.engine.finisher import Finisher
from services.engine.held_claims import HeldClaims, proof_of
from services.engine.loops import Loop
from services.engine.pool import WorkerPool
from services.engine.shares.shares import Shares
from services.errors import Unavailable
from services.jobs import ExecutionContext, JobResult
from services.ledger.claims import ClaimReport, ExecutionStore, Wanted, is_about_values
from services.ledger.fires import Claim, Decision, Fire, leases
from services.telemetry import metrics

logger = logging.getLogger(__name__)

NO_ROOM_SECONDS = 1.0  # until other replicas get what waits
TICK_SECONDS = 1.0  # at least; what is due earlier says so
AHEAD_SECONDS = 0.25  # of its own throughput that a replica claims beyond its free slots
START_AHEAD_SECONDS = 0.1
MAX_AHEAD = 500
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
    ) -> None:
        self._store, self._held = store, held
        self._coordinator, self._finisher = coordinator, finisher
        self._shares, self._clock, self._instance_id = shares, clock, instance_id
        self._max_workers, self._verify_after = max_workers, verify_after_seconds
        self._may_claim, self._may_give_away = may_claim, may_give_away
        self._fleet_queues = frozenset(fleet_queues)
        finisher.tell(self.look_for_freed)
        self._pool: WorkerPool | None = None
        self._inbox: deque[Fire] = deque()
        self._waiting = DueQueue()
        self._in_claim: Sequence[Fire] = ()  # of the statement that runs right now
        self._lost: deque[tuple[float, Fire]] = deque()
        self._claimed: deque[tuple[float, Claim]] = deque()
        self._not_begun: list[Claim] = []  # started, and refused by the pool or taken back from it
        self._pending_at = 0.0
        self._freed: deque[str] = deque()  # limit keys whose waiting rows have not been looked at yet
        self._job_seconds: float | None = None
        self._moved_at = 0.0  # when the pool last got its first job, or ended one
        self._batch = 1
        self._claims_work = False  # one of the last tick's did
        self._is_leaving = False
        self._full_since: float | None = None  # since when fires wait and there is no room
        self._give_at = 0.0
        self._passed_over = 0  # of what waits here, in the search for fires of the fleet
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
        self._moved_at = time.monotonic()
        before = self._job_seconds
        self._job_seconds = duration_seconds if before is None else 0.9 * before + 0.1 * duration_seconds
        self._finisher.put(ending_of(claim, result, duration_seconds))
        self.loop.wake()

    def dropped(self, claims: Sequence[Claim]) -> None:
        """The gate refused them: this replica no longer holds these executions."""
        self._held.leave_pool(claim.proof for claim in claims)
        self._let_go(claims)

    @property
    def queued(self) -> int:
        """Fires that are due and have no row of ours yet."""
        return len(self._inbox) + len(self._waiting)

    @property
    def free_slots(self) -> int:
        """Workers that nothing waits for."""
        return max(0, self._free() - len(self._claimed) - self.queued)

    @property
    def oldest_wait_seconds(self) -> float:
        """Seconds since the oldest of them was due; 0 while there is none."""
        due = [fire.due_at for fire in (*list(self._inbox), *self._in_claim)]
        if (waiting := self._waiting.oldest_due_at) is not None:
            due.append(waiting)
        return max(0.0, self._clock.timestamp() - min(due).timestamp()) if due else 0.0

    @property
    def held_schedules(self) -> int:
        """Schedules whose fires wait because another session locks the schedule row."""
        return self._waiting.held_schedules

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
                self._give_away_some()
        finally:  # what is ours already goes its way although nothing more can be claimed
            self._start_claimed()
            self._hand_back_what_waits()
        return self._seconds_to_next()

    def claims_work(self) -> bool:
        """Did a claim of the last tick succeed, or are all slots taken, which also takes successful claims?

        A tick that may claim nothing, or has nothing to claim, proves nothing.
        """
        return self._claims_work or self._room() <= 0

    def drain(self) -> None:
        """Hand back claims that were not started; for the end of the process, after the loop has stopped."""
        self._claimed = deque(self._give_back(list(self._claimed)))
        self._unstart_what_has_not_begun()

    def _give_away_some(self) -> None:
        """There has been no room for a while: as many fires become rows as other replicas have room for, and all of the
        fleet's, which take no replica's place.
        """
        now = time.monotonic()
        if self._room() > 0 or not self._waiting.is_crowded:
            self._full_since = None
            return
        self._full_since = now if self._full_since is None else self._full_since
        if now - self._full_since < NO_ROOM_SECONDS or now < self._give_at or not self._may_give_away():
            return
        if not (most := self._shares.room_elsewhere) and not self._fleet_queues:
            return
        self._give_at = now + NO_ROOM_SECONDS  # what nobody wants costs a look each time
        before = self.given_away
        self._claim(self._next_to_give(most), Wanted(most, self._shares.is_able_elsewhere, self._fleet_queues))
        if given := self.given_away - before:
            extra = {"event": "given_away", "fires": given}
            logger.info(
                "no room for %.0f s: gave %d fires to processes with free workers", NO_ROOM_SECONDS, given, extra=extra
            )

    def _next_to_give(self, most: int) -> list[Fire]:
        """The most urgent; if only the fleet has room, by turns: a fire does not say whose it is."""
        now = self._clock.timestamp()
        passed_over = self._waiting.take(now, 0 if most else self._passed_over)
        fires = self._waiting.take(now, MAX_BATCH)
        self._passed_over = len(passed_over) + len(fires) if len(fires) >= MAX_BATCH and not most else 0
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
        next_at = self._waiting.next_at()
        return None if next_at is None else max(0.001, next_at - self._clock.timestamp())

    def _sort_inbox(self) -> None:
        while self._inbox:
            fire = self._inbox.popleft()
            self._waiting.put(fire, fire.due_at.timestamp() + self._shares.handicap_seconds(fire.bucket))

    def _probe_held(self) -> None:
        """Asks with one statement which of the held schedules are free by now."""
        now = self._clock.timestamp()
        held = self._waiting.to_probe(now, MAX_PROBED)
        if not held:
            return
        free: set[UUID] = set()
        try:
            free = self._store.free_schedules(held)
        finally:
            self._waiting.probed(held, free, now)

    def _claim_due(self) -> None:
        now = self._clock.timestamp()  # of the tick: what has to wait once more is not tried twice in it
        while (room := self._room()) > 0:
            fires = self._waiting.take(now, min(max(room, self._batch), MAX_BATCH))
            if not fires:
                return
            answers = self._coordinator.mark_fires([fire.key for fire in fires])
            won = [fire for fire, answer in zip(fires, answers, strict=True) if answer is not Answer.LOST]
            lost = [fire for fire, answer in zip(fires, answers, strict=True) if answer is Answer.LOST]
            metrics.fires_filtered(won=len(won), lost=len(lost))
            verify_at = self._verify_at()
            self._lost.extend((verify_at, fire) for fire in lost)
            # Nothing but other replicas' fires: look at more of them at once next time.
            self._batch = 1 if won else min(2 * max(self._batch, len(fires)), MAX_BATCH)
            claimable, rest = whole_schedules(won, room)
            for fire in rest:
                self._waiting.put(fire, now)  # its mark stays ours
            self._claim(claimable)

    def _claim(self, fires: Sequence[Fire], wanted: Wanted | None = None) -> None:
        """Or, if others want them or this replica leaves, give them away."""
        if not fires:
            return
        is_given = self._is_leaving or wanted is not None
        self._in_claim = fires
        try:
            start = 0 if self._claimed else self._startable()
            report = self._store.give_away(fires, wanted) if is_given else self._store.claim(fires, start)
        except Exception as error:
            if isinstance(error, Unavailable) or (isinstance(error, DBAPIError) and not is_about_values(error)):
                self._put_back(fires)
                raise
            self._claim_apart(fires, wanted)
            return
        finally:
            self._in_claim = ()
        self._claims_work = True
        self._accept(report.claims, report.started)
        metrics.fires_decided(report.decisions.values())
        if is_given:
            self._note_given_away(fires, report)
        locked: dict[UUID, list[Fire]] = {}
        for fire, decision in report.decisions.items():
            if decision is Decision.LOCKED:
                locked.setdefault(fire.schedule_id, []).append(fire)
            elif decision is not Decision.CLAIMED:
                self._settle(replace(fire, due_at=report.due_at.get(fire, fire.due_at)), decision)
        if Decision.LATER in report.decisions.values():  # else the next fire of its schedule may still meet it
            self._pending_at = min(self._pending_at, time.monotonic() + BUSY_POLL_SECONDS)
        self._waiting.was_free(fire.schedule_id for fire in fires if fire.schedule_id not in locked)
        for some in locked.values():
            self._waiting.hold(some, self._clock.timestamp())

    def _note_given_away(self, fires: Sequence[Fire], report: ClaimReport) -> None:
        given = sum(each is Decision.LATER for each in report.decisions.values())
        self.given_away += given
        self._shares.note_given_away(max(0, given - report.for_fleet))
        self._put_back([fire for fire in fires if fire not in report.decisions])

    def _put_back(self, fires: Sequence[Fire]) -> None:
        """The fires wait for Postgres, or for room; none of them has started."""
        for fire in fires:
            self._waiting.put(fire, self._clock.timestamp())

    def _claim_apart(self, fires: Sequence[Fire], wanted: Wanted | None) -> None:
        """Claim one by one, so that a fire that Postgres refuses does not fail the rest of its batch."""
        if len(fires) == 1:
            logger.exception("fire %s cannot be claimed", fires[0].key, extra={"event": "fire_unclaimable"})
            return
        middle = len(fires) // 2
        try:
            self._claim(fires[:middle], wanted)
        except (Unavailable, DBAPIError):
            self._put_back(fires[middle:])
            raise
        self._claim(fires[middle:], wanted)

    def _settle(self, fire: Fire, decision: Decision) -> None:
        if decision is Decision.EARLY:
            self._waiting.put(fire, max(fire.due_at.timestamp(), self._clock.timestamp() + NOT_YET_SECONDS))
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
        self._claimed.extend((now, claim) for claim in claims)
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
        claimable, rest = whole_schedules(missing, self._room() if may_decide() else 0)
        self._lost.extend((now + UNVERIFIED_AGAIN_SECONDS, fire) for fire in rest)
        metrics.fires_unverified(len(claimable))
        self._claim(claimable)

    def _claim_pending(self) -> None:
        now = time.monotonic()
        room, is_poll = self._room(), now >= self._pending_at
        if room <= 0 or not (is_poll or self._freed):
            return
        share = max(1, room // 4) if self._waiting.is_crowded else room
        freed = {self._freed.popleft() for _ in range(min(len(self._freed), MAX_BATCH))}
        if is_poll:
            self._pending_at = now + PENDING_POLL_SECONDS  # also if this fails: fires that are due come next
        start = 0 if self._claimed else self._startable()
        report = self._store.waiting.take(min(share, MAX_BATCH), start, sorted(freed), are_next=is_poll)
        self._claims_work = True
        if report.more:
            self._pending_at = now + BUSY_POLL_SECONDS
        self._accept(report.claims, report.started)

    def _start_claimed(self) -> None:
        held: list[tuple[float, Claim]] = []
        try:
            while self._claimed and (count := self._startable()) > 0:
                self._start(min(count, MAX_BATCH, len(self._claimed)), held)
        finally:
            self._claimed.extendleft(reversed(held))  # with the next tick

    def _start(self, count: int, held: list[tuple[float, Claim]]) -> None:
        """Start the first `count`; those whose row another session holds are added to `held`."""
        batch = [self._claimed.popleft() for _ in range(count)]
        try:
            report = self._store.start([claim for _, claim in batch])
        except Exception:
            self._claimed.extendleft(reversed(batch))  # nothing was started; whatever it was, they are still ours
            raise
        later = {claim.proof for claim in report.later}
        held += [item for item in batch if item[1].proof in later]
        self._run(report.started)
        settled = later | {claim.proof for claim in report.started}
        self._look_again(deque(item for item in batch if item[1].proof not in settled))

    def _look_again(self, unstarted: deque[tuple[float, Claim]]) -> None:
        """Read them again: their schedules changed since the claim, or this replica no longer holds them."""
        while unstarted:
            since, claim = unstarted[0]
            try:
                newer = self._store.look_again(claim)
            except Exception:
                self._claimed.extendleft(reversed(unstarted))
                raise
            unstarted.popleft()
            if newer is None:
                self._let_go([claim])
            else:
                self._held.replace(newer)
                self._coordinator.release_leases(leases([claim]))  # its policy may have changed, too
                self._coordinator.take_leases(leases([newer]))
                self._claimed.append((since, newer))

    def _run(self, started: Sequence[Claim]) -> None:
        if not started:
            return
        pool, now = self._the_pool(), self._clock.now()
        if not self._held.in_pool:
            self._moved_at = time.monotonic()
        self._held.enter_pool(started)
        for claim in started:
            try:
                pool.submit(context_of(claim, self._instance_id))
            except RuntimeError as error:
                self._not_begun.append(claim)
                extra = {"event": "not_submitted", "execution_id": str(claim.execution_id)}
                logger.error("execution %s is handed back: %s", claim.execution_id, error, extra=extra)
            else:
                metrics.execution_started(claim, now)

    def _hand_back_what_waits(self) -> None:
        """Hand back executions claimed or started ahead that get no slot soon, so that another replica runs them."""
        limit = time.monotonic() - HAND_BACK_SECONDS
        stale = [item for item in self._claimed if item[0] < limit]
        if stale:
            self._claimed = deque([*self._give_back(stale), *(item for item in self._claimed if item[0] >= limit)])
        if self._held.in_pool > self._max_workers:
            contexts = self._the_pool().take_back(HAND_BACK_SECONDS)
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

    def _room(self) -> int:
        if self._is_leaving:
            return MAX_BATCH  # rows of others
        return self._free() + self._ahead(AHEAD_SECONDS) - len(self._claimed)

    def _startable(self) -> int:
        return max(0, self._free() + self._ahead(START_AHEAD_SECONDS))

    def _free(self) -> int:
        """Slots without a job; negative when more was started than runs at once."""
        return self._max_workers - self._held.in_pool

    def _ahead(self, seconds: float) -> int:
        """How many jobs the pool finishes in that time, estimated from recent and current jobs."""
        if self._job_seconds is None:
            return 0
        standstill = time.monotonic() - self._moved_at if self._held.in_pool else 0.0
        return min(MAX_AHEAD, int(seconds * self._max_workers / max(self._job_seconds, standstill, 0.0005)))

    def _seconds_to_next(self) -> float | None:
        soon = [PENDING_POLL_SECONDS]
        if self._may_claim() and self._room() > 0:  # else there is nothing to be early for: a free slot wakes us
            soon.append(0.0 if self._freed else self._pending_at - time.monotonic())
            if (next_at := self._waiting.next_at()) is not None:
                soon.append(next_at - self._clock.timestamp())
        if self._lost:
            soon.append(self._lost[0][0] - time.monotonic())
        return max(0.001, min(soon))

    def _the_pool(self) -> WorkerPool:
        if self._pool is None:
            raise RuntimeError("the dispatcher has no pool yet")
        return self._pool
