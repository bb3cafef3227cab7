"""Fires that came due while nobody ran, and those that never were any."""

from datetime import timedelta
from typing import Any

import pytest

from services.insight.audit import audit
from services.ledger.backfill import Backfills
from tests.support.ledger import Ledger
from tests.support.replicas import Cluster
from tests.support.rows import (
    calls,
    count,
    every_run_was_seen,
    every_second,
    has_run,
    never_two_at_once,
    once,
    repository,
    soon,
    switch_off,
)
from tests.support.waiting import eventually


def downtime(cluster: Cluster, seconds: int, **more: Any) -> None:
    """A schedule that fired every ten seconds while nobody was there."""
    given = {**every_second(), "time_config": {"seconds": 10}, "misfire_grace_seconds": 5, **more}
    repository(cluster).create_schedule(**given)
    cluster.run("ALTER TABLE schedules DISABLE TRIGGER USER")
    cluster.run("UPDATE schedules SET effective_from = now() - make_interval(secs => %s)", seconds)
    cluster.run("ALTER TABLE schedules ENABLE TRIGGER USER")


@pytest.mark.parametrize(("catchup", "run"), [("none", 0), ("one", 1), ("all", 10)])
def test_fires_missed_while_nobody_ran_follow_the_catch_up_rule(cluster: Cluster, catchup: str, run: int) -> None:
    downtime(cluster, 300, catchup=catchup)
    cluster.start(2)
    eventually(lambda: count(cluster, "cause = 'catchup' AND status = 'success'") >= run, 25)
    eventually(lambda: count(cluster, "cause = 'catchup' AND status = 'missed'") >= 1, 25)
    eventually(lambda: count(cluster, "cause = 'schedule' AND status = 'success'") >= 1, 25)
    assert count(cluster, "cause = 'catchup' AND status = 'success'") <= run + 1
    ((first, last, fires),) = cluster.rows(
        """SELECT (metadata->>'first')::timestamptz, (metadata->>'last')::timestamptz, (metadata->>'count')::int
           FROM job_executions WHERE reason = 'catchup_cap'"""
    )
    assert last - first == timedelta(seconds=10 * (fires - 1))


def test_fires_missed_while_nobody_ran_are_backfilled_once_each_and_in_order(cluster: Cluster, ledger: Ledger) -> None:
    downtime(cluster, 300, catchup="none", **calls(ledger))
    ((schedule_id, since),) = cluster.rows("SELECT schedule_id, effective_from FROM schedules")
    cluster.start(2)
    eventually(lambda: count(cluster, "cause = 'catchup' AND reason = 'catchup_cap'") == 1, 25)
    switch_off(cluster)
    succeeded = {at for (at,) in cluster.rows("SELECT scheduled_for FROM job_executions WHERE status = 'success'")}
    made = Backfills(cluster.db, timedelta(days=1)).request(schedule_id, since, soon(-1), "test")
    wanted = [fire.scheduled_for for fire in made.fires]
    assert len(wanted) >= 28
    assert not succeeded & set(wanted)
    eventually(lambda: count(cluster, "cause = 'backfill' AND status = 'success'") == len(wanted), 60)
    ran = cluster.rows("SELECT scheduled_for FROM job_executions WHERE cause = 'backfill' ORDER BY started_at")
    assert [at for (at,) in ran] == wanted
    keys = [request.headers["Idempotency-Key"] for request in ledger.requests()]
    assert sorted(keys) == sorted(f"{schedule_id}/{at:%Y-%m-%dT%H:%M:%SZ}" for at in {*wanted, *succeeded})
    every_run_was_seen(cluster, ledger)
    never_two_at_once(cluster)
    assert audit(cluster.db, since).is_clean


def test_fires_missed_under_a_timing_that_was_changed_meanwhile_have_a_row(cluster: Cluster) -> None:
    downtime(cluster, 300)
    ((since,),) = cluster.rows("SELECT effective_from FROM schedules")
    cluster.run("UPDATE schedules SET frequency = 'daily', time_config = '{\"hour\": 3}'")
    cluster.start(2)
    eventually(lambda: count(cluster, "status = 'missed' AND reason = 'catchup_cap'") == 1, 20)
    ((first, fires),) = cluster.rows(
        "SELECT (metadata->>'first')::timestamptz, (metadata->>'count')::int FROM job_executions"
    )
    assert fires in (29, 30)
    assert first - since <= timedelta(seconds=10)
    report = audit(cluster.db, since)
    assert (report.unexplained.count, report.extra.count) == (0, 0)


def test_moving_the_time_back_at_noon_invents_no_fire(cluster: Cluster) -> None:
    schedule_id = repository(cluster).create_schedule(
        domain="job", job_type="noop", frequency="daily", time_config={"hour": 2, "minute": 0}
    )
    cluster.start(2)
    now = soon(0)
    earlier = now - timedelta(minutes=2)
    repository(cluster).update_schedule(schedule_id, time_config={"hour": earlier.hour, "minute": earlier.minute})
    marker = repository(cluster).create_schedule(**once(soon(7)))
    eventually(lambda: has_run(cluster, marker), 20)
    assert count(cluster, f"schedule_id = '{schedule_id}'") == 0


def test_fires_that_wait_for_a_slot_through_several_gap_scans_all_run(cluster: Cluster) -> None:
    cluster.start(1, MAX_WORKERS="1", GAP_SCAN_SECONDS="1.5", VERIFY_AFTER_SECONDS="0.5")
    repository(cluster).save_schedules(once(soon(2), job_type="sleep", job_config={"seconds": 2}) for _ in range(6))
    eventually(lambda: count(cluster, "status = 'success'") == 6, 60)
    assert count(cluster) == 6


def test_a_spread_fire_waits_for_its_due_time_also_when_a_replica_starts_in_between(cluster: Cluster) -> None:
    schedule_id = repository(cluster).create_schedule(**every_second(), spread_seconds=86_400, catchup="one")
    cluster.run("UPDATE schedules SET time_config = '{\"days\": 1}', start_at = date_trunc('second', now())")
    cluster.start(1, GAP_SCAN_SECONDS="1.5", VERIFY_AFTER_SECONDS="0.5")
    marker = repository(cluster).create_schedule(**once(soon(8)))
    eventually(lambda: has_run(cluster, marker), 25)
    assert count(cluster, f"schedule_id = '{schedule_id}'") == 0
