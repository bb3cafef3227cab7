"""Wires the engine of one replica: the parts that process a fire and the parts that supervise them.

timer -> dispatcher -> claims -> pool -> finisher; the gate before each handler; heart and rescuer. The composition root
(services/enhanced_scheduler.py) adds the layers above: the watcher, the gap scan's view of it, the features.
"""

import logging
import socket
import time
from collections.abc import Callable
from threading import Event
from typing import Any

from sqlalchemy.exc import DBAPIError

from config import Settings
from database.connection import DatabaseConnection
from services.distributed_lock import Coordinator
from services.engine.condition import Condition
from services.engine.dispatcher import Dispatcher
from services.engine.finisher import Finisher
from services.engine.gauges import Gauges
from services.engine.heart import Heart, Pulse
from services.engine.held_claims import HeldClaims, proof_of
from services.engine.journals import Journals
from services.engine.loops import LONGEST_PAUSE_SECONDS, Loop, Loops
from services.engine.ownership import Gate
from services.engine.parts import Parts
from services.engine.pool import WorkerPool
from services.engine.rescuer import Rescuer
from services.engine.settler import Settler
from services.engine.shares.shares import Shares
from services.errors import Unavailable
from services.jobs import ExecutionContext, JobRegistry
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Owner, Policy
from services.ledger.logs import LogStore
from services.ledger.needs import Abilities
from services.ledger.waiting import Settling
from services.redis_client import RedisClient
from services.wording.refusals import first_line, is_busy

logger = logging.getLogger(__name__)

MARK_SECONDS = 600.0  # a fire's mark in Redis outlives every replica that is late by clock or load
LAST_WRITES_SECONDS = 5.0
LAST_LINES_SECONDS = 2.0
HAND_OVER_SECONDS = 0.2  # between two heartbeats of a replica that ends
CLAIMING_LOOPS = ("watcher", "gap-scan", "rescuer", "settler", "api-sync", "dispatcher")


class Engine:
    """`facts` are the values that a heartbeat reports besides `claiming`."""

    def __init__(
        self,
        settings: Settings,
        parts: Parts,
        db: DatabaseConnection,
        redis: RedisClient,
        owner: Owner,
        registry: JobRegistry,
        max_workers: int,
        stopping: Event,
        *,
        facts: Callable[[], dict[str, Any]],
        is_started: Callable[[], bool],
    ) -> None:
        self.policy, horizon = Policy.from_settings(settings), settings.fence_horizon_seconds
        self.clock = parts.clock(settings.max_clock_skew_seconds)
        pulse = Pulse(
            settings.heartbeat_interval_seconds,
            settings.heartbeat_timeout_seconds,
            sees_sessions=not settings.database_transaction_pooler,
        )
        self.loops = Loops(min(LONGEST_PAUSE_SECONDS, max(1.0, settings.heartbeat_interval_seconds)), parts.threads)
        self.shares = Shares(
            owner.instance_id,
            owner.incarnation,
            copies=settings.timer_copies,
            timeout_seconds=pulse.timeout_seconds,
            gap_seconds=pulse.gap_seconds,
        )
        self.held = HeldClaims()
        self.coordinator = Coordinator(
            redis, owner=str(owner.incarnation), lease_seconds=settings.lock_timeout, mark_seconds=MARK_SECONDS
        )
        self.abilities = Abilities.of_registry(registry, settings.ability_labels, settings.served_queues)
        timeout = settings.heartbeat_timeout_seconds
        self.store = ExecutionStore(
            db, owner, self.policy, horizon, abilities=self.abilities, heartbeat_timeout_seconds=timeout
        )
        self.settler = Settler(Settling(db, owner, self.policy, horizon, self.abilities, timeout))
        self.finish_store = ExecutionStore(db, owner, self.policy, horizon)
        self.finisher = Finisher(self.finish_store, self.held, self.coordinator)
        self.dispatcher = Dispatcher(
            store=self.store,
            held=self.held,
            coordinator=self.coordinator,
            finisher=self.finisher,
            shares=self.shares,
            clock=self.clock,
            instance_id=owner.instance_id,
            max_workers=max_workers,
            verify_after_seconds=settings.verify_after_seconds,
            may_claim=lambda: self.condition.may_claim,
            may_give_away=lambda: self.condition.may_give_away,
        )
        self.heart = Heart(
            db,
            owner,
            self.clock,
            self.shares,
            self.held,
            pulse,
            facts=lambda: {
                **facts(),
                **self.condition.for_heartbeat(),
                **self.abilities.for_heartbeat(),
                "free_slots": self.dispatcher.free_slots,
                "host": settings.host_name or socket.gethostname(),
            },
            cancel=lambda execution_id: self.pool.cancel(execution_id),
        )
        self.gate = Gate(self.heart, self.held, stopping, self.dispatcher.dropped)
        self.journals = Journals(LogStore(db), settings.execution_log_max_bytes)
        self.pool = WorkerPool(
            max_workers,
            registry,
            self.dispatcher.done,
            may_run=self.gate.may_run,
            journals=self.journals,
            threads=parts.threads,
        )
        self.dispatcher.use(self.pool)
        self.timer = parts.timer(self.dispatcher.hand_over, self.clock)
        self.rescuer = Rescuer(
            db,
            self.coordinator,
            self.policy,
            self.heart,
            interval_seconds=settings.rescue_interval_seconds,
            rescued=self.dispatcher.look_for_pending,
        )
        self.condition = Condition(
            self.heart,
            self.clock,
            self.coordinator,
            self.timer,
            self.loops,
            stopping,
            shares=self.shares,
            pauses_without_redis=settings.lock_failure_policy == "pause",
            is_started=is_started,
        )
        gauges = Gauges(
            db, self.timer, self.dispatcher, self.pool, self.finisher, self.coordinator, self.condition, self.shares
        )
        leases = Loop("leases", self.coordinator.renew, settings.lock_timeout / 3)
        looping = (self.dispatcher, self.finisher, self.heart, self.rescuer, self.settler, self.journals, gauges)
        self.add_loops(*(part.loop for part in looping), leases)

    def add_loops(self, *loops: Loop) -> None:
        self.loops.add(loops, on_turn=self.condition.announce)

    def drain(self, grace_seconds: float) -> int:
        """Hand over the share, wait for running executions, hand back the rest; returns the number of unfinished."""
        until = time.monotonic() + grace_seconds
        self.pool.warn()
        self._hand_over(until)
        self.timer.stop()
        if self.loops.stop(*CLAIMING_LOOPS):
            _tolerating_outage(self.dispatcher.drain)
        unfinished = self.pool.shutdown(max(0.0, until - time.monotonic()))
        _tolerating_outage(lambda: self._give_back(unfinished))
        self.finisher.write_what_is_left(LAST_WRITES_SECONDS)
        self.journals.write_what_is_left(LAST_LINES_SECONDS)
        return len(unfinished)

    def _hand_over(self, until: float) -> None:
        """The others learn by heartbeats that they have to load our buckets. Until then, our fires become their rows.

        Heartbeats that Postgres does not take tell nobody anything: there is nothing to wait for.
        """
        self.shares.leave()
        self.dispatcher.leave()
        while not self.shares.are_held_elsewhere and self.heart.is_fresh and time.monotonic() < until:
            self.loops.wake("heart")
            time.sleep(HAND_OVER_SECONDS)
        if given_away := self.dispatcher.given_away:
            logger.info("gave away %d fires that came due meanwhile", given_away, extra={"event": "handed_over"})

    def _give_back(self, unfinished: list[ExecutionContext]) -> None:
        """Hand back executions whose handler was never called, so that another replica runs them."""
        waiting = [self.held.find(proof_of(context)) for context in unfinished if not context.begun]
        self.store.unstart([*self.gate.turned_away, *(claim for claim in waiting if claim is not None)])

    def close(self) -> None:
        """Leave no thread and no connection behind, even after an incomplete start."""
        self.timer.stop()
        self.loops.stop()
        self.pool.shutdown(0)
        _tolerating_outage(self.heart.stop)  # what is unfinished is rescued at once: its owner is gone
        for part in (self.store, self.finish_store, self.rescuer, self.settler, self.journals):
            part.close()


def _tolerating_outage(action: Callable[[], None]) -> None:
    """At the end of the process nothing waits for Postgres or a lock: the others rescue what is not handed back."""
    try:
        action()
    except (Unavailable, DBAPIError) as error:
        if isinstance(error, DBAPIError) and not is_busy(error):
            raise
        logger.warning("%s", first_line(error), extra={"event": "server_unavailable"})
