"""Replicas that share the schedules while they come, go and fail: nothing twice, nothing lost, and how late at most."""

from typing import Any

from services.schedules.buckets import BUCKETS
from tests.acceptance.engine.test_shares import are_shared, everything_is_accounted_for, has_run_for, held
from tests.support.ledger import Ledger
from tests.support.replicas import Cluster
from tests.support.rows import calls, count, every_run_was_seen, every_second, once, repository, soon, switch_off
from tests.support.waiting import eventually

BEAT_SECONDS = 2
SLOW = {"HEARTBEAT_INTERVAL_SECONDS": str(BEAT_SECONDS), "HEARTBEAT_TIMEOUT_SECONDS": str(3 * BEAT_SECONDS)}
LATEST = "SELECT extract(epoch FROM max(started_at - scheduled_for)) FROM job_executions WHERE scheduled_for > %s"
RUNNERS_SINCE = "SELECT DISTINCT instance_id FROM job_executions WHERE started_at > %s"


def now(cluster: Cluster) -> Any:
    return cluster.rows("SELECT clock_timestamp()")[0][0]


def fire_every_second(cluster: Cluster, ledger: Ledger, schedules: int, **given: Any) -> None:
    """The ledger sees each run."""
    repository(cluster).save_schedules(every_second(**given) | calls(ledger) for _ in range(schedules))


def it_was_clean(cluster: Cluster, ledger: Ledger) -> None:
    """The audit, what the handlers noted, and the ledger outside agree: nothing twice, nothing unaccounted."""
    switch_off(cluster)
    everything_is_accounted_for(cluster)
    every_run_was_seen(cluster, ledger)


def test_a_deployment_that_replaces_two_of_four_replicas_at_a_time_makes_no_fire_late(
    cluster: Cluster, ledger: Ledger
) -> None:
    """The two were all holders of some buckets, and the others learn of it a heartbeat later."""
    old = cluster.start(4, **SLOW)
    fire_every_second(cluster, ledger, 40)
    eventually(lambda: are_shared(cluster, 4), 60)
    since = now(cluster)
    for leaving in old[:2], old[2:]:
        for replica in leaving:
            replica.ask_to_stop()
        assert [replica.wait() for replica in leaving] == [0, 0]
        cluster.start(2, **SLOW)
    has_run_for(cluster, 2)
    it_was_clean(cluster, ledger)
    assert any(replica.says("handed_over") for replica in old)
    assert count(cluster, "status NOT IN ('success', 'skipped')") == 0  # a busy machine coalesces some
    ((latest,),) = cluster.rows(LATEST, since)
    assert latest < BEAT_SECONDS


def test_a_replica_that_comes_and_goes_all_the_time_costs_no_fire(cluster: Cluster, ledger: Ledger) -> None:
    """Killed and stopped in turns, each time before the others have made peace with the last change."""
    cluster.start(2)
    fire_every_second(cluster, ledger, 20)
    for number in range(4):
        flapping = cluster.one("flapping")
        eventually(lambda: "flapping" in held(cluster), 30)
        has_run_for(cluster, 1)
        flapping.kill() if number % 2 else flapping.stop()
    eventually(lambda: are_shared(cluster, 2), 60)
    it_was_clean(cluster, ledger)
    assert count(cluster, "status NOT IN ('success', 'skipped', 'abandoned')") == 0


def test_a_frozen_holder_and_one_with_a_wrong_clock_make_nobody_wait_for_them(cluster: Cluster, ledger: Ledger) -> None:
    """The frozen one comes back and finds its fires done; the other one would be first in many orders."""
    cluster.one("wrong", PYTHONPATH="tests/support/skewed", SKEW_SECONDS="10")
    frozen, *others = cluster.start(3)
    fire_every_second(cluster, ledger, 20)
    eventually(lambda: set(held(cluster)) == {"wrong", frozen.name, *(each.name for each in others)}, 60)
    frozen.freeze()
    frozen_at = now(cluster)
    eventually(lambda: frozen.name not in held(cluster), 30)
    has_run_for(cluster, 1)
    frozen.resume()
    eventually(lambda: frozen.name in held(cluster), 30)
    it_was_clean(cluster, ledger)
    ran = {name for (name,) in cluster.rows(RUNNERS_SINCE, frozen_at)}
    assert {each.name for each in others} <= ran <= {each.name for each in (frozen, *others)}


def test_twelve_replicas_share_200_fires_a_second(cluster: Cluster) -> None:
    started = [cluster.one(f"replica-{number}") for number in range(1, 13)]
    cluster.await_live({replica.name for replica in started})
    eventually(lambda: are_shared(cluster, 12), 90)
    repository(cluster).save_schedules(every_second() for _ in range(200))
    has_run_for(cluster, 3)
    switch_off(cluster)
    everything_is_accounted_for(cluster)
    assert cluster.rows("SELECT count(DISTINCT instance_id) FROM job_executions") == [(12,)]


def test_a_replica_without_room_gives_its_fires_to_one_that_has_some(cluster: Cluster, ledger: Ledger) -> None:
    """Each bucket has one holder, so nobody else would try them."""
    (small,), (large,) = (cluster.start(1, MAX_WORKERS=workers, TIMER_COPIES="1") for workers in ("1", "20"))
    eventually(lambda: sum(mask.bit_count() for mask in held(cluster).values()) == BUCKETS, 60)
    ledger.answer("/", delay_seconds=1.5)
    at = soon(3)
    repository(cluster).save_schedules(once(at) | calls(ledger) for _ in range(16))
    eventually(lambda: count(cluster, "status = 'success'") == 16, 60)
    assert small.says("given_away")
    runs = dict(cluster.rows("SELECT instance_id, count(*) FROM job_executions GROUP BY 1"))
    assert runs[small.name] < 6 < runs[large.name]
    everything_is_accounted_for(cluster)
    every_run_was_seen(cluster, ledger)
