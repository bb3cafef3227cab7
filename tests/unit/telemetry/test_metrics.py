"""What is counted, under which names, with how many label values."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY, generate_latest

from database.models import Cause, ExecutionStatus
from services.ledger.fires import Claim, Decision, Ending
from services.schedules.spec import ScheduleSpec
from services.telemetry import metrics
from tests.support.executions import POLICY

DUE_AT = datetime(2026, 6, 1, 2, tzinfo=UTC)


def claim(job_type: str = "http_request") -> Claim:
    return Claim(
        execution_id=uuid4(),
        schedule_id=uuid4(),
        scheduled_for=DUE_AT,
        due_at=DUE_AT,
        attempt=1,
        cause=Cause.SCHEDULE,
        fencing_token=1,
        job_id="nightly",
        spec=ScheduleSpec(domain="x", frequency="hourly", time_config={}, job_type=job_type),
        revision=1,
        policy=POLICY,
    )


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


# What an operator's dashboards and alerts are made from.
@pytest.mark.parametrize(
    "name",
    [
        "scheduler_executions_total", "scheduler_execution_seconds", "scheduler_fire_lateness_seconds",
        "scheduler_claims_total", "scheduler_redis_marks_total", "scheduler_lock_failures_total",
        "scheduler_lease_renewals_total", "scheduler_leases_lost_total", "scheduler_running",
        "scheduler_fires_queued", "scheduler_fires_oldest_seconds", "scheduler_schedules_held",
        "scheduler_schedules_loaded", "scheduler_revision_applied",
        "scheduler_watcher_seconds", "scheduler_api_syncs_total", "scheduler_api_sync_schedules_total",
        "scheduler_rescued_total", "scheduler_retries_total", "scheduler_workers",
        "scheduler_database_connections_used", "scheduler_redis_degraded", "scheduler_clock_skew_seconds",
    ],
)  # fmt: skip
def test_a_collector_is_exported_under_its_name(name: str) -> None:
    assert f"# TYPE {name} ".encode() in generate_latest()


def test_an_execution_is_counted_by_job_type_and_status() -> None:
    before = value("scheduler_executions_total", job_type="http_request", status="failed")
    retries = value("scheduler_retries_total")
    metrics.execution_finished(
        Ending(claim=claim(), status=ExecutionStatus.FAILED, duration_seconds=1.5, retry_in_seconds=30)
    )
    assert value("scheduler_executions_total", job_type="http_request", status="failed") == before + 1
    assert value("scheduler_execution_seconds_count", job_type="http_request") >= 1
    assert value("scheduler_retries_total") == retries + 1


def test_lateness_is_counted_from_the_due_time_and_never_negative() -> None:
    before = value("scheduler_fire_lateness_seconds_sum")
    metrics.execution_started(claim(), DUE_AT + timedelta(seconds=2))
    metrics.execution_started(claim(), DUE_AT - timedelta(seconds=1))
    metrics.execution_started(replace(claim(), cause=Cause.BACKFILL), DUE_AT + timedelta(hours=2))
    assert value("scheduler_fire_lateness_seconds_sum") == pytest.approx(before + 2)


def test_every_outcome_of_a_claim_is_there_from_the_start() -> None:
    exported = generate_latest()
    for decision in Decision:
        assert f'scheduler_claims_total{{outcome="{decision.value}"}}'.encode() in exported


def test_the_first_failure_of_a_known_job_type_can_be_told_from_none() -> None:
    metrics.job_types_known(["never ran"])
    exported = generate_latest().decode()
    for status in ("success", "failed", "timed_out", "cancelled", "abandoned", "skipped"):
        assert f'scheduler_executions_total{{job_type="never ran",status="{status}"}} 0.0' in exported


@pytest.mark.parametrize(
    ("name", "kind"),
    [("gap_fires", "missed"), ("gap_fires", "caught_up"), ("rescued", "abandoned"), ("rescued", "handed_back")],
)
def test_what_the_gap_scan_and_the_rescue_may_count_is_there_from_the_start(name: str, kind: str) -> None:
    assert f'scheduler_{name}_total{{as="{kind}"}}'.encode() in generate_latest()


def test_while_no_sync_ever_worked_its_age_grows_all_the_same() -> None:
    metrics.sync_seen(outcome="failed", age_seconds=None, removals_refused=0, local_edits_kept=0)
    first = value("scheduler_api_sync_age_seconds")
    metrics.sync_seen(outcome="failed", age_seconds=None, removals_refused=0, local_edits_kept=0)
    assert value("scheduler_api_sync_age_seconds") > first


def test_job_types_beyond_the_limit_share_one_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_job_types", {f"type-{number}" for number in range(metrics.MAX_JOB_TYPES)})
    before = value("scheduler_executions_total", job_type="other", status="success")
    for job_type in ("made-up-1", "made-up-2"):
        metrics.execution_finished(Ending(claim=claim(job_type), status=ExecutionStatus.SUCCESS))
    assert value("scheduler_executions_total", job_type="other", status="success") == before + 2
    assert b"made-up" not in generate_latest()


def test_queues_beyond_the_limit_share_one_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_queue_names", {f"queue-{number}" for number in range(metrics.MAX_QUEUES)})
    before = value("scheduler_queue_items_total", queue="other", **{"as": "claimed"})
    for queue in ("made-up-queue-1", "made-up-queue-2"):
        metrics.queue_items(queue, "claimed", 5)
    assert value("scheduler_queue_items_total", queue="other", **{"as": "claimed"}) == before + 10
    assert b"made-up-queue" not in generate_latest()


def test_the_coordinator_s_totals_are_handed_on_as_they_are() -> None:
    totals = {"marks_won": 9, "marks_lost": 8, "marks_unknown": 7, "renewals": 6, "lost_leases": 5, "failures": 4}
    metrics.observe_coordinator(totals)
    assert value("scheduler_lock_failures_total") == 4
    assert value("scheduler_lease_renewals_total") == 6
    assert value("scheduler_leases_lost_total") == 5
    assert value("scheduler_redis_marks_unknown_total") == 7
    metrics.observe_coordinator({**totals, "renewals": 60})
    assert value("scheduler_lease_renewals_total") == 60


def test_syncs_are_counted_with_what_they_did() -> None:
    done, failed = (value("scheduler_api_syncs_total", result=result) for result in ("done", "failed"))
    skipped = value("scheduler_api_sync_schedules_total", **{"as": "skipped"})
    metrics.synced("done", {"created": 5, "updated": 3, "skipped": 2})
    metrics.synced("failed", {})
    assert value("scheduler_api_syncs_total", result="done") == done + 1
    assert value("scheduler_api_syncs_total", result="failed") == failed + 1
    assert value("scheduler_api_sync_schedules_total", **{"as": "skipped"}) == skipped + 2
