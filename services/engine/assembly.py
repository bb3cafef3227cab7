"""Wires the engine of one replica: the parts that process a fire and the parts that supervise them.

timer -> dispatcher -> claims -> pool -> finisher; the gate before each handler; heart and rescuer. What runs and writes
is in workplace.py; the composition root (services/enhanced_scheduler.py) adds the layers above: the watcher, the gap
scan's view of it, the features.
"""

import logging
import time
from collections.abc import Callable
from threading import Event
from typing import Any

from config import Settings
from database.connection import DatabaseConnection
from services.engine.condition import Condition
from services.engine.dispatcher import Dispatcher
from services.engine.finisher import MadeRoom
from services.engine.gauges import Gauges
from services.engine.held_claims import HeldClaims
from services.engine.loops import Loop
from services.engine.parts import Parts
from services.engine.places import InLoop
from services.engine.rescuer import Rescuer
from services.engine.settler import Settler
from services.engine.shares.shares import Shares
from services.engine.workplace import Workplace, tolerating_outage
from services.jobs import JobRegistry
from services.ledger.fires import Owner
from services.ledger.needs import JOB, Abilities
from services.ledger.waiting import Settling
from services.redis_client import RedisClient

logger = logging.getLogger(__name__)

HAND_OVER_SECONDS = 0.2  # between two heartbeats of a replica that ends
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
        self.in_loop = in_loop_of(registry, settings.max_async_workers)
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
            may_give_away=lambda: self.condition.may_give_away,
            fleet_queues=settings.fleet_queues,
            in_loop=self.in_loop,
        )
        self.staff(
            max_workers,
            registry,
            stopping,
            max_async=settings.max_async_workers,
            shares=self.shares,
            facts=lambda: {
                **facts(),
                **self.condition.for_heartbeat(),
                "free_slots": self.dispatcher.free_slots,
                **self._async_facts(),
            },
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
        looping = (self.dispatcher, self.finisher, self.heart, self.rescuer, self.settler, self.journals, gauges)
        self.add_loops(*(part.loop for part in looping), self.leases)

    def tell_fleet(self, made_room: MadeRoom) -> None:
        """Sets what is called when places are free again; the fleet's workers look for nothing by themselves."""
        self.finisher.tell_fleet(made_room)
        self.rescuer.tell_fleet(made_room)

    def _async_facts(self) -> dict[str, int]:
        """Of a replica that has async handlers."""
        if self.in_loop is None:
            return {}
        return {"free_async_slots": self.dispatcher.free_async_slots, "max_async_workers": self.in_loop.most}

    def add_loops(self, *loops: Loop) -> None:
        self.loops.add(loops, on_turn=self.condition.announce)

    def drain(self, grace_seconds: float) -> int:
        """Hand over the share, wait for running executions, hand back the rest; returns the number of unfinished."""
        until = time.monotonic() + grace_seconds
        self.pool.warn()
        self._hand_over(until)
        self.timer.stop()
        if self.loops.stop(*CLAIMING_LOOPS):
            tolerating_outage(self.dispatcher.drain)
        return len(self.end_pool(max(0.0, until - time.monotonic())))

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

    def close(self) -> None:
        self.timer.stop()
        super().close()
        for part in (self.rescuer, self.settler):
            part.close()


def in_loop_of(registry: JobRegistry, most: int) -> InLoop | None:
    """None without an async handler: then all is as if there were no event loop."""
    types = registry.async_types()
    if not types:
        return None
    words = frozenset(f"{JOB}{name}" for name in types)
    return InLoop(most, registry.is_async, types, set(), lambda needs: not words.isdisjoint(needs))
