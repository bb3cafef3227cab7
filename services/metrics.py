"""Every collector, one screen. Call sites say what happened; here is decided what is counted.

Label values come from enums and job types only, so that the number of series stays bounded.
"""

from datetime import datetime

from prometheus_client import Counter, Gauge, Histogram

from services.fires import Claim, Ending, Outcome

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600)

EXECUTIONS = Counter("scheduler_executions_total", "Executions that ended", ["job_type", "status"])
DURATION = Histogram("scheduler_execution_seconds", "How long executions took", ["job_type"], buckets=_SECONDS)
LATENESS = Histogram("scheduler_fire_lateness_seconds", "Start of an execution after its due time", buckets=_SECONDS)
FIRES = Counter("scheduler_fires_total", "What claims said about fires", ["outcome"])
FILTERED = Counter("scheduler_redis_marks_total", "Fires asked for at the Redis filter", ["answer"])
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
RUNNING = Gauge("scheduler_running", "Executions that run right now")
QUEUED = Gauge("scheduler_fires_queued", "Fires that are due and wait")
LEAKED = Gauge("scheduler_leaked_threads", "Threads that ignored their timeout and still run")
UNWRITTEN = Gauge("scheduler_results_unwritten", "Results that wait for Postgres")
DEGRADED = Gauge("scheduler_redis_degraded", "1 while Redis does not answer")
SKEW = Gauge("scheduler_clock_skew_seconds", "Local clock ahead of Postgres'")


def execution_started(claim: Claim, now: datetime) -> None:
    LATENESS.observe(max(0.0, (now - claim.due_at).total_seconds()))


def execution_finished(ending: Ending) -> None:
    job_type = ending.claim.spec.job_type
    EXECUTIONS.labels(job_type, ending.status.value).inc()
    if ending.duration_seconds is not None:
        DURATION.labels(job_type).observe(ending.duration_seconds)
    if ending.retry_in_seconds is not None:
        RETRIES.inc()


def finish_refused() -> None:
    REFUSED.inc()


def fire_decided(outcome: Outcome) -> None:
    FIRES.labels(outcome.value).inc()


def fires_filtered(*, won: int, lost: int) -> None:
    FILTERED.labels("won").inc(won)
    FILTERED.labels("lost").inc(lost)


def fires_unverified(count: int) -> None:
    UNVERIFIED.inc(count)


def rescued(*, abandoned: int, handed_back: int) -> None:
    RESCUED.labels("abandoned").inc(abandoned)
    RESCUED.labels("handed_back").inc(handed_back)


def gaps_found(*, handed_over: int, caught_up: int, missed: int) -> None:
    GAPS.labels("handed_over").inc(handed_over)
    GAPS.labels("caught_up").inc(caught_up)
    GAPS.labels("missed").inc(missed)


def schedules_changed(*, added: int, modified: int, removed: int, loaded: int, revision: int) -> None:
    for kind, count in (("added", added), ("modified", modified), ("removed", removed)):
        CHANGES.labels(kind).inc(count)
    SCHEDULES.set(loaded)
    REVISION.set(revision)


def change_applied(seconds: float) -> None:
    WATCHER_SECONDS.observe(seconds)


def clock_skew(seconds: float) -> None:
    SKEW.set(seconds)
