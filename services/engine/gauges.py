"""Updates the Prometheus gauges of a replica's parts once a second."""

from dataclasses import asdict
from typing import cast

from sqlalchemy import QueuePool

from database.connection import DatabaseConnection
from services.distributed_lock import Coordinator
from services.engine.condition import Condition
from services.engine.dispatcher import Dispatcher
from services.engine.finisher import Finisher
from services.engine.loops import Loop
from services.engine.pool import WorkerPool
from services.engine.shares.shares import Shares
from services.engine.timer import Timer
from services.telemetry import metrics

INTERVAL_SECONDS = 1.0


class Gauges:
    def __init__(
        self,
        db: DatabaseConnection,
        timer: Timer,
        dispatcher: Dispatcher,
        pool: WorkerPool,
        finisher: Finisher,
        coordinator: Coordinator,
        condition: Condition,
        shares: Shares,
    ) -> None:
        self._db, self._timer, self._dispatcher, self._pool = db, timer, dispatcher, pool
        self._finisher, self._coordinator, self._condition = finisher, coordinator, condition
        self._shares = shares
        self.loop = Loop("gauges", self.tick, INTERVAL_SECONDS)

    def tick(self) -> None:
        metrics.observe_pools(
            running=len(self._pool.running),
            workers=self._pool.max_workers,
            leaked=self._pool.leaked,
            connections=cast(QueuePool, self._db.engine.pool).checkedout(),
        )
        if (event_loop := self._dispatcher.event_loop) is not None:
            metrics.observe_async(running=event_loop.most - event_loop.free, workers=event_loop.most)
        metrics.SCHEDULES.set(len(self._timer))  # fewer without a change, too: some have fired for the last time
        shares = self._shares
        metrics.observe_buckets(held=shares.held, duty=shares.duty, orphaned=shares.orphaned)
        metrics.QUEUED.set(self._dispatcher.queued)
        metrics.OLDEST.set(self._dispatcher.oldest_wait_seconds)
        metrics.HELD.set(self._dispatcher.held_schedules)
        metrics.UNWRITTEN.set(self._finisher.unwritten)
        self._coordinator.watch()
        metrics.DEGRADED.set(int(self._coordinator.degraded))
        metrics.observe_coordinator(asdict(self._coordinator.stats()))
        self._condition.announce()
