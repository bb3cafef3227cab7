"""One replica: builds the parts, starts them, and stops them in order. Start reading here.

timer -> dispatcher -> pool -> finisher      the way of a fire
watcher                                      the table's changes into the timer
heart, rescuer, gap scan                     life signs, dead replicas, holes
"""

import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, cast
from uuid import uuid4

if __name__ == "__main__":  # `python services/enhanced_scheduler.py` has services/ on the path, not the project
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from sqlalchemy import QueuePool
from sqlalchemy.exc import DBAPIError

from config import Settings, get_settings
from database.clock import DatabaseClock
from database.connection import ENGINE_IDLE_IN_TRANSACTION_SECONDS, DatabaseConnection
from database.schema import newest_revision, require_schema
from services.api_sync import ReplicaSync
from services.api_sync.replica import LOOK_SECONDS, TICK_PATIENCE_SECONDS
from services.distributed_lock import Coordinator
from services.engine.dispatcher import Dispatcher
from services.engine.finisher import Finisher
from services.engine.gap_scan.scanner import GapScanner
from services.engine.held_claims import HeldClaims, Proof
from services.engine.loops import LONGEST_PAUSE_SECONDS, Loop, Outages
from services.engine.peers import Peers
from services.engine.pool import WorkerPool
from services.engine.recovery import Heart, Pulse, Rescuer
from services.engine.timer import Timer
from services.errors import SchedulerError, Unavailable
from services.job_history import JobHistory
from services.jobs import ExecutionContext, default_registry
from services.ledger.bounds import CatchupLimits
from services.ledger.claims import ExecutionStore
from services.ledger.fires import Claim, Owner, Policy
from services.redis_client import RedisClient
from services.scanning.cookies.categories import CategoryRules
from services.scanning.retention import ScanRetention
from services.schedule_watcher import ScheduleWatcher
from services.telemetry import metrics
from services.telemetry.health import HealthServer
from services.telemetry.logs import configure_logging
from services.triggers import tzdata_version
from services.wording.refusals import refusal
from services.workflows.replica import WATCH_SECONDS, ReplicaWorkflows

logger = logging.getLogger(__name__)

VERSION = "0.1.0"
MARK_SECONDS = 600.0  # a fire's mark in Redis outlives every replica that is late by clock or load
TIDY_SECONDS = 3600.0
CENSUS_SECONDS = 60.0
HISTORY_SIZE = """SELECT greatest(reltuples, 0)::bigint, pg_total_relation_size(oid) FROM pg_class
                  WHERE oid = 'job_executions'::regclass"""
UNCONFIRMED_SECONDS = 0.5
SIGNAL_SECONDS = 1.0
FIRES_WAY = ("dispatcher", "finisher", "watcher", "heart")  # loops without which nothing runs, and the timer
ENGINE_CONNECTIONS = 8  # five parts keep one each, the others share the rest; jobs have a pool of their own
# A burst makes many objects that live for a moment and few cycles; with Python's own thresholds a fifth of its CPU time
# goes into looking for them.
COLLECT_RARELY = 50_000, 20, 20


class EnhancedScheduler:
    """Loads schedules from Postgres and runs each fire once, together with any number of other replicas."""

    def __init__(
        self,
        max_workers: int | None = None,
        enable_api_sync: bool | None = None,
        api_sync_interval: int | None = None,
        schedule_check_interval: int | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings or get_settings()
        self.max_workers = max_workers or self.settings.max_workers
        self.schedule_check_interval = schedule_check_interval or self.settings.schedule_check_interval
        self.syncs = self.settings.syncs_from_api if enable_api_sync is None else enable_api_sync
        self.api_sync_interval = api_sync_interval or self.settings.api_sync_interval
        self.owner = Owner(self.settings.instance_id, uuid4())
        self._stopping = threading.Event()
        self._orders: SimpleQueue[None] = SimpleQueue()
        self._started = False
        self._not_run: list[Claim] = []
        self._loops: list[Loop] = []
        self._outages = Outages()
        self._told_claiming: bool | None = None  # by the last heartbeat
        self._idle_since: datetime | None = None
        self.db = DatabaseConnection.from_settings(
            self.settings,
            pool_size=ENGINE_CONNECTIONS,
            application_name=session_name(self.owner),
            idle_in_transaction_seconds=ENGINE_IDLE_IN_TRANSACTION_SECONDS,
        )
        self.api_sync = ReplicaSync(self.settings, self.db, self.api_sync_interval, self._stopping)
        self.workflows = ReplicaWorkflows(self.settings, self.db)

    # --- life ---

    def start(self) -> None:
        """Start all parts and return; `stop` ends them."""
        if self._stopping.is_set() or self._started:
            raise SchedulerError("this scheduler was started already; make a new EnhancedScheduler")
        for warning in self.settings.warnings:
            logger.warning("%s", warning, extra={"event": "setting_without_effect"})
        default_registry.load_built_in()
        default_registry.load_modules(self.settings.job_modules)
        metrics.job_types_known(default_registry.job_types())
        CategoryRules.load(self.settings.scan_cookie_rules_file)  # a broken table ends us here, not the first scan
        self._build()
        try:
            require_schema(self.db)  # else every claim would fail, one by one
            self._start_parts()
        except BaseException:
            self._close_parts()
            raise
        self._started = True
        logger.info(
            "replica %s runs with %d workers", self.owner.instance_id, self.max_workers, extra={"event": "started"}
        )

    def run(self) -> None:
        """Start and stay until SIGTERM or SIGINT, then drain."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self.start()
        self._wait_for_the_end()
        self.stop()

    def _wait_for_the_end(self) -> None:
        """An Event would not do: its set() in a signal handler can wait for the wait() that it interrupts.

        With a timeout, because a signal that comes just before a thread begins to wait does not wake it.
        """
        while True:
            with suppress(Empty):
                return self._orders.get(timeout=SIGNAL_SECONDS)

    def stop(self) -> None:
        """Stop the timer, stop claiming, wait for what runs, hand back the rest, unregister."""
        self._stopping.set()
        self._orders.put(None)
        if not self._started:
            return
        self._started = False
        self._announce_claiming()
        logger.info("draining", extra={"event": "draining"})
        self.timer.stop()
        if self._stop_loops("watcher", "gap-scan", "rescuer", "api-sync", "dispatcher"):
            _tolerating_outage(self.dispatcher.drain)
        unfinished = self.pool.shutdown(self.settings.shutdown_grace_seconds)
        _tolerating_outage(lambda: self._give_back_unstarted(unfinished))
        self._write_what_is_left()
        self._stop_loops("finisher", "leases", "heart", "gauges", "tidy", "census", "queues")
        self._close_parts()
        logger.info("stopped with %d unfinished", len(unfinished), extra={"event": "stopped"})

    def sync_schedules_from_api(self) -> dict[str, int]:
        """Fetch the external API's schedules now; returns `{'created': …, 'updated': …, 'skipped': …}`."""
        if self.settings.api_url is None:
            logger.warning("API_URL is not set: there is nothing to sync from", extra={"event": "sync_without_url"})
            return {"created": 0, "updated": 0, "skipped": 0}
        return self.api_sync.sync_now().documented_counts

    def _start_parts(self) -> None:
        self.health.start()  # first: a port in use must end us before anybody has heard of us
        self.heart.beat()  # before anything is claimed: the others must know us, and we the clock
        self.workflows.install()
        for loop in self._loops:
            loop.start()
        self.timer.start()

    def _close_parts(self) -> None:
        """Leave no thread, no port and no connection behind; also after a start that went only half the way."""
        self.timer.stop()
        for loop in self._loops:
            loop.stop()
        self.pool.shutdown(0)
        _tolerating_outage(self.heart.stop)  # what is unfinished is rescued at once: its owner is gone
        self.health.stop()
        for part in (self.store, self.finish_store, self.rescuer, self.watcher, self.redis, self.db):
            part.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._orders.put(None)

    def _give_back_unstarted(self, unfinished: list[ExecutionContext]) -> None:
        """What was started ahead of a worker and never reached its handler may run elsewhere."""
        waiting = [self.held.find(_proof(context)) for context in unfinished if not context.begun]
        self.store.unstart([*self._not_run, *(claim for claim in waiting if claim is not None)])

    def _write_what_is_left(self) -> None:
        deadline = time.monotonic() + 5
        while self.finisher.unwritten and time.monotonic() < deadline:
            self.finisher.wake()
            time.sleep(0.02)

    def _stop_loops(self, *names: str) -> bool:
        """False if one of them still hangs in a call of its own: what it uses is not ours to use."""
        ended = [loop.stop() for loop in self._loops if loop.name in names]
        return all(ended)

    # --- health ---

    @property
    def may_claim(self) -> bool:
        """What the dispatcher asks. That it fails itself is no reason to stop: by trying it finds out that it is over.

        What cannot be written down when it ends is not begun, so the finisher's failures are one.
        """
        return self.heart.is_trusted and not self._stopping.is_set() and not self._obstacles() and self._can_finish

    @property
    def claiming(self) -> bool:
        """What is told, everywhere: it may claim, and all loops on the way of a fire make progress."""
        return self.heart.is_trusted and self._would_claim

    @property
    def _would_claim(self) -> bool:
        """The same for a heartbeat, which is the proof of life itself once it is written."""
        return not self._stopping.is_set() and not self._obstacles() and not self._failing_loops()

    @property
    def _can_finish(self) -> bool:
        return all(loop.trouble is None for loop in self._loops if loop.name == "finisher")

    def _obstacles(self) -> list[str]:
        """Why nothing may be claimed although all parts work."""
        reasons = []
        if not self.clock.is_trustworthy:
            reasons.append(f"the clock is {self.clock.skew_seconds:.1f} s off Postgres'")
        if self.coordinator.degraded and self.settings.lock_failure_policy == "pause":
            reasons.append("Redis does not answer and LOCK_FAILURE_POLICY is pause")
        return reasons

    def _failing_loops(self) -> list[str]:
        """What keeps fires from running although they may: loops that fail again and again, or stand still."""
        troubles: dict[str, list[str]] = {}
        for loop in self._loops:
            if loop.name in FIRES_WAY and loop.trouble is not None:
                troubles.setdefault(loop.trouble, []).append(loop.name)
        reasons = [f"failing again and again: {', '.join(names)} ({trouble})" for trouble, names in troubles.items()]
        stalled = {name: seconds for name, seconds in self.liveness().items() if name in (*FIRES_WAY, self.timer.name)}
        return reasons + [f"standing still: {name}, for {seconds:.0f} s" for name, seconds in stalled.items()]

    def _announce_claiming(self) -> None:
        """The others, and people, need not wait for the next heartbeat to hear that this replica starts or stops."""
        metrics.CLAIMING.set(int(self.claiming))
        if self._would_claim != self._told_claiming:
            for loop in self._loops:
                if loop.name == "heart":
                    loop.wake()

    def liveness(self) -> dict[str, float]:
        """Loops that made no progress lately, with the seconds since their last; empty means alive."""
        if not self._started:
            return {}  # while it starts or drains some stand still on purpose
        parts: list[Timer | Loop] = [self.timer, *self._loops]
        return {part.name: part.stalled_seconds() for part in parts if not part.is_live}

    def readiness(self) -> list[str]:
        """Why this replica does not do its work right now; empty means ready."""
        reasons = [] if self._started else ["draining" if self._stopping.is_set() else "starting"]
        if not self.heart.is_trusted:
            reasons.append("no heartbeat could be written lately: is Postgres there?")
        return [*reasons, *self._obstacles(), *self._failing_loops()]

    # --- parts ---

    def _build(self) -> None:
        settings = self.settings
        self.redis = RedisClient.from_settings(settings)
        self.clock = DatabaseClock(settings.max_clock_skew_seconds)
        self.policy = default_policy(settings)
        self.coordinator = Coordinator(
            self.redis,
            owner=str(self.owner.incarnation),
            lease_seconds=settings.lock_timeout,
            mark_seconds=MARK_SECONDS,
        )
        self.peers = Peers(self.owner.instance_id)
        horizon = settings.fence_horizon_seconds
        handled = default_registry.handled
        self.store = ExecutionStore(self.db, self.owner, self.policy, horizon, handled=handled)
        self.finish_store = ExecutionStore(self.db, self.owner, self.policy, horizon)
        self.held = HeldClaims()
        self.finisher = Finisher(self.finish_store, self.held, self.coordinator)
        self.dispatcher = Dispatcher(
            store=self.store,
            held=self.held,
            coordinator=self.coordinator,
            finisher=self.finisher,
            peers=self.peers,
            clock=self.clock,
            instance_id=self.owner.instance_id,
            max_workers=self.max_workers,
            verify_after_seconds=settings.verify_after_seconds,
            may_claim=lambda: self.may_claim,
        )
        self.pool = WorkerPool(self.max_workers, default_registry, self.dispatcher.done, may_run=self._may_run)
        self.dispatcher.use(self.pool)
        self.timer = Timer(self.dispatcher.hand_over, self.clock)
        self._build_watchers()
        self._build_loops()
        self.health = HealthServer(
            settings.metrics_port,
            host=settings.metrics_host,
            liveness=self.liveness,
            readiness=self.readiness,
            facts=self._facts,
        )

    def _build_watchers(self) -> None:
        settings = self.settings
        self.watcher = ScheduleWatcher(
            self.db,
            self.timer,
            self.clock,
            check_interval_seconds=self.schedule_check_interval,
            listen=not settings.database_transaction_pooler,
            on_pending=self.dispatcher.look_for_pending,
        )
        pulse = Pulse(
            settings.heartbeat_interval_seconds,
            settings.heartbeat_timeout_seconds,
            sees_sessions=not settings.database_transaction_pooler,
        )
        self.heart = Heart(
            self.db,
            self.owner,
            self.clock,
            self.peers,
            self.held,
            pulse,
            facts=self._heartbeat_facts,
            cancel=self.pool.cancel,
        )
        self.rescuer = Rescuer(
            self.db,
            self.coordinator,
            self.policy,
            self.heart,
            interval_seconds=settings.rescue_interval_seconds,
            rescued=self.dispatcher.look_for_pending,
        )
        self.gap_scanner = GapScanner(
            self.db,
            self.clock,
            self.policy,
            CatchupLimits.from_settings(settings),
            heartbeat_timeout_seconds=settings.heartbeat_timeout_seconds,
            loaded=self.watcher.known,
            hand_over=self.dispatcher.hand_over,
            look_for_pending=self.dispatcher.look_for_pending,
            may_scan=lambda: self.may_claim and self.watcher.is_loaded,
        )

    def _build_loops(self) -> None:
        settings = self.settings

        def loop(
            name: str, tick: Callable[[], float | None], interval_seconds: float, patience_seconds: float = 30.0
        ) -> Loop:
            made = Loop(
                name,
                tick,
                interval_seconds,
                patience_seconds,
                longest_pause_seconds=min(LONGEST_PAUSE_SECONDS, max(1.0, settings.heartbeat_interval_seconds)),
                outages=self._outages,
                on_turn=self._announce_claiming,
            )
            self._loops.append(made)
            return made

        self._loops = []
        self.dispatcher.wake = loop("dispatcher", self.dispatcher.tick, 1.0).wake
        self.finisher.wake = loop("finisher", self.finisher.tick, 1.0).wake
        loop("watcher", self.watcher.tick, 1.0)
        loop("heart", self.heart.beat, settings.heartbeat_interval_seconds)
        loop("rescuer", self.rescuer.tick, settings.rescue_interval_seconds)
        loop("gap-scan", self.gap_scanner.tick, settings.gap_scan_seconds)
        loop("leases", self._renew_leases, settings.lock_timeout / 3)
        loop("gauges", self._set_gauges, 1.0)
        loop("tidy", self._tidy, TIDY_SECONDS)
        loop("census", self._count_history, CENSUS_SECONDS)
        loop("queues", self.workflows.watch, WATCH_SECONDS)
        if self.syncs:
            loop("api-sync", self.api_sync.tick, LOOK_SECONDS, TICK_PATIENCE_SECONDS)

    def _tidy(self) -> float | None:
        """History does not grow for ever."""
        history = JobHistory(self.db, fence_horizon_seconds=self.settings.fence_horizon_seconds)
        executions = history.cleanup_old_executions(self.settings.history_retention_days)
        changes = history.cleanup_old_changes(self.settings.history_retention_days)
        scans = ScanRetention(self.db).delete_old(self.settings.history_retention_days)
        self.workflows.tidy()
        with self.db.transaction() as connection:  # of replicas that crashed long ago
            connection.exec_driver_sql(
                "DELETE FROM scheduler_instances WHERE heartbeat_at < clock_timestamp() - interval '1 day'"
            )
        if executions or changes or scans:
            facts = {"event": "tidied", "executions": executions, "changes": changes, "scans": scans}
            logger.info("deleted old history", extra=facts)
        return None

    def _count_history(self) -> float | None:
        with self.db.transaction() as connection:
            rows, size_bytes = connection.exec_driver_sql(HISTORY_SIZE).one()
        metrics.observe_history(rows=rows, size_bytes=size_bytes)
        return None

    def _renew_leases(self) -> float | None:
        self.coordinator.renew()
        return None

    def _set_gauges(self) -> float | None:
        metrics.observe_pools(
            running=len(self.pool.running),
            workers=self.max_workers,
            leaked=self.pool.leaked,
            connections=cast(QueuePool, self.db.engine.pool).checkedout(),
        )
        metrics.SCHEDULES.set(len(self.timer))  # fewer without a change, too: some have fired for the last time
        metrics.QUEUED.set(self.dispatcher.queued)
        metrics.HELD.set(self.dispatcher.held_schedules)
        metrics.UNWRITTEN.set(self.finisher.unwritten)
        self.coordinator.watch()
        metrics.DEGRADED.set(int(self.coordinator.degraded))
        self._announce_claiming()
        metrics.observe_coordinator(asdict(self.coordinator.stats()))
        return None

    def _may_run(self, context: ExecutionContext) -> bool:
        """Right before a handler is called. While Postgres is away nobody can say, so it waits here."""
        claim = self.held.find(_proof(context))
        while claim is not None and not self._stopping.is_set():
            try:
                is_ours = self.heart.confirms(claim)
            except (Unavailable, DBAPIError):  # also a lock or a timeout: that is no fault of the execution
                is_ours = None
            if is_ours:
                return True
            if is_ours is False:
                break
            self._stopping.wait(UNCONFIRMED_SECONDS)
        if claim is not None:
            if self._stopping.is_set():
                self._not_run.append(claim)
            self.dispatcher.dropped([claim])
        return False

    def _heartbeat_facts(self) -> dict[str, Any]:
        self._told_claiming = claiming = self._would_claim
        self._idle_since = None if claiming else self._idle_since or self.clock.now()
        facts = {**self._facts(), "claiming": claiming}
        if not claiming and not self._stopping.is_set():
            facts["not_claiming"] = [*self._obstacles(), *self._failing_loops()]
            facts["not_claiming_since"] = str(self._idle_since)
        return facts

    def _facts(self) -> dict[str, Any]:
        return {
            "revision": self.watcher.revision,
            "schedules": len(self.timer),
            "running": len(self.pool.running),
            "claiming": self.claiming,
            "version": VERSION,
            "schema": newest_revision(),
            "tzdata": tzdata_version(),
            "pid": os.getpid(),
            "max_workers": self.max_workers,
            "redis_degraded": self.coordinator.degraded,
            "leaked_threads": self.pool.leaked,
            "job_types": sorted(default_registry.handled()),
            **({"api_sync": self.api_sync.facts()} if self.syncs else {}),
        }


def session_name(owner: Owner) -> str:
    """What the engine's sessions are called at the server; the others recognise a dead process by their absence."""
    readable = owner.instance_id.encode("ascii", "replace").decode()
    return f"{readable[:48]}#{owner.incarnation.hex[:12]}"


def _proof(context: ExecutionContext) -> Proof:
    return context.execution_id, context.fencing_token


def default_policy(settings: Settings) -> Policy:
    """What a schedule gets when its own column is NULL."""
    return Policy(
        max_instances=settings.job_max_instances,
        coalesce=settings.job_coalesce,
        misfire_grace_seconds=settings.job_misfire_grace_time,
        timeout_seconds=settings.job_timeout_seconds,
        max_retries=settings.job_max_retries,
        retry_backoff_seconds=settings.job_retry_backoff_seconds,
        catchup=settings.job_catchup,
    )


def _tolerating_outage(action: Callable[[], None]) -> None:
    """At the end of the process nothing waits for Postgres: what could not be handed back is rescued by the others."""
    try:
        action()
    except Unavailable as error:
        logger.warning("%s", error, extra={"event": "server_unavailable"})


def run_enhanced_scheduler() -> None:
    """What `python services/enhanced_scheduler.py` does."""
    gc.set_threshold(*COLLECT_RARELY)
    try:
        settings = get_settings()
        configure_logging(settings.log_level, settings.log_format)
        EnhancedScheduler(settings=settings).run()
    except SchedulerError as error:
        sys.exit(str(error))
    except DBAPIError as error:  # no schema, no rights
        if (reason := refusal(error)) is None:
            raise
        sys.exit(reason)


if __name__ == "__main__":
    run_enhanced_scheduler()
