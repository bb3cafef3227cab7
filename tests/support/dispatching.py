"""A replica's dispatcher with its pool, finisher and store, in this process and without loops: tests call `tick`."""

import asyncio
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from database.clock import DatabaseClock
from services.distributed_lock import Coordinator
from services.engine.assembly import in_loop_of
from services.engine.dispatcher import Dispatcher
from services.engine.finisher import Finisher
from services.engine.held_claims import HeldClaims
from services.engine.pool import WorkerPool
from services.engine.shares.shares import EveryBucket, Shares
from services.jobs import ExecutionContext, JobRegistry
from services.ledger.claims import ExecutionStore
from services.redis_client import RedisClient


@dataclass(frozen=True, slots=True)
class Parts:
    dispatcher: Dispatcher
    finisher: Finisher
    held: HeldClaims
    coordinator: Coordinator
    ran: list[UUID]  # the executions whose handler was called
    gate: threading.Event  # handlers wait for it; open unless a test closes it


@contextmanager
def dispatching(
    store: ExecutionStore,
    redis: RedisClient,
    max_workers: int = 2,
    verify_after_seconds: float = 0,
    shares: Shares | None = None,
    fleet_queues: Collection[str] = (),
    max_async: int = 0,  # without it there is no async handler
) -> Iterator[Parts]:
    ran: list[UUID] = []
    gate = threading.Event()
    gate.set()
    registry = JobRegistry()

    @registry.job("noop")
    def _noop(context: ExecutionContext, config: dict[str, Any]) -> None:
        ran.append(context.execution_id)
        gate.wait(60)

    if max_async:

        @registry.job("waits")
        async def _waits(context: ExecutionContext, config: dict[str, Any]) -> None:
            ran.append(context.execution_id)
            await asyncio.to_thread(gate.wait, 60)

    coordinator = Coordinator(redis, owner=str(uuid4()), lease_seconds=60, mark_seconds=60)
    held = HeldClaims()
    finisher = Finisher(store, held, coordinator)
    dispatcher = Dispatcher(
        store=store,
        held=held,
        coordinator=coordinator,
        finisher=finisher,
        shares=shares or EveryBucket(),
        clock=DatabaseClock(5),
        instance_id="replica",
        max_workers=max_workers,
        verify_after_seconds=verify_after_seconds,
        may_claim=lambda: True,
        may_give_away=lambda: True,
        fleet_queues=fleet_queues,
        in_loop=in_loop_of(registry, max_async),
    )
    pool = WorkerPool(max_workers, registry, dispatcher.done, answer=lambda _context: True)
    dispatcher.use(pool)
    yield Parts(dispatcher, finisher, held, coordinator, ran, gate)
    gate.set()
    pool.shutdown(5)
