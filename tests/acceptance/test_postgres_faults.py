"""Postgres goes away and comes back; clocks that are wrong against its own. Lines of the failure table."""

import time

import pytest

from tests.acceptance.conftest import Breakable
from tests.acceptance.rows import (
    OPEN,
    count,
    every_second,
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
    cluster = breakable.cluster
    cluster.start(2)
    ledger.answer("/slow", delay_seconds=3)
    repository(cluster).save_schedules(
        every_second(job_type="http_request", job_config={"url": f"{ledger.url}/quick"}) for _ in range(3)
    )
    slow = repository(cluster).create_schedule(
        **once(soon(3), job_type="http_request", job_config={"url": f"{ledger.url}/slow"})
    )
    eventually(lambda: len(ledger.requests("/slow")) == 1, 20)
    breakable.servers.stop_postgres("immediate")
    seen = len(ledger.requests("/quick"))
    time.sleep(4)  # longer than the slow job: its result has to wait
    assert len(ledger.requests("/quick")) - seen <= 6, "nothing new is started without a row"
    breakable.servers.start_postgres()
    eventually(lambda: count(cluster, f"schedule_id = '{slow}' AND status = 'success'") == 1, 30)
    cluster.run("UPDATE schedules SET enabled = false WHERE schedule_id <> %s", slow)
    eventually(lambda: count(cluster, OPEN) == 0, 30)
    nothing_twice_and_no_gap(cluster)
    keys = [request.headers["Idempotency-Key"] for request in ledger.requests("/quick")]
    assert len(keys) == len(set(keys))


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
