"""What every process that runs executions has, whoever found them: a replica (assembly.py) or a worker of the fleet.

The claims it holds, the stores that write their rows, the finisher, the heart, and the pool behind its gate.
"""

import logging
import socket
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

from sqlalchemy.exc import DBAPIError

from config import Settings
from database.connection import DatabaseConnection
from services.distributed_lock import Coordinator
from services.engine.finisher import Finisher
from services.engine.heart import Heart, Pulse
from services.engine.held_claims import HeldClaims, proof_of
from services.engine.journals import Journals
from services.engine.loops import LONGEST_PAUSE_SECONDS, Loop, Loops
from services.engine.ownership import Gate
from services.engine.parts import Parts
from services.engine.pool import OnDone, WorkerPool
from services.engine.shares.shares import Shares
from services.errors import Unavailable
from services.jobs import ExecutionContext, JobRegistry
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Claim, Ending, Owner, Policy
from services.ledger.logs import LogStore
from services.ledger.needs import Abilities
from services.redis_client import RedisClient
from services.wording.refusals import first_line, is_busy

logger = logging.getLogger(__name__)

MARK_SECONDS = 600.0  # a fire's mark in Redis outlives every replica that is late by clock or load
LAST_WRITES_SECONDS = 5.0
LAST_LINES_SECONDS = 2.0


class Workplace:
    """Built in two steps: `staff` needs the functions that are called when an execution ends."""

    heart: Heart
    gate: Gate
    pool: WorkerPool

    def __init__(
        self,
        settings: Settings,
        parts: Parts,
        db: DatabaseConnection,
        redis: RedisClient,
        owner: Owner,
        abilities: Abilities,
        held: HeldClaims,
    ) -> None:
        self._settings, self._parts, self._db, self.owner = settings, parts, db, owner
        self.policy, self.horizon = Policy.from_settings(settings), settings.fence_horizon_seconds
        self.clock = parts.clock(settings.max_clock_skew_seconds)
        self.pulse = Pulse(
            settings.heartbeat_interval_seconds,
            settings.heartbeat_timeout_seconds,
            sees_sessions=not settings.database_transaction_pooler,
        )
        self.loops = Loops(min(LONGEST_PAUSE_SECONDS, max(1.0, settings.heartbeat_interval_seconds)), parts.threads)
        self.abilities, self.held = abilities, held
        self.coordinator = Coordinator(
            redis, owner=str(owner.incarnation), lease_seconds=settings.lock_timeout, mark_seconds=MARK_SECONDS
        )
        timeout = settings.heartbeat_timeout_seconds
        self.store = ExecutionStore(
            db, owner, self.policy, self.horizon, abilities=abilities, heartbeat_timeout_seconds=timeout
        )
        self.finish_store = ExecutionStore(db, owner, self.policy, self.horizon)
        self.finisher = Finisher(self.finish_store, held, self.coordinator)
        self._begun: Callable[[ExecutionContext], None] = lambda context: None
        self.journals = Journals(LogStore(db), settings.execution_log_max_bytes)
        self.leases = Loop("leases", self.coordinator.renew, settings.lock_timeout / 3)

    def staff(
        self,
        max_workers: int,
        registry: JobRegistry,
        stopping: Event,
        *,
        max_async: int,
        shares: Shares | None,
        facts: Callable[[], dict[str, Any]],
        done: OnDone,
        dropped: Callable[[Sequence[Claim]], None],
    ) -> None:
        """`facts` are the values that a heartbeat reports besides abilities and host."""
        self.heart = Heart(
            self._db,
            self.owner,
            self.clock,
            shares,
            self.held,
            self.pulse,
            facts=lambda: {
                **facts(),
                **self.abilities.for_heartbeat(),
                "host": self._settings.host_name or socket.gethostname(),
            },
            cancel=lambda execution_id: self.pool.cancel(execution_id),
        )
        self.gate = Gate(self.heart, self.held, stopping, dropped)
        self.pool = WorkerPool(
            max_workers,
            registry,
            done,
            max_async=max_async,
            may_run=self.gate.may_run,
            is_sure=self.gate.is_sure,
            answer=self.gate.answer,
            on_begin=lambda context: self._begun(context),
            journals=self.journals,
            threads=self._parts.threads,
        )

    def tell_runs(self, begun: Callable[[Claim | None], None], ended: Callable[[Ending], None]) -> None:
        """Sets what is called when a handler starts and with each written end; neither may wait for anything."""
        self._begun = lambda context: begun(self.held.find(proof_of(context)))
        self.finisher.tell_ends(ended)

    def end_pool(self, grace_seconds: float) -> list[ExecutionContext]:
        """Wait for running executions, hand back those whose handler was never called, write what has ended.

        Returns the unfinished.
        """
        unfinished = self.pool.shutdown(grace_seconds)
        tolerating_outage(lambda: self._give_back(unfinished))
        self.finisher.write_what_is_left(LAST_WRITES_SECONDS)
        self.journals.write_what_is_left(LAST_LINES_SECONDS)
        return unfinished

    def _give_back(self, unfinished: list[ExecutionContext]) -> None:
        waiting = [self.held.find(proof_of(context)) for context in unfinished if not context.begun]
        self.store.unstart([*self.gate.turned_away, *(claim for claim in waiting if claim is not None)])

    def close(self) -> None:
        """Leave no thread and no connection behind, even after an incomplete start."""
        self.loops.stop()
        self.pool.shutdown(0)
        tolerating_outage(self.heart.stop)  # what is unfinished is rescued at once: its owner is gone
        for part in (self.store, self.finish_store, self.journals):
            part.close()


def tolerating_outage(action: Callable[[], None]) -> None:
    """At the end of the process nothing waits for Postgres or a lock: the others rescue what is not handed back."""
    try:
        action()
    except (Unavailable, DBAPIError) as error:
        if isinstance(error, DBAPIError) and not is_busy(error):
            raise
        logger.warning("%s", first_line(error), extra={"event": "server_unavailable"})
