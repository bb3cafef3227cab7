"""The failure table, line by line, with replicas that are really killed and servers that really go away."""

import time
from datetime import timedelta
from typing import Any

import pytest
import redis  # noqa: TID251 - the fault itself

from services.audit import audit
from services.job_history import JobHistory
from tests.acceptance.conftest import Breakable
from tests.acceptance.test_each_fire_once import count, every_second, once, repository, soon
from tests.ledger import Ledger
from tests.redis_proxy import RedisProxy
from tests.replicas import Cluster
from tests.waiting import eventually

TERMINAL = "status NOT IN ('pending', 'claimed', 'running')"


def nothing_twice_and_no_gap(cluster: Cluster) -> None:
    """Each schedule that fires every second has one row per second, and every fire was run at most once."""
    assert (
        cluster.rows(
            "SELECT schedule_id, scheduled_for, attempt FROM job_executions GROUP BY 1, 2, 3 HAVING count(*) > 1"
        )
        == []
    )
    gaps = cluster.rows(
        """SELECT schedule_id, at FROM (
               SELECT schedule_id, scheduled_for AS at,
                      scheduled_for - lag(scheduled_for) OVER (PARTITION BY schedule_id ORDER BY scheduled_for) AS step
               FROM job_executions WHERE attempt = 1 AND cause IN ('schedule', 'catchup')) AS steps
           WHERE step > interval '1 second'"""
    )
    assert gaps == []


# --- replicas ---


def test_a_killed_replica_s_running_execution_is_abandoned_and_retried_elsewhere(cluster: Cluster) -> None:
    cluster.start(2)
    repository(cluster).create_schedule(
        **once(soon(2), job_type="sleep", job_config={"seconds": 6}, max_retries=1, retry_backoff_seconds=0)
    )
    eventually(lambda: count(cluster, "status = 'running'") == 1, 15)
    ((name,),) = cluster.rows("SELECT instance_id FROM job_executions")
    next(replica for replica in cluster.replicas if replica.name == name).kill()
    eventually(lambda: count(cluster, "attempt = 1 AND status = 'abandoned' AND reason = 'replica_dead'") == 1, 15)
    eventually(lambda: count(cluster, "attempt = 2 AND status = 'success'") == 1, 20)
    assert cluster.rows("SELECT instance_id <> %s FROM job_executions WHERE attempt = 2", name) == [(True,)]


def test_a_killed_replica_s_unstarted_claim_is_claimed_again(cluster: Cluster) -> None:
    """The row is made by hand: the moment between claim and start is too short to hit."""
    cluster.run(
        """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, scheduled_for, due_at,
                                       claimed_at, instance_id, incarnation, fencing_token)
           VALUES (gen_random_uuid(), 'job', 'x', gen_random_uuid(), 'claimed', now(), now(), now(), 'dead',
                   gen_random_uuid(), nextval('fencing_token_seq'))"""
    )
    cluster.run(
        """INSERT INTO schedules (schedule_id, domain_config_id, domain, job_type, frequency, time_config)
           SELECT schedule_id, domain_config_id, 'x', 'noop', 'once', '{"at": "2099-01-01T00:00:00+00:00"}'
           FROM job_executions"""
    )
    cluster.start(1)
    eventually(lambda: count(cluster, "status = 'success'") == 1, 15)
    assert cluster.rows(
        "SELECT attempt, instance_id, fencing_token > 1 FROM job_executions WHERE fencing_token > 0"
    ) == [(1, "replica-1", True)]


def test_the_others_take_a_killed_replica_s_fires_without_a_gap(cluster: Cluster) -> None:
    first, *_ = cluster.start(3)
    repository(cluster).save_schedules(every_second() for _ in range(30))
    eventually(lambda: count(cluster, "status = 'success'") >= 90, 20)
    first.kill()
    before = count(cluster)
    eventually(lambda: count(cluster) >= before + 180, 30)
    cluster.run("UPDATE schedules SET enabled = false")
    eventually(lambda: count(cluster, f"NOT ({TERMINAL})") == 0, 20)
    nothing_twice_and_no_gap(cluster)


def test_a_frozen_replica_that_wakes_up_can_overwrite_nothing(cluster: Cluster) -> None:
    first, second = cluster.start(2)
    repository(cluster).create_schedule(
        **once(soon(2), job_type="sleep", job_config={"seconds": 2}, max_retries=1, retry_backoff_seconds=0)
    )
    eventually(lambda: count(cluster, "status = 'running'") == 1, 15)
    ((name,),) = cluster.rows("SELECT instance_id FROM job_executions")
    frozen = first if first.name == name else second
    frozen.freeze()
    eventually(lambda: count(cluster, "attempt = 2 AND status = 'success'") == 1, 30)
    frozen.resume()
    eventually(lambda: frozen.says("finish_refused"), 15)
    assert cluster.rows("SELECT attempt, status FROM job_executions ORDER BY attempt") == [
        (1, "abandoned"),
        (2, "success"),
    ]


def test_a_replica_restarted_under_its_name_does_not_hide_its_former_self(cluster: Cluster) -> None:
    (replica,) = cluster.start(1)
    repository(cluster).create_schedule(**once(soon(2), job_type="sleep", job_config={"seconds": 60}))
    eventually(lambda: count(cluster, "status = 'running'") == 1, 15)
    replica.kill()
    cluster.one(replica.name)
    eventually(lambda: count(cluster, "status = 'abandoned'") == 1, 20)


def test_a_replica_that_is_asked_to_stop_finishes_what_runs(cluster: Cluster) -> None:
    (replica,) = cluster.start(1)
    repository(cluster).create_schedule(**once(soon(2), job_type="sleep", job_config={"seconds": 2}))
    eventually(lambda: count(cluster, "status = 'running'") == 1, 15)
    assert replica.stop() == 0
    assert cluster.rows("SELECT status FROM job_executions") == [("success",)]
    assert cluster.rows("SELECT count(*) FROM scheduler_instances") == [(0,)]


def test_what_runs_longer_than_the_grace_is_rescued_without_waiting(cluster: Cluster) -> None:
    leaving, _ = cluster.start(2, SHUTDOWN_GRACE_SECONDS="1")
    repository(cluster).save_schedules(
        once(soon(2), job_type="sleep", job_config={"seconds": 30}, max_retries=1) for _ in range(6)
    )
    eventually(lambda: count(cluster, "status = 'running'") == 6, 15)
    assert leaving.stop() == 0
    eventually(lambda: count(cluster, "status = 'abandoned'") == count(cluster, "attempt = 2") > 0, 10)


# --- jobs ---


def test_a_handler_that_hangs_times_out_and_does_not_keep_its_slot(cluster: Cluster) -> None:
    cluster.start(1, MAX_WORKERS="1")
    repository(cluster).create_schedule(
        **once(soon(1), job_type="sleep", job_config={"seconds": 60}, timeout_seconds=1)
    )
    eventually(lambda: count(cluster, "status = 'timed_out'") == 1, 20)
    repository(cluster).create_schedule(**once(soon(1)))
    eventually(lambda: count(cluster, "status = 'success'") == 1, 15)


def test_a_running_job_can_be_cancelled(cluster: Cluster) -> None:
    cluster.start(1)
    repository(cluster).create_schedule(**once(soon(1), job_type="sleep", job_config={"seconds": 60}))
    eventually(lambda: count(cluster, "status = 'running'") == 1, 15)
    ((execution_id,),) = cluster.rows("SELECT execution_id FROM job_executions")
    assert JobHistory(cluster.db).request_cancel(execution_id)
    eventually(lambda: count(cluster, "status = 'cancelled'") == 1, 15)


def test_a_manual_run_is_its_own_row_and_waits_for_its_turn(cluster: Cluster) -> None:
    cluster.start(2)
    schedule_id = repository(cluster).create_schedule(
        **every_second(job_type="sleep", job_config={"seconds": 0.7}), timezone="UTC"
    )
    eventually(lambda: count(cluster, "status = 'success'") >= 1, 15)
    execution_id = JobHistory(cluster.db).request_run(schedule_id, actor="test")
    eventually(lambda: count(cluster, f"execution_id = '{execution_id}' AND status = 'success'") == 1, 20)
    cluster.run("UPDATE schedules SET enabled = false")
    eventually(lambda: count(cluster, f"NOT ({TERMINAL})") == 0, 15)
    nothing_twice_and_no_gap(cluster)


# --- Redis ---


def test_redis_may_vanish_and_come_back(breakable: Breakable) -> None:
    cluster = breakable.cluster
    replicas = cluster.start(3)
    repository(cluster).save_schedules(every_second() for _ in range(20))
    eventually(lambda: count(cluster, "status = 'success'") >= 60, 20)
    breakable.servers.stop_redis()
    before = count(cluster, "status = 'success'")
    eventually(lambda: count(cluster, "status = 'success'") >= before + 120, 30)
    assert all(replica.says("redis_degraded") for replica in replicas)
    breakable.servers.start_redis()  # empty: nothing that mattered was in it
    eventually(lambda: all(replica.says("redis_recovered") for replica in replicas), 20)
    before = count(cluster, "status = 'success'")
    eventually(lambda: count(cluster, "status = 'success'") >= before + 60, 20)
    cluster.run("UPDATE schedules SET enabled = false")
    eventually(lambda: count(cluster, f"NOT ({TERMINAL})") == 0, 15)
    nothing_twice_and_no_gap(cluster)


def test_a_minute_of_overlapping_claims_and_finishes_without_redis_leaves_no_deadlock(breakable: Breakable) -> None:
    cluster = breakable.cluster
    breakable.servers.stop_redis()
    replicas = cluster.start(3, MAX_WORKERS="10")
    repository(cluster).save_schedules(
        every_second(job_type="sleep", job_config={"seconds": 0.02}, coalesce=False) for _ in range(80)
    )
    eventually(lambda: count(cluster, "status = 'success'") >= 80 * 60, 240)
    cluster.run("UPDATE schedules SET enabled = false")
    eventually(lambda: count(cluster, f"NOT ({TERMINAL})") == 0, 30)
    nothing_twice_and_no_gap(cluster)
    assert not [replica.name for replica in replicas if replica.says("loop_failed")]


def test_without_redis_a_replica_can_choose_to_pause(breakable: Breakable) -> None:
    cluster = breakable.cluster
    (replica,) = cluster.start(1, LOCK_FAILURE_POLICY="pause")
    repository(cluster).create_schedule(**every_second())
    eventually(lambda: count(cluster, "status = 'success'") >= 2, 15)
    breakable.servers.stop_redis()
    eventually(lambda: replica.says("redis_degraded"), 15)
    ((paused_at,),) = cluster.rows("SELECT clock_timestamp()")
    time.sleep(3)  # the absence of something can only be waited for
    assert count(cluster, f"claimed_at > '{paused_at.isoformat()}'::timestamptz + interval '1 s'") == 0
    breakable.servers.start_redis()
    eventually(lambda: count(cluster, f"claimed_at > '{paused_at.isoformat()}'::timestamptz + interval '3 s'") >= 2, 20)


def test_a_flushed_redis_causes_no_duplicate_and_no_overlap(breakable: Breakable) -> None:
    cluster = breakable.cluster
    cluster.start(3)
    repository(cluster).save_schedules(
        every_second(job_type="sleep", job_config={"seconds": 0.3}, coalesce=False) for _ in range(5)
    )
    with redis.Redis.from_url(breakable.servers.addresses.redis_url) as client:
        for _ in range(40):
            client.flushall()
            time.sleep(0.1)
    cluster.run("UPDATE schedules SET enabled = false")
    eventually(lambda: count(cluster, f"NOT ({TERMINAL})") == 0, 15)
    nothing_twice_and_no_gap(cluster)
    assert cluster.rows(
        """SELECT count(*) FROM (
               SELECT started_at < lag(completed_at) OVER (PARTITION BY schedule_id ORDER BY started_at) AS together
               FROM job_executions WHERE started_at IS NOT NULL) AS pairs WHERE together"""
    ) == [(0,)]


def test_fires_whose_redis_replies_get_lost_are_still_run(cluster: Cluster) -> None:
    with RedisProxy(cluster.environment["REDIS_URL"]) as proxy:
        cluster.start(2, REDIS_URL=proxy.url)
        proxy.lost_replies.update({"EVALSHA": 40, "EVAL": 40})
        repository(cluster).save_schedules(once(soon(3)) for _ in range(200))
        eventually(lambda: count(cluster, "status = 'success'") == 200, 30)
        assert count(cluster) == 200
        cluster.end()


def test_a_slow_redis_delays_nothing_for_long_and_loses_nothing(cluster: Cluster) -> None:
    with RedisProxy(cluster.environment["REDIS_URL"]) as proxy:
        cluster.start(2, REDIS_URL=proxy.url)
        proxy.delay_seconds = 2.0
        repository(cluster).save_schedules(once(soon(3)) for _ in range(200))
        eventually(lambda: count(cluster, "status = 'success'") == 200, 40)
        assert count(cluster) == 200
        cluster.end()


def test_a_redis_without_memory_counts_as_absent(breakable: Breakable) -> None:
    cluster = breakable.cluster
    replicas = cluster.start(2)
    with redis.Redis.from_url(breakable.servers.addresses.redis_url) as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "1")
    repository(cluster).save_schedules(once(soon(3)) for _ in range(100))
    eventually(lambda: count(cluster, "status = 'success'") == 100, 40)
    assert count(cluster) == 100
    eventually(lambda: any(replica.says("redis_degraded") for replica in replicas), 20)


# --- Postgres ---


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
    eventually(lambda: count(cluster, f"NOT ({TERMINAL})") == 0, 30)
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
    cluster.run("UPDATE schedules SET enabled = false")
    eventually(lambda: count(cluster, f"NOT ({TERMINAL})") == 0, 15)
    nothing_twice_and_no_gap(cluster)
    assert count(cluster, "started_at < scheduled_for - interval '25 ms'") == 0
    assert cluster.rows("SELECT count(DISTINCT instance_id) FROM job_executions WHERE status = 'success'") == [(2,)]


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


# --- downtime ---


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


def test_moving_the_time_back_at_noon_invents_no_fire(cluster: Cluster) -> None:
    schedule_id = repository(cluster).create_schedule(
        domain="job", job_type="noop", frequency="daily", time_config={"hour": 2, "minute": 0}
    )
    cluster.start(2)
    now = soon(0)
    earlier = now - timedelta(minutes=2)
    repository(cluster).update_schedule(schedule_id, time_config={"hour": earlier.hour, "minute": earlier.minute})
    marker = repository(cluster).create_schedule(**once(soon(7)))
    eventually(lambda: count(cluster, f"schedule_id = '{marker}' AND status = 'success'") == 1, 20)
    assert count(cluster, f"schedule_id = '{schedule_id}'") == 0


# --- what a review found ---


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
    eventually(lambda: count(cluster, f"schedule_id = '{marker}' AND status = 'success'") == 1, 25)
    assert count(cluster, f"schedule_id = '{schedule_id}'") == 0


def test_a_replica_that_is_stopped_under_load_abandons_nothing_that_did_not_run(cluster: Cluster) -> None:
    leaving, _ = cluster.start(2, MAX_WORKERS="2")
    repository(cluster).save_schedules(
        once(soon(3), job_type="sleep", job_config={"seconds": 0.05}) for _ in range(300)
    )
    eventually(lambda: count(cluster, "status = 'success'") >= 40, 30)
    assert leaving.stop() == 0
    eventually(lambda: count(cluster, "status = 'success'") == 300, 60)
    assert count(cluster) == 300


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
