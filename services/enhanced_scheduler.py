"""One replica: builds the parts, starts them, and stops them in order. Start reading here.

timer -> dispatcher -> claims -> pool -> finisher      the path of a fire
watcher                                                changes of the table into the timer
heart, rescuer, gap scan                               heartbeats, dead replicas, gaps
"""

import gc
import logging
import os
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # `python services/enhanced_scheduler.py` has services/ on the path, not the project
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    gc.disable()  # what the imports make stays: looking for garbage meanwhile is a fifth of their time

from sqlalchemy.exc import DBAPIError

from config import VERSION, Settings, get_settings
from database.connection import ENGINE_IDLE_IN_TRANSACTION_SECONDS
from database.schema import newest_revision, require_schema
from services.engine.assembly import Engine
from services.engine.gap_scan.scanner import GapScanner
from services.engine.parts import Parts
from services.engine.start_patience import StartInterrupted, StartPatience
from services.errors import SchedulerError
from services.features import Features
from services.jobs import default_registry
from services.jobs.users import load_users_jobs
from services.ledger.fires import Owner
from services.ledger.verdicts import Tolerances
from services.scanning.cookies.categories import CategoryRules
from services.schedule_watcher import ScheduleWatcher
from services.telemetry import metrics
from services.telemetry.logs import configure_logging
from services.triggers import tzdata_version
from services.wording.commands import as_called_here
from services.wording.refusals import refusal

logger = logging.getLogger(__name__)

ENGINE_CONNECTIONS = 10  # seven parts keep one each, the others share the rest; jobs have a pool of their own
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
        parts: Parts | None = None,
    ) -> None:
        self.settings, self._parts = settings or get_settings(), parts or Parts()
        self.max_workers = max_workers or self.settings.max_workers
        self.schedule_check_interval = schedule_check_interval or self.settings.schedule_check_interval
        self.owner = Owner(self.settings.instance_id, self._parts.incarnation())
        self._stopping = self._parts.threads.event()
        self._signal = self._parts.signal(self._parts.threads)
        self._started = False
        self.db = self._parts.database(
            self.settings,
            pool_size=ENGINE_CONNECTIONS + bool(self.settings.fleet_queues),  # the publisher keeps one, too
            application_name=self.owner.session_name,
            idle_in_transaction_seconds=ENGINE_IDLE_IN_TRANSACTION_SECONDS,
        )
        self.features = Features(
            self.settings,
            self.db,
            self._stopping,
            syncs=self.settings.syncs_from_api if enable_api_sync is None else enable_api_sync,
            sync_interval=api_sync_interval or self.settings.api_sync_interval,
        )

    # --- life ---

    def start(self) -> None:
        """Start all parts and return; `stop` ends them."""
        if self._stopping.is_set() or self._started:
            raise SchedulerError("this scheduler was started already; make a new EnhancedScheduler")
        for warning in self.settings.warnings:
            logger.warning("%s", as_called_here(warning), extra={"event": "setting_without_effect"})
        default_registry.load_built_in()
        load_users_jobs(self.settings)
        metrics.job_types_known(default_registry.job_types())
        CategoryRules.load(self.settings.scan_cookie_rules_file)  # a broken table ends us here, not the first scan
        self._build()
        patiently = StartPatience(self._signal.comes_within)
        try:
            patiently(lambda: require_schema(self.db))  # else every claim would fail, one by one
            self._start_parts(patiently)
        except BaseException:
            self._close_parts()
            raise
        self._started = True
        logger.info(
            "replica %s runs with %d workers", self.owner.instance_id, self.max_workers, extra={"event": "started"}
        )

    def run(self) -> None:
        """Start and stay until SIGTERM or SIGINT, then drain."""
        self._signal.listen()
        try:
            self.start()
        except StartInterrupted as interrupted:
            logger.info("%s", interrupted, extra={"event": "stopped"})
            return
        self._signal.wait()
        self.stop()

    def stop(self) -> None:
        """Stop the timer, stop claiming, wait for running executions, hand back the rest, unregister."""
        self._stopping.set()
        self._signal.give()
        if not self._started:
            return
        self._started = False
        self.engine.condition.announce()
        logger.info("draining", extra={"event": "draining"})
        unfinished = self.engine.drain(self.settings.shutdown_grace_seconds)
        self._close_parts()
        logger.info("stopped with %d unfinished", unfinished, extra={"event": "stopped"})

    def liveness(self) -> dict[str, float]:
        """Loops without recent progress, with the seconds since their last tick; empty means alive."""
        return self.engine.condition.liveness()

    def readiness(self) -> list[str]:
        """Reasons why this replica is not doing its work; empty means ready."""
        return self.engine.condition.readiness()

    def sync_schedules_from_api(self) -> dict[str, int]:
        """Fetch the external API's schedules now; returns `{'created': …, 'updated': …, 'skipped': …}`."""
        if self.settings.api_url is None:
            logger.warning("API_URL is not set: there is nothing to sync from", extra={"event": "sync_without_url"})
            return {"created": 0, "updated": 0, "skipped": 0}
        return self.features.api_sync.sync_now().documented_counts

    def _start_parts(self, patiently: StartPatience) -> None:
        self.health.start()  # first: a port in use must end this process before other replicas know of it
        patiently(self.engine.heart.beat)  # before anything is claimed: the others must know us, and we the clock
        patiently(self.features.install)
        self.engine.loops.start()
        self.engine.timer.start()

    def _close_parts(self) -> None:
        """Leave no thread, no port and no connection behind, even after an incomplete start."""
        self.engine.close()
        self.health.stop()
        self.features.close()
        for part in (self.watcher, self.redis, self.db):
            part.close()

    # --- parts ---

    def _build(self) -> None:
        settings = self.settings
        self.redis = self._parts.redis(settings)
        self.engine = engine = Engine(
            settings,
            self._parts,
            self.db,
            self.redis,
            self.owner,
            default_registry,
            self.max_workers,
            self._stopping,
            facts=self._facts,
            is_started=lambda: self._started,
        )
        self.watcher = ScheduleWatcher(
            self.db,
            engine.timer,
            engine.clock,
            check_interval_seconds=self.schedule_check_interval,
            shares=engine.shares,
            heartbeat_timeout_seconds=settings.heartbeat_timeout_seconds,
            listen=not settings.database_transaction_pooler,
            on_pending=self._look_for_pending,
            on_share=lambda: engine.loops.wake("heart"),
            in_loop=engine.in_loop,
        )
        gap_scanner = GapScanner(
            self.db,
            engine.clock,
            engine.policy,
            Tolerances.from_settings(settings),
            interval_seconds=settings.gap_scan_seconds,
            heartbeat_timeout_seconds=settings.heartbeat_timeout_seconds,
            first_in=engine.shares.first_in,
            loaded=self.watcher.known,
            hand_over=engine.dispatcher.hand_over,
            look_for_pending=engine.dispatcher.look_for_pending,
            may_scan=lambda: engine.condition.may_claim and self.watcher.is_loaded,
        )
        engine.tell_fleet(self.features.room_is_made)
        engine.tell_runs(self.features.pings.begun, self.features.pings.ended)
        engine.add_loops(self.watcher.loop, gap_scanner.loop, *self.features.loops(engine.shares))
        self.health = self._parts.health(
            settings.metrics_port,
            host=settings.metrics_host,
            liveness=self.liveness,
            readiness=self.readiness,
            facts=lambda: {**self._facts(), "claiming": engine.condition.claiming},
        )

    def _look_for_pending(self) -> None:
        self.engine.dispatcher.look_for_pending()
        self.features.rows_wait()

    def _facts(self) -> dict[str, Any]:
        """The facts about this replica that heartbeats and probes report."""
        engine = self.engine
        return {
            "revision": self.watcher.revision,
            "schedules": len(engine.timer),
            "running": len(engine.pool.running),
            "version": VERSION,
            "schema": newest_revision(),
            "tzdata": tzdata_version(),
            "pid": os.getpid(),
            "max_workers": self.max_workers,
            "redis_degraded": engine.coordinator.degraded,
            "leaked_threads": engine.pool.leaked,
            "job_types": sorted(default_registry.handled()),
            **self.features.facts(),
        }


def run_enhanced_scheduler(parts: Parts | None = None) -> None:
    """The program `python services/enhanced_scheduler.py`."""
    gc.freeze()
    gc.set_threshold(*COLLECT_RARELY)
    gc.enable()
    try:
        settings = get_settings()
        configure_logging(settings.log_level, settings.log_format)
        EnhancedScheduler(settings=settings, parts=parts).run()
    except SchedulerError as error:
        sys.exit(as_called_here(str(error)))
    except DBAPIError as error:  # no schema, no rights
        if (reason := refusal(error)) is None:
            raise
        sys.exit(as_called_here(reason))


if __name__ == "__main__":
    run_enhanced_scheduler()
