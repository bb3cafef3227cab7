"""Postgres goes away and comes back; clocks that are wrong against its own. Lines of the failure table."""

from datetime import UTC, datetime, timedelta

import pytest

from services.audit import audit
from tests.acceptance.conftest import Breakable
from tests.acceptance.rows import (
    calls,
    count,
    every_run_was_seen,
    every_second,
    has_run,
    nothing_twice_and_no_gap,
    once,
    repository,
    soon,
    switch_off,
)
from tests.ledger import Ledger
from tests.replicas import Cluster
from tests.waiting import eventually


def test_postgres_may_vanish_and_nothing_is_lost(breakable: Breakable, ledger: Ledger) -> None:
    """What runs keeps its result; what comes due meanwhile runs late, or is missed if its grace is shorter."""
    cluster = breakable.cluster
    cluster.start(2)
    ledger.answer("/slow", delay_seconds=3)
    during_the_outage = soon(8)
    slow, patient, impatient = (
        repository(cluster).create_schedule(**once(at, **calls(ledger, path)), misfire_grace_seconds=grace)
        for path, at, grace in (
            ("/slow", soon(3), 60),
            ("/patient", during_the_outage, 60),
            ("/impatient", during_the_outage, 1),
        )
    )
    repository(cluster).save_schedules(every_second(**calls(ledger, "/quick")) for _ in range(3))
    ((since,),) = cluster.rows("SELECT min(effective_from) FROM schedules")
    eventually(lambda: len(ledger.requests("/slow")) == 1, 20)
    breakable.servers.stop_postgres("immediate")
    assert datetime.now(UTC) < during_the_outage, "the machine is too slow for this test"
    seen = len(ledger.requests("/quick"))
    eventually(lambda: datetime.now(UTC) > during_the_outage + timedelta(seconds=2), 20)  # slow's result has to wait
    assert len(ledger.requests("/quick")) - seen <= 6, "nothing new is started without a row"
    assert ledger.requests("/patient") == ledger.requests("/impatient") == []
    breakable.servers.start_postgres()
    ((back_at,),) = cluster.rows("SELECT clock_timestamp()")
    eventually(lambda: has_run(cluster, slow) and has_run(cluster, patient), 30)
    eventually(lambda: count(cluster, f"schedule_id = '{impatient}'") == 1, 30)
    switch_off(cluster)
    nothing_twice_and_no_gap(cluster)
    missed = cluster.rows("SELECT schedule_id::text, reason FROM job_executions WHERE status = 'missed'")
    assert missed == [(str(impatient), "misfire")]
    report = audit(cluster.db, since, back_at, settle_seconds=0)
    assert report.is_clean, report
    assert report.accounted == report.expected >= 3 * 8
    every_run_was_seen(cluster, ledger)
    assert ledger.requests("/impatient") == []


# --- clocks ---


@pytest.mark.parametrize("skew", ["0.05", "-0.05", "1", "-1"])
def test_small_clock_skew_causes_no_duplicate_and_no_early_start(cluster: Cluster, skew: str) -> None:
    cluster.one("exact")
    cluster.one("skewed", PYTHONPATH="tests/skewed", SKEW_SECONDS=skew)
    cluster.await_live({"exact", "skewed"})
    repository(cluster).save_schedules(every_second() for _ in range(10))
    eventually(lambda: count(cluster, "status = 'success'") >= 50, 30)
    for name in ("exact", "skewed"):
        eventually(lambda: count(cluster, f"instance_id = '{name}' AND status = 'success'") > 0, 30)  # noqa: B023
    switch_off(cluster)
    nothing_twice_and_no_gap(cluster)
    assert count(cluster, "started_at < scheduled_for - interval '25 ms'") == 0


@pytest.mark.parametrize("skew", ["10", "-10"])
def test_a_replica_whose_clock_is_far_off_claims_nothing_and_says_so(cluster: Cluster, skew: str) -> None:
    cluster.one("exact")
    wrong = cluster.one("wrong", PYTHONPATH="tests/skewed", SKEW_SECONDS=skew)
    cluster.await_live({"exact", "wrong"})
    repository(cluster).save_schedules(every_second() for _ in range(5))
    eventually(lambda: count(cluster, "status = 'success'") >= 15, 20)
    assert wrong.says("clock_skew")
    assert count(cluster, "instance_id = 'wrong'") == 0
    assert cluster.rows("SELECT claiming FROM scheduler_instances WHERE instance_id = 'wrong'") == [(False,)]
