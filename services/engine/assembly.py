"""Wires the engine of one replica: the parts that process a fire and the parts that supervise them.

timer -> dispatcher -> claims -> pool -> finisher; the gate before each handler; heart and rescuer. What runs and writes
is in workplace.py; the composition root (services/enhanced_scheduler.py) adds the layers above: the watcher, the gap
scan's view of it, the features.
"""

from collections.abc import Callable
from threading import Event
from typing import Any

from config import Settings
from database.connection import DatabaseConnection
from services.engine.condition import Condition
from services.engine.dispatcher import Dispatcher
from services.engine.gauges import Gauges
from services.engine.held_claims import HeldClaims
from services.engine.loops import Loop
from services.engine.parts import Parts
from services.engine.rescuer import Rescuer
from services.engine.settler import Settler
from services.engine.shares.shares import Shares
from services.engine.workplace import Workplace, tolerating_outage
from services.jobs import JobRegistry
from services.ledger.fires import Owner
from services.ledger.needs import Abilities
from services.ledger.waiting import Settling
from services.redis_client import RedisClient

CLAIMING_LOOPS = ("watcher", "gap-scan", "rescuer", "settler", "api-sync", "dispatcher")


class Engine(Workplace):
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
        abilities = Abilities.of_registry(registry, settings.ability_labels, settings.served_queues)
        super().__init__(settings, parts, db, redis, owner, abilities, HeldClaims())
        timeout = settings.heartbeat_timeout_seconds
        self.shares = Shares(
            owner.instance_id,
            owner.incarnation,
            copies=settings.timer_copies,
            timeout_seconds=timeout,
            gap_seconds=self.pulse.gap_seconds,
        )
        self.settler = Settler(Settling(db, owner, self.policy, self.horizon, abilities, timeout))
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
        )
        self.staff(
            max_workers,
            registry,
            stopping,
            shares=self.shares,
            facts=lambda: {**facts(), **self.condition.for_heartbeat()},
            done=self.dispatcher.done,
            dropped=self.dispatcher.dropped,
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
        looping = (self.dispatcher, self.finisher, self.heart, self.rescuer, self.settler, gauges)
        self.add_loops(*(part.loop for part in looping), self.leases)

    def add_loops(self, *loops: Loop) -> None:
        self.loops.add(loops, on_turn=self.condition.announce)

    def drain(self, grace_seconds: float) -> int:
        """Stop the timer, stop claiming, wait for running executions, hand back the rest; returns the unfinished."""
        self.timer.stop()
        if self.loops.stop(*CLAIMING_LOOPS):
            tolerating_outage(self.dispatcher.drain)
        return len(self.end_pool(grace_seconds))

    def close(self) -> None:
        self.timer.stop()
        super().close()
        for part in (self.rescuer, self.settler):
            part.close()
