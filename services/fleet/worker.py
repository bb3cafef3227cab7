"""One process of the fleet: takes waiting rows of its queues and runs them, one call of `serve` each.

What takes, confirms, runs, ends and writes is the replicas' own (engine/workplace.py). A worker finds nothing by
itself: it has no timer, watcher, gap scan or rescuer; and it never counts as a replica.
"""

import logging
import os
from collections.abc import Callable, Collection, Sequence
from threading import Event
from typing import Any

from sqlalchemy.exc import DBAPIError

from config import VERSION, Settings
from database.backoff import Backoff
from database.connection import ENGINE_IDLE_IN_TRANSACTION_SECONDS
from database.schema import newest_revision, require_schema
from services.engine.exchange import context_of, ending_of
from services.engine.held_claims import HeldClaims, Proof, proof_of
from services.engine.parts import Parts
from services.engine.start_patience import StartPatience
from services.engine.workplace import Workplace
from services.errors import Unavailable
from services.fleet.pings import Pings
from services.jobs import ExecutionContext, JobRegistry, JobResult
from services.ledger.fires import Claim, Owner, leases
from services.ledger.needs import Abilities
from services.ledger.waiting import TakeReport
from services.telemetry import metrics
from services.wording.refusals import first_line

logger = logging.getLogger(__name__)

CONNECTIONS = 5  # heart, claims, results and log lines keep one each; the fifth asks whether a run is still ours
UNREADY_SECONDS = 0.5
TRIES = 6  # while something is due that others hold for a moment, or we may not claim; then the next wake has to come
PAUSES = Backoff(first_seconds=0.02, longest_seconds=0.2, jitter=0.5)


class FleetWorker:
    """`places`: how many calls of `serve` there are at once."""

    def __init__(
        self,
        settings: Settings,
        registry: JobRegistry,
        queues: Collection[str],
        places: int,
        *,
        name: str,
        pool: str,
        parts: Parts | None = None,
    ) -> None:
        self._settings, self._places, self._pool_kind = settings, places, pool
        parts = parts or Parts()
        self.owner = Owner(name, parts.incarnation())
        self._registry, self._threads = registry, parts.threads
        self._stopping = self._threads.event()
        self._taking = self._threads.lock()  # one call claims at a time: HeldClaims and the connection rely on it
        self._over: dict[Proof, Event] = {}
        self._db = parts.database(
            settings,
            pool_size=CONNECTIONS,
            application_name=self.owner.session_name,
            idle_in_transaction_seconds=ENGINE_IDLE_IN_TRANSACTION_SECONDS,
        )
        self._redis = parts.redis(settings)
        labels = settings.ability_labels
        abilities = Abilities.of_registry(registry, labels, queues, waits_for_elders=True)
        self.place = Workplace(settings, parts, self._db, self._redis, self.owner, abilities, HeldClaims(self._forgot))
        self.place.staff(
            places,
            registry,
            self._stopping,
            max_async=places,
            shares=None,
            facts=self._facts,
            done=self._done,
            dropped=self._dropped,
        )
        self._pings = Pings(settings)
        self.place.tell_runs(self._pings.begun, self._pings.ended)
        self.place.loops.add(
            (self.place.heart.loop, self.place.finisher.loop, self.place.journals.loop, self.place.leases),
            on_turn=lambda: None,
        )

    # --- life ---

    def start(self) -> None:
        """Register, so that replicas know what this worker can run; then start the loops."""
        patiently = StartPatience(self._stopping.wait)
        try:
            patiently(lambda: require_schema(self._db))
            patiently(self.place.heart.beat)
        except BaseException:
            self._close()
            raise
        self.place.loops.start()
        words = self.place.abilities.words() or []
        logger.info(
            "worker %s serves %s with %s",
            self.owner.instance_id,
            ", ".join(self.place.abilities.queues),
            ", ".join(words) or "no ability",
            extra={"event": "worker_started", "queues": self.place.abilities.queues, "abilities": words},
        )

    def stop(self, grace_seconds: float = 0.0) -> None:
        """Hand back executions that have not begun, write those that have ended, unregister."""
        self._stopping.set()
        unfinished = self.place.end_pool(grace_seconds)
        self._close()
        logger.info(
            "worker %s stopped with %d unfinished",
            self.owner.instance_id,
            len(unfinished),
            extra={"event": "worker_stopped"},
        )

    def _close(self) -> None:
        self._stopping.set()
        self.place.close()
        self._pings.close()
        for part in (self._redis, self._db):
            part.close()

    @property
    def has_leaked(self) -> bool:
        """A handler that ignored its end is still running."""
        return self.place.pool.leaked > 0

    # --- one execution ---

    def serve(self) -> bool:
        """Take the most urgent waiting row of our queues, run it, and return when its end is written.

        False: there was nothing to take.
        """
        claim = self._take()
        if claim is None:
            return False
        over = self._over[claim.proof]
        self._run(claim)
        over.wait()
        del self._over[claim.proof]
        self._announce_next(claim)
        return True

    def _take(self) -> Claim | None:
        """None also after some tries in vain: the row is announced again, and Celery's shutdown waits for us."""
        tries = 0
        while not self._stopping.is_set() and tries < TRIES:
            if not self._may_claim:
                tries += 1
                self._stopping.wait(UNREADY_SECONDS)
                continue
            try:
                claim, report = self._take_once()
            except (Unavailable, DBAPIError) as error:
                logger.warning("waiting: %s", first_line(error), extra={"event": "server_unavailable"})
                tries += 1
                self._stopping.wait(UNREADY_SECONDS)
                continue
            if claim is not None:
                if report.has_passed:
                    self._announce(self.place.store.waiting.announce_another)
                return claim
            if not report.due:
                return None
            if report.busy or not report.more:  # else others of what was due got their end, or another lane
                tries += 1
                self._stopping.wait(PAUSES.after(tries))
        return None

    def _take_once(self) -> tuple[Claim | None, TakeReport]:
        """One that is running now, if any."""
        place = self.place
        with self._taking:
            report = place.store.waiting.take(1, start=1)
            for claim in report.started:
                self._over[claim.proof] = self._threads.event()
            started, _ = place.held.accept(report.started, ())
            for claim in report.started:
                if claim not in started:  # disowned while the answer was on its way
                    del self._over[claim.proof]
        return (started[0] if started else None), report

    @property
    def _may_claim(self) -> bool:
        place = self.place
        paused = self._settings.lock_failure_policy == "pause" and place.coordinator.degraded
        can_finish = place.loops.trouble("finisher") is None
        return place.heart.is_trusted and place.clock.is_trustworthy and can_finish and not paused

    def _run(self, claim: Claim) -> None:
        place = self.place
        place.coordinator.take_leases(leases([claim]))
        place.held.enter_pool([claim])
        metrics.execution_started(claim, place.clock.now())
        try:
            place.pool.submit(context_of(claim, self.owner.instance_id))
        except RuntimeError as error:  # the process is ending
            logger.error("execution %s is handed back: %s", claim.execution_id, error, extra={"event": "not_submitted"})
            place.gate.turned_away.append(claim)
            self._dropped([claim])

    def _done(self, context: ExecutionContext, result: JobResult, duration_seconds: float) -> None:
        """From the pool, once per execution."""
        proof = proof_of(context)
        claim = self.place.held.find(proof)
        self.place.held.leave_pool([proof])
        if claim is not None:
            self.place.finisher.put(ending_of(claim, result, duration_seconds))

    def _dropped(self, claims: Sequence[Claim]) -> None:
        """The gate refused them: this process no longer holds these executions, or is ending."""
        self.place.held.leave_pool(claim.proof for claim in claims)
        self.place.coordinator.release_leases(leases(claims))
        self.place.held.forget(claims)

    def _forgot(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            if (over := self._over.get(claim.proof)) is not None:
                over.set()

    def _announce_next(self, claim: Claim) -> None:
        """A wake for another row of this schedule, or of its limits, may have found no room."""
        self._announce(lambda: self.place.store.waiting.announce_next(claim.schedule_id, claim.limits))

    def _announce(self, what: Callable[[], None]) -> None:
        try:
            with self._taking:
                what()
        except (Unavailable, DBAPIError) as error:  # it is announced again anyway
            logger.info("%s", first_line(error), extra={"event": "server_unavailable"})

    def _facts(self) -> dict[str, Any]:
        return {
            "revision": 0,
            "schedules": 0,
            "claiming": False,
            "on_duty": False,
            "free_slots": 0,  # nobody gives it anything away
            "running": len(self.place.pool.running),
            "version": VERSION,
            "schema": newest_revision(),
            "pid": os.getpid(),
            "max_workers": self._places,
            "pool": self._pool_kind,
            "redis_degraded": self.place.coordinator.degraded,
            "leaked_threads": self.place.pool.leaked,
            "job_types": sorted(self._registry.handled()),
        }
