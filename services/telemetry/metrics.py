"""Every Prometheus collector, on one screen. Call sites report what happened; this module decides what is counted.

Label values come only from enums and job types, so the number of series stays bounded.
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
from services.ledger.fires import Claim, Decision, Ending

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)
MAX_JOB_TYPES = MAX_QUEUES = 50
disable_created_metrics()  # type: ignore[no-untyped-call]  # otherwise each counter is two series

EXECUTIONS = Counter("scheduler_executions_total", "Finished executions", ["job_type", "status"])
DURATION = Histogram("scheduler_execution_seconds", "Duration of executions", ["job_type"], buckets=_SECONDS)
LATENESS = Histogram(
    "scheduler_fire_lateness_seconds",
    "Delay between the due time of a fire and the start of its execution",
    buckets=_SECONDS,
)
CLAIMS = Counter(
    "scheduler_claims_total",
    "Claim attempts: claimed = won, exists = lost to another replica, locked = conflict",
    ["outcome"],
)
FILTERED = Counter(
    "scheduler_redis_marks_total", "Fires checked by the Redis filter; no answer counts as won", ["answer"]
)
UNVERIFIED = Counter(
    "scheduler_fires_unverified_total", "Fires lost at the Redis filter that still had no row when verified"
)
REFUSED = Counter("scheduler_finishes_refused_total", "Results refused because the claim was no longer valid (fencing)")
RETRIES = Counter("scheduler_retries_total", "Retries scheduled")
RESCUED = Counter("scheduler_rescued_total", "Executions taken over from dead replicas, by outcome", ["as"])
GAPS = Counter("scheduler_gap_fires_total", "Fires without a row found by the gap scan, by outcome", ["as"])
CHANGES = Counter("scheduler_schedule_changes_total", "Schedule changes applied by the watcher", ["kind"])
SCHEDULES = Gauge("scheduler_schedules_loaded", "Schedules loaded into the timer")
BUCKETS = Gauge(
    "scheduler_buckets",
    "Buckets of schedules, of 1024: held by this replica; its duty to hold; held by no living replica",
    ["state"],
)
UNMET = Gauge(
    "scheduler_waiting_unable",
    "Executions waiting for a queue, label or job type that no living replica has; every replica reports all",
    ["needs"],
)
LIMIT_RUNNING = Gauge(
    "scheduler_limit_running",
    "Running executions per limit, for the limits with the most waiting; every replica reports all",
    ["limit"],
)
LIMIT_WAITING = Gauge(
    "scheduler_limit_waiting", "Executions waiting for a limit; the same limits as scheduler_limit_running", ["limit"]
)
LIMIT_SECONDS = Gauge(
    "scheduler_limit_oldest_seconds", "How long the oldest execution has waited for a limit; the same limits", ["limit"]
)
FAILING = Gauge(
    "scheduler_schedules_failing", "Enabled schedules whose newest fire failed for good; every replica reports all"
)
LONGEST_STREAK = Gauge(
    "scheduler_longest_streak", "Most failures in a row of any enabled schedule; every replica reports the same"
)
PAUSED_SCHEDULES = Counter(
    "scheduler_schedules_paused_total", "Schedules disabled by their pause_after_failures", ["job_type"]
)
PAUSES_WITHHELD = Gauge(
    "scheduler_pauses_withheld",
    "Schedules that pause_after_failures left enabled, because many schedules of their job type fail at once",
    ["job_type"],
)
PINGS = Counter(
    "scheduler_pings_total",
    "Pings of schedules' ping_url; dropped: the server does not take pings at present, or too many wait",
    ["as"],
)
AUDITED = Gauge(
    "scheduler_audit_fires",
    "Fires of the audited hours of the last day: expected, accounted; every replica reports the same",
    ["kind"],
)
AUDIT_FINDINGS = Gauge(
    "scheduler_audit_findings",
    "Violations found by the hourly audit in the last day, by kind; every replica reports the same",
    ["kind"],
)
NOTIFICATION_ATTEMPTS = Counter(
    "scheduler_notification_attempts_total", "Attempts to send a notification, by kind and outcome", ["kind", "outcome"]
)
NOTIFICATIONS_WAITING = Gauge(
    "scheduler_notifications_waiting",
    "Notifications that are due and not sent, up to 1,000 per channel; every replica reports all",
)
NOTIFICATIONS_OLDEST = Gauge(
    "scheduler_notifications_oldest_seconds", "Seconds since the oldest unsent notification became due"
)
CHANNELS_FAILING = Gauge("scheduler_notification_channels_failing", "Enabled channels whose last attempt failed")
CHANNEL_FAILING_SECONDS = Gauge(
    "scheduler_notification_channel_failing_seconds", "Seconds since the channel that has failed longest began to fail"
)
AUDIT_AGE = Gauge("scheduler_audit_age_seconds", "Seconds since the end of the newest audited hour")
NOTIFIER_AGE = Gauge(
    "scheduler_notifier_age_seconds",
    "Seconds since the notifier last caught up with the ended executions; every replica reports the same",
)
NOTIFICATIONS_TOLD = Counter(
    "scheduler_notifications_told_total", "Notifications that this replica's notifier created", ["event"]
)
AUDIT_AGE.set(float("nan"))
REVISION = Gauge("scheduler_revision_applied", "Newest schedule revision applied by this replica")
WATCHER_SECONDS = Histogram(
    "scheduler_watcher_seconds",
    "Delay between the commit of a schedule change and its arrival in the timer",
    buckets=_SECONDS,
)
SYNCS = Counter("scheduler_api_syncs_total", "Synchronizations from the external API, by result", ["result"])
SYNCED = Counter("scheduler_api_sync_schedules_total", "Schedules processed by API syncs, by outcome", ["as"])
SYNC_AGE = Gauge(
    "scheduler_api_sync_age_seconds",
    "Seconds since the last successful sync by any replica; without one: since this process started checking",
)
SYNC_AGE.set(float("nan"))
SYNC_OUTCOMES = ("none", "done", "not_modified", "removals_refused", "failed")
SYNC_OUTCOME = Enum("scheduler_api_sync_outcome", "Outcome of the last sync by any replica", states=SYNC_OUTCOMES)
SYNC_REFUSED = Gauge(
    "scheduler_api_sync_removals_refused", "Schedules missing from an untrusted API answer and kept enabled"
)
SYNC_KEPT = Gauge("scheduler_api_sync_local_edits_kept", "Schedules that differ from the API because of local edits")
QUEUE_ITEMS = Counter(
    "scheduler_queue_items_total", "Workflow items by outcome; stale: the worker vanished", ["queue", "as"]
)
QUEUE_SKIPPED = Counter(
    "scheduler_queue_runs_skipped_total", "Queue runs that did nothing, by reason", ["queue", "reason"]
)
QUEUE_ITEM_SECONDS = Histogram(
    "scheduler_queue_item_seconds", "Processing time of queue items", ["queue"], buckets=_SECONDS
)
QUEUE_RUN_SECONDS = Histogram("scheduler_queue_run_seconds", "Duration of workflow runs", ["queue"], buckets=_SECONDS)
PLACES_REQUESTS = Counter(
    "scheduler_places_requests_total", "Requests from this process to the places API", ["api", "operation"]
)
PLACES_TODAY = Gauge(
    "scheduler_places_requests_today",
    "Requests from all processes to the places API since midnight UTC, as its quota counts them",
    ["api", "operation"],
)
QUEUE_DEPTH = Gauge("scheduler_queue_depth", "Waiting items, including those in backoff", ["queue"])
QUEUE_PROCESSING = Gauge("scheduler_queue_processing", "Claimed items", ["queue"])
QUEUE_STALE = Gauge("scheduler_queue_stale", "Claimed items whose worker has vanished", ["queue"])
QUEUE_FAILED = Gauge("scheduler_queue_failed", "Failed items that wait for an operator", ["queue"])
QUEUE_DEAD = Gauge("scheduler_queue_dead_letters", "Open dead letters", ["queue"])
QUEUE_OLDEST = Gauge("scheduler_queue_oldest_seconds", "Seconds since the oldest waiting item became due", ["queue"])
QUEUE_BATCH = Gauge("scheduler_queue_batch_size", "Rows that a run currently claims at once", ["queue"])
QUEUE_CIRCUIT = Gauge(
    "scheduler_queue_circuit", "Circuit breaker: 0 closed, 1 half open (probing with one item), 2 open", ["queue"]
)
QUEUE_PAUSED = Gauge("scheduler_queue_paused", "1 while the workflow is paused", ["queue"])
QUEUE_LEAKED = Gauge(
    "scheduler_queue_leaked_threads", "Item threads that ignored their timeout and are still running", ["queue"]
)
RUNNING = Gauge("scheduler_running", "Executions running now")
WORKERS = Gauge("scheduler_workers", "Maximum concurrent executions of this replica")
CONNECTIONS = Gauge("scheduler_database_connections_used", "Connections in use from the engine's Postgres pool")
QUEUED = Gauge("scheduler_fires_queued", "Due fires waiting to run")
OLDEST = Gauge(
    "scheduler_fires_oldest_seconds",
    "Seconds since the oldest waiting fire became due, including fires of held schedules; 0 when none waits",
)
HELD = Gauge("scheduler_schedules_held", "Schedules whose fires wait because another session locks the schedule row")
LEAKED = Gauge("scheduler_leaked_threads", "Handlers that ignored their timeout and are still running")
LOOP_BLOCKED = Counter(
    "scheduler_event_loop_blocked_total", "Times that an async handler blocked the event loop", ["job_type"]
)
ASYNC_RUNNING = Gauge("scheduler_async_running", "Executions of async handlers running now")
ASYNC_WORKERS = Gauge("scheduler_async_workers", "Maximum concurrent executions of async handlers of this replica")
UNWRITTEN = Gauge("scheduler_results_unwritten", "Results waiting to be written to Postgres")
REQUESTS = Counter("scheduler_http_requests_total", "Requests to the HTTP API", ["method", "route", "status"])
REQUEST_SECONDS = Histogram(
    "scheduler_http_request_seconds", "Duration of requests to the HTTP API", ["route"], buckets=_SECONDS
)
DEGRADED = Gauge("scheduler_redis_degraded", "1 while Redis is not answering")
SKEW = Gauge("scheduler_clock_skew_seconds", "Seconds by which the local clock is ahead of the Postgres clock")
CLAIMING = Gauge(
    "scheduler_claiming", "1 while the replica may claim and its loops make progress; 0: /readyz shows the reason"
)
HISTORY_ROWS = Gauge("scheduler_history_rows", "Rows in job_executions, as estimated by Postgres")
HISTORY_BYTES = Gauge("scheduler_history_bytes", "Size of job_executions including indexes")

# The coordinator keeps its own counters; they are exported unchanged.
_COORDINATOR = {
    "failures": ("scheduler_lock_failures", "Redis calls without a usable answer"),
    "renewals": ("scheduler_lease_renewals", "Leases renewed"),
    "lost_leases": ("scheduler_leases_lost", "Leases found expired or replaced on renewal"),
    "marks_unknown": ("scheduler_redis_marks_unknown", "Fires for which Redis gave no answer"),
}


class _CoordinatorTotals(Collector):
    totals: Mapping[str, int] = {}

    def collect(self) -> Iterator[CounterMetricFamily]:
        for field, (name, text) in _COORDINATOR.items():
            yield CounterMetricFamily(name, text, value=self.totals.get(field, 0))


OF_REQUESTS = ("scheduler_http_requests", "scheduler_http_request_seconds")


class WithoutReplica(Collector):
    """The metrics of a process that runs no replica: a replica's metrics would all be 0 there and set off alerts."""

    def collect(self) -> Iterator[Metric]:
        for family in REGISTRY.collect():
            if family.name in OF_REQUESTS or not family.name.startswith("scheduler_"):
                yield family


_coordinator_totals = _CoordinatorTotals()
REGISTRY.register(_coordinator_totals)

# rate() misses the first increment of a series that did not exist before: the known ones start at 0.
_AS_RESCUED, _AS_GAP = ("abandoned", "handed_back"), ("handed_over", "caught_up", "missed")
_ENDED = [status.value for status in ExecutionStatus if status.is_terminal and status != ExecutionStatus.MISSED]
for _counter, _values in ((CLAIMS, list(Decision)), (RESCUED, _AS_RESCUED), (GAPS, _AS_GAP)):
    for _value in _values:
        _counter.labels(str(_value))

_job_types: set[str] = set()


def job_types_known(names: Iterable[str]) -> None:
    for name in names:
        job_type = _job_type(name)
        for status in _ENDED:
            _of_executions(job_type, status)
        PAUSED_SCHEDULES.labels(job_type)


def _job_type(name: str) -> str:
    """Bounded, because a schedule written by SQL can name anything as its job type."""
    if name not in _job_types and len(_job_types) >= MAX_JOB_TYPES:
        return "other"
    _job_types.add(name)
    return name


@cache
def _of_executions(job_type: str, status: str) -> tuple[Counter, Histogram]:
    """Cached: looking up a series costs more than counting, and the number of job types is bounded."""
    return EXECUTIONS.labels(job_type, status), DURATION.labels(job_type)


def execution_started(claim: Claim, now: datetime) -> None:
    if claim.cause != Cause.BACKFILL and not claim.has_waited:  # backfills wait for each other by design
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


def fires_decided(decisions: Iterable[Decision]) -> None:
    for decision, count in Tally(decisions).items():
        CLAIMS.labels(decision.value).inc(count)


def fires_filtered(*, won: int, lost: int) -> None:
    FILTERED.labels("won").inc(won)
    FILTERED.labels("lost").inc(lost)


def fires_unverified(count: int) -> None:
    UNVERIFIED.inc(count)


def rescued(*, abandoned: Sequence[str | None], handed_back: int, retried: int) -> None:
    """`abandoned`: the job type of each abandoned execution; None if its schedule was deleted."""
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
    """`route` is the route's path pattern, never an actual path."""
    REQUESTS.labels(method, route, str(status)).inc()
    REQUEST_SECONDS.labels(route).observe(seconds)


# --- workflows ---

_CIRCUIT_LEVELS = {CircuitStatus.CLOSED: 0, CircuitStatus.HALF_OPEN: 1, CircuitStatus.OPEN: 2}
_queue_names: set[str] = set()


def _queue(name: str) -> str:
    """Bounded: there are few workflows, but a program may run the loop under any name."""
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
    """Replaces yesterday's numbers with today's."""
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
    """The state of the table, every few seconds; every replica reports the same."""
    name = _queue(queue)
    gauges = (QUEUE_DEPTH, QUEUE_PROCESSING, QUEUE_STALE, QUEUE_FAILED, QUEUE_DEAD, QUEUE_OLDEST, QUEUE_LEAKED)
    for gauge, value in zip(gauges, (depth, processing, stale, failed, dead, oldest_seconds, leaked), strict=True):
        gauge.labels(name).set(value)


def observe_coordinator(totals: Mapping[str, int]) -> None:
    """`asdict(coordinator.stats())`, every second."""
    _coordinator_totals.totals = totals


def observe_buckets(*, held: int, duty: int, orphaned: int) -> None:
    for state, count in (("held", held), ("duty", duty), ("orphaned", orphaned)):
        BUCKETS.labels(state).set(count)


def observe_pools(*, running: int, workers: int, leaked: int, connections: int) -> None:
    RUNNING.set(running)
    WORKERS.set(workers)
    LEAKED.set(leaked)
    CONNECTIONS.set(connections)


def observe_async(*, running: int, workers: int) -> None:
    ASYNC_RUNNING.set(running)
    ASYNC_WORKERS.set(workers)


def loop_blocked(job_type: str) -> None:
    LOOP_BLOCKED.labels(_job_type(job_type)).inc()


def observe_unmet(waiting: Mapping[str, int]) -> None:
    """Replaces what was found before."""
    UNMET.clear()
    for needs, executions in waiting.items():
        UNMET.labels(needs).set(executions)


def observe_limits(figures: Mapping[str, tuple[int, int, float]]) -> None:
    """Limit -> running, waiting, seconds of the oldest. Replaces what was found before."""
    for gauge in (LIMIT_RUNNING, LIMIT_WAITING, LIMIT_SECONDS):
        gauge.clear()
    for limit, (running, waiting, seconds) in figures.items():
        LIMIT_RUNNING.labels(limit).set(running)
        LIMIT_WAITING.labels(limit).set(waiting)
        LIMIT_SECONDS.labels(limit).set(seconds)


def notification_attempt(kind: str, outcome: str) -> None:
    NOTIFICATION_ATTEMPTS.labels(kind, outcome).inc()


def observe_notifications(*, waiting: int, oldest_seconds: float, failing: int, failing_seconds: float) -> None:
    NOTIFICATIONS_WAITING.set(waiting)
    NOTIFICATIONS_OLDEST.set(oldest_seconds)
    CHANNELS_FAILING.set(failing)
    CHANNEL_FAILING_SECONDS.set(failing_seconds)


def observe_history(*, rows: int, size_bytes: int) -> None:
    HISTORY_ROWS.set(rows)
    HISTORY_BYTES.set(size_bytes)


def schedule_paused(job_type: str) -> None:
    PAUSED_SCHEDULES.labels(_job_type(job_type)).inc()


def pauses_withheld(job_type: str, schedules: int) -> None:
    PAUSES_WITHHELD.labels(_job_type(job_type)).set(schedules)


def ping_ended(outcome: str) -> None:
    PINGS.labels(outcome).inc()


def observe_streaks(*, schedules: int, longest: int) -> None:
    FAILING.set(schedules)
    LONGEST_STREAK.set(longest)


def observe_audit(*, age_seconds: float, expected: int, accounted: int, findings: Mapping[str, int]) -> None:
    AUDIT_AGE.set(age_seconds)
    AUDITED.labels("expected").set(expected)
    AUDITED.labels("accounted").set(accounted)
    for kind, count in findings.items():
        AUDIT_FINDINGS.labels(kind).set(count)


def observe_notifier(*, age_seconds: float) -> None:
    NOTIFIER_AGE.set(age_seconds)


def notification_told(event: str) -> None:
    NOTIFICATIONS_TOLD.labels(event).inc()
