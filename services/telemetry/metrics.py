"""Every collector, one screen. Call sites say what happened; here is decided what is counted.

Label values come from enums and job types only, so that the number of series stays bounded.
"""

import time
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache

from prometheus_client import REGISTRY, Counter, Enum, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from database.models import Cause, ExecutionStatus
from database.workflow_statuses import CircuitStatus
from services.ledger.fires import Claim, Ending, Outcome

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
MAX_JOB_TYPES = MAX_QUEUES = 50
disable_created_metrics()  # type: ignore[no-untyped-call]  # else each counter is two series

EXECUTIONS = Counter("scheduler_executions_total", "Executions that ended", ["job_type", "status"])
DURATION = Histogram("scheduler_execution_seconds", "How long executions took", ["job_type"], buckets=_SECONDS)
LATENESS = Histogram("scheduler_fire_lateness_seconds", "Start of an execution after its due time", buckets=_SECONDS)
CLAIMS = Counter(
    "scheduler_claims_total", "What claims said: claimed is won, exists lost, locked a conflict", ["outcome"]
)
FILTERED = Counter("scheduler_redis_marks_total", "Fires at the Redis filter; no answer counts as won", ["answer"])
UNVERIFIED = Counter("scheduler_fires_unverified_total", "Fires lost at the filter that had no row seconds later")
REFUSED = Counter("scheduler_finishes_refused_total", "Results refused by their fence")
RETRIES = Counter("scheduler_retries_total", "Further attempts that were planned")
RESCUED = Counter("scheduler_rescued_total", "Executions of dead replicas", ["as"])
GAPS = Counter("scheduler_gap_fires_total", "Fires without a row that the gap scan found", ["as"])
CHANGES = Counter("scheduler_schedule_changes_total", "Changes applied by the watcher", ["kind"])
SCHEDULES = Gauge("scheduler_schedules_loaded", "Schedules in the timer")
REVISION = Gauge("scheduler_revision_applied", "Newest revision that this replica has applied")
WATCHER_SECONDS = Histogram(
    "scheduler_watcher_seconds", "From a committed change to its place in the timer", buckets=_SECONDS
)
SYNCS = Counter("scheduler_api_syncs_total", "Syncs from the external API", ["result"])
SYNCED = Counter("scheduler_api_sync_schedules_total", "What syncs did with the API's schedules", ["as"])
SYNC_AGE = Gauge(
    "scheduler_api_sync_age_seconds",
    "Since the last good sync, whichever replica it was; if none ever was: since we look",
)
SYNC_AGE.set(float("nan"))
SYNC_OUTCOMES = ("none", "done", "not_modified", "removals_refused", "failed")
SYNC_OUTCOME = Enum("scheduler_api_sync_outcome", "Of the last sync, whichever replica it was", states=SYNC_OUTCOMES)
SYNC_REFUSED = Gauge("scheduler_api_sync_removals_refused", "Vanished schedules that stay: the answer was not trusted")
SYNC_KEPT = Gauge("scheduler_api_sync_local_edits_kept", "Schedules that differ from the API because somebody wants it")
QUEUE_ITEMS = Counter(
    "scheduler_queue_items_total", "What became of a workflow's items; stale: their worker vanished", ["queue", "as"]
)
QUEUE_SKIPPED = Counter("scheduler_queue_runs_skipped_total", "Runs of a queue that did nothing", ["queue", "reason"])
QUEUE_ITEM_SECONDS = Histogram("scheduler_queue_item_seconds", "How long items took", ["queue"], buckets=_SECONDS)
QUEUE_RUN_SECONDS = Histogram(
    "scheduler_queue_run_seconds", "How long runs of a workflow took", ["queue"], buckets=_SECONDS
)
PLACES_REQUESTS = Counter(
    "scheduler_places_requests_total", "Requests of this process to the places API", ["api", "operation"]
)
PLACES_TODAY = Gauge(
    "scheduler_places_requests_today",
    "Requests to the places API since midnight UTC, of all processes: what its quota counts",
    ["api", "operation"],
)
QUEUE_DEPTH = Gauge("scheduler_queue_depth", "Items that wait, those in their backoff included", ["queue"])
QUEUE_PROCESSING = Gauge("scheduler_queue_processing", "Items that somebody has claimed", ["queue"])
QUEUE_STALE = Gauge("scheduler_queue_stale", "Claimed items whose worker has vanished", ["queue"])
QUEUE_FAILED = Gauge("scheduler_queue_failed", "Items that ended as failed and wait for a person", ["queue"])
QUEUE_DEAD = Gauge("scheduler_queue_dead_letters", "Open dead letters", ["queue"])
QUEUE_OLDEST = Gauge("scheduler_queue_oldest_seconds", "For how long the oldest item has been due", ["queue"])
QUEUE_BATCH = Gauge("scheduler_queue_batch_size", "Rows that a run takes at once right now", ["queue"])
QUEUE_CIRCUIT = Gauge("scheduler_queue_circuit", "0 closed, 1 half open (one item is tried), 2 open", ["queue"])
QUEUE_PAUSED = Gauge("scheduler_queue_paused", "1 while a workflow is paused", ["queue"])
QUEUE_LEAKED = Gauge("scheduler_queue_leaked_threads", "Items' threads that ignored their timeout and live", ["queue"])
RUNNING = Gauge("scheduler_running", "Executions that run right now")
WORKERS = Gauge("scheduler_workers", "Executions that can run at once")
CONNECTIONS = Gauge("scheduler_database_connections_used", "Connections that are out of the engine's Postgres pool")
QUEUED = Gauge("scheduler_fires_queued", "Fires that are due and wait")
OLDEST = Gauge(
    "scheduler_fires_oldest_seconds",
    "How long ago the oldest fire that waits was due, those of held schedules included; 0 while none waits",
)
HELD = Gauge("scheduler_schedules_held", "Schedules whose fires wait because another session holds their row")
LEAKED = Gauge("scheduler_leaked_threads", "Threads that ignored their timeout and still run")
UNWRITTEN = Gauge("scheduler_results_unwritten", "Results that wait for Postgres")
REQUESTS = Counter("scheduler_http_requests_total", "Requests to the HTTP API", ["method", "route", "status"])
REQUEST_SECONDS = Histogram("scheduler_http_request_seconds", "How long they took", ["route"], buckets=_SECONDS)
DEGRADED = Gauge("scheduler_redis_degraded", "1 while Redis does not answer")
SKEW = Gauge("scheduler_clock_skew_seconds", "Local clock ahead of Postgres'")
CLAIMING = Gauge("scheduler_claiming", "1 while it may claim and its loops make progress; 0: /readyz says why not")
HISTORY_ROWS = Gauge("scheduler_history_rows", "Rows of job_executions, as Postgres estimates them")
HISTORY_BYTES = Gauge("scheduler_history_bytes", "Size of job_executions with its indexes")

# The coordinator counts by itself; its totals are handed on as they are.
_COORDINATOR = {
    "failures": ("scheduler_lock_failures", "Redis calls without a usable answer"),
    "renewals": ("scheduler_lease_renewals", "Leases that were renewed"),
    "lost_leases": ("scheduler_leases_lost", "Leases that a renewal found gone or replaced"),
    "marks_unknown": ("scheduler_redis_marks_unknown", "Fires that Redis gave no answer about"),
}


class _CoordinatorTotals(Collector):
    totals: Mapping[str, int] = {}

    def collect(self) -> Iterator[CounterMetricFamily]:
        for field, (name, text) in _COORDINATOR.items():
            yield CounterMetricFamily(name, text, value=self.totals.get(field, 0))


OF_REQUESTS = ("scheduler_http_requests", "scheduler_http_request_seconds")


class WithoutReplica(Collector):
    """What a process that runs no replica has to say: the zeros of one that it is not would set off alerts."""

    def collect(self) -> Iterator[Metric]:
        for family in REGISTRY.collect():
            if family.name in OF_REQUESTS or not family.name.startswith("scheduler_"):
                yield family


_coordinator_totals = _CoordinatorTotals()
REGISTRY.register(_coordinator_totals)

# A rate can only be taken of what was 0 before: what is known to happen is there from the start.
_AS_RESCUED, _AS_GAP = ("abandoned", "handed_back"), ("handed_over", "caught_up", "missed")
_ENDED = [status.value for status in ExecutionStatus if status.is_terminal and status != ExecutionStatus.MISSED]
for _counter, _values in ((CLAIMS, list(Outcome)), (RESCUED, _AS_RESCUED), (GAPS, _AS_GAP)):
    for _value in _values:
        _counter.labels(str(_value))

_job_types: set[str] = set()


def job_types_known(names: Iterable[str]) -> None:
    for name in names:
        job_type = _job_type(name)
        for status in _ENDED:
            _of_executions(job_type, status)


def _job_type(name: str) -> str:
    """A schedule can name anything as its job type, also by SQL."""
    if name not in _job_types and len(_job_types) >= MAX_JOB_TYPES:
        return "other"
    _job_types.add(name)
    return name


@cache
def _of_executions(job_type: str, status: str) -> tuple[Counter, Histogram]:
    """Few: job types are bounded. To look a series up costs more than to count."""
    return EXECUTIONS.labels(job_type, status), DURATION.labels(job_type)


def execution_started(claim: Claim, now: datetime) -> None:
    if claim.cause != Cause.BACKFILL:  # which waits for the others of its kind
        LATENESS.observe(max(0.0, (now - claim.due_at).total_seconds()))


def execution_finished(ending: Ending) -> None:
    ended, took = _of_executions(_job_type(ending.claim.spec.job_type), ending.status.value)
    ended.inc()
    if ending.duration_seconds is not None:
        took.observe(ending.duration_seconds)
    if ending.retry_in_seconds is not None:
        RETRIES.inc()


def finish_refused() -> None:
    REFUSED.inc()


def fires_decided(outcomes: Iterable[Outcome]) -> None:
    for outcome, count in Tally(outcomes).items():
        CLAIMS.labels(outcome.value).inc(count)


def fires_filtered(*, won: int, lost: int) -> None:
    FILTERED.labels("won").inc(won)
    FILTERED.labels("lost").inc(lost)


def fires_unverified(count: int) -> None:
    UNVERIFIED.inc(count)


def rescued(*, abandoned: Sequence[str | None], handed_back: int, retried: int) -> None:
    """`abandoned`: the job types of what ended so; None of those whose schedule is gone."""
    RETRIES.inc(retried)
    RESCUED.labels("abandoned").inc(len(abandoned))
    RESCUED.labels("handed_back").inc(handed_back)
    for name in abandoned:
        EXECUTIONS.labels("other" if name is None else _job_type(name), ExecutionStatus.ABANDONED.value).inc()


def gaps_found(*, handed_over: int, caught_up: int, missed: int) -> None:
    GAPS.labels("handed_over").inc(handed_over)
    GAPS.labels("caught_up").inc(caught_up)
    GAPS.labels("missed").inc(missed)


def schedules_changed(*, added: int, modified: int, removed: int, loaded: int) -> None:
    for kind, count in (("added", added), ("modified", modified), ("removed", removed)):
        CHANGES.labels(kind).inc(count)
    SCHEDULES.set(loaded)


def revision_applied(revision: int) -> None:
    REVISION.set(revision)


def change_applied(seconds: float) -> None:
    WATCHER_SECONDS.observe(seconds)


def clock_skew(seconds: float) -> None:
    SKEW.set(seconds)


def synced(outcome: str, counts: Mapping[str, int]) -> None:
    SYNCS.labels(outcome).inc()
    for kind, count in counts.items():
        SYNCED.labels(kind).inc(count)


def sync_seen(*, outcome: str | None, age_seconds: float | None, removals_refused: int, local_edits_kept: int) -> None:
    SYNC_OUTCOME.state(outcome or "none")
    SYNC_REFUSED.set(removals_refused)
    SYNC_KEPT.set(local_edits_kept)
    if age_seconds is not None:
        synced_at = time.monotonic() - age_seconds
        SYNC_AGE.set_function(lambda: time.monotonic() - synced_at)
    else:
        SYNC_AGE.set_function(lambda: time.monotonic() - _first_look_for_syncs())


@cache
def _first_look_for_syncs() -> float:
    return time.monotonic()


def request_served(*, method: str, route: str, status: int, seconds: float) -> None:
    """`route` is the pattern of a path, never a path."""
    REQUESTS.labels(method, route, str(status)).inc()
    REQUEST_SECONDS.labels(route).observe(seconds)


# --- workflows ---

_CIRCUIT_LEVELS = {CircuitStatus.CLOSED: 0, CircuitStatus.HALF_OPEN: 1, CircuitStatus.OPEN: 2}
_queue_names: set[str] = set()


def _queue(name: str) -> str:
    """The workflows are few, but a program may run the loop under any name."""
    if name not in _queue_names and len(_queue_names) >= MAX_QUEUES:
        return "other"
    _queue_names.add(name)
    return name


def queue_items(queue: str, what: str, number: int) -> None:
    QUEUE_ITEMS.labels(_queue(queue), what).inc(number)


def queue_items_took(queue: str, seconds: Sequence[float]) -> None:
    histogram = QUEUE_ITEM_SECONDS.labels(_queue(queue))
    for each in seconds:
        histogram.observe(each)


def queue_run_took(queue: str, seconds: float) -> None:
    QUEUE_RUN_SECONDS.labels(_queue(queue)).observe(seconds)


def places_request(api: str, operation: str) -> None:
    PLACES_REQUESTS.labels(api, operation).inc()


def places_used(used: Mapping[tuple[str, str], int]) -> None:
    """Of today; what was yesterday's is gone."""
    PLACES_TODAY.clear()
    for (api, operation), count in used.items():
        PLACES_TODAY.labels(api, operation).set(count)


def queue_skipped(queue: str, reason: str) -> None:
    QUEUE_SKIPPED.labels(_queue(queue), reason).inc()


def queue_state(queue: str, circuit: CircuitStatus, *, paused: bool, batch_size: int | None) -> None:
    name = _queue(queue)
    QUEUE_CIRCUIT.labels(name).set(_CIRCUIT_LEVELS[circuit])
    QUEUE_PAUSED.labels(name).set(int(paused))
    if batch_size is not None:
        QUEUE_BATCH.labels(name).set(batch_size)


def queue_seen(
    queue: str, *, depth: int, processing: int, stale: int, failed: int, dead: int, oldest_seconds: float, leaked: int
) -> None:
    """As it is in the table, every few seconds; every replica tells the same."""
    name = _queue(queue)
    gauges = (QUEUE_DEPTH, QUEUE_PROCESSING, QUEUE_STALE, QUEUE_FAILED, QUEUE_DEAD, QUEUE_OLDEST, QUEUE_LEAKED)
    for gauge, value in zip(gauges, (depth, processing, stale, failed, dead, oldest_seconds, leaked), strict=True):
        gauge.labels(name).set(value)


def observe_coordinator(totals: Mapping[str, int]) -> None:
    """`asdict(coordinator.stats())`, every second."""
    _coordinator_totals.totals = totals


def observe_pools(*, running: int, workers: int, leaked: int, connections: int) -> None:
    RUNNING.set(running)
    WORKERS.set(workers)
    LEAKED.set(leaked)
    CONNECTIONS.set(connections)


def observe_history(*, rows: int, size_bytes: int) -> None:
    HISTORY_ROWS.set(rows)
    HISTORY_BYTES.set(size_bytes)
