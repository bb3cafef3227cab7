"""Redis goes away, comes back empty, lies, is slow or full: lines of the failure table."""

import time
from collections.abc import Callable
from itertools import count as count_up
from pathlib import Path

import pytest
import redis  # noqa: TID251 - the fault itself

from services.embedded import EmbeddedServers
from tests.acceptance.conftest import Breakable
from tests.support.certificate import certificate_file, server_tls
from tests.support.ledger import Ledger
from tests.support.redis_proxy import RedisProxy
from tests.support.replicas import Cluster
from tests.support.rows import (
    calls,
    count,
    every_run_was_seen,
    every_second,
    never_two_at_once,
    nothing_twice_and_no_gap,
    once,
    repository,
    soon,
    switch_off,
)
from tests.support.tls_door import TlsDoor
from tests.support.waiting import eventually

OUTAGE_SECONDS = 20


def flush(servers: EmbeddedServers) -> None:
    with redis.Redis.from_url(servers.addresses.redis_url) as client:
        for _ in range(10):
            client.flushall()
            time.sleep(0.1)


def stop_empty(servers: EmbeddedServers) -> None:
    """What a Redis without persistence looks like when it is back; ours saves at its end what there is then."""
    with redis.Redis.from_url(servers.addresses.redis_url) as client:
        client.flushall()
    servers.stop_redis()


def restart(servers: EmbeddedServers) -> None:
    stop_empty(servers)
    servers.start_redis()


def evict(servers: EmbeddedServers) -> None:
    """Others' keys push ours out while fires are marked, until no mark is left that was there when it began."""
    with redis.Redis.from_url(servers.addresses.redis_url) as client:
        client.config_set("appendonly", "no")  # its buffers would count as memory
        client.config_set("maxmemory-policy", "allkeys-lru")
        if client.config_get("maxmemory")["maxmemory"] == "0":
            client.config_set("maxmemory", client.info("memory")["used_memory"] + 2_000_000)
        eventually(lambda: any(client.scan_iter("fire:*")), 10)
        marks = set(client.scan_iter("fire:*"))
        for n in count_up():
            client.mset({f"filler:{n}:{m}": "x" * 1000 for m in range(50)})
            if n >= 500 and not marks & set(client.scan_iter("fire:*")):
                break


def test_redis_may_vanish_and_come_back(breakable: Breakable) -> None:
    cluster = breakable.cluster
    replicas = cluster.start(3)
    repository(cluster).save_schedules(every_second() for _ in range(20))
    eventually(lambda: count(cluster, "status = 'success'") >= 60, 20)
    stop_empty(breakable.servers)
    before = count(cluster, "status = 'success'")
    time.sleep(OUTAGE_SECONDS)
    eventually(lambda: count(cluster, "status = 'success'") >= before + 20 * (OUTAGE_SECONDS - 2), 20)
    assert all(replica.says("redis_degraded") for replica in replicas)
    breakable.servers.start_redis()
    eventually(lambda: all(replica.says("redis_recovered") for replica in replicas), 20)
    before = count(cluster, "status = 'success'")
    eventually(lambda: count(cluster, "status = 'success'") >= before + 60, 20)
    switch_off(cluster)
    nothing_twice_and_no_gap(cluster)


def test_a_minute_of_overlapping_claims_and_finishes_without_redis_leaves_no_deadlock(breakable: Breakable) -> None:
    cluster = breakable.cluster
    breakable.servers.stop_redis()
    replicas = cluster.start(3, MAX_WORKERS="10")
    repository(cluster).save_schedules(
        every_second(job_type="sleep", job_config={"seconds": 0.02}, coalesce=False) for _ in range(80)
    )
    eventually(lambda: count(cluster, "status = 'success'") >= 80 * 60, 240)
    switch_off(cluster)
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


@pytest.mark.parametrize("forget", [flush, restart, evict])
def test_a_redis_that_forgot_everything_causes_no_duplicate_and_no_overlap(
    breakable: Breakable, ledger: Ledger, forget: Callable[[EmbeddedServers], None]
) -> None:
    cluster = breakable.cluster
    cluster.start(3)
    ledger.answer("/", delay_seconds=0.3)
    repository(cluster).save_schedules(every_second(**calls(ledger), coalesce=False) for _ in range(5))
    eventually(lambda: count(cluster, "status = 'success'") >= 5, 20)
    for _ in range(3):
        before = count(cluster, "status = 'success'")
        forget(breakable.servers)
        eventually(lambda: count(cluster, "status = 'success'") >= before + 5, 20)  # noqa: B023 - called right here
    switch_off(cluster)
    nothing_twice_and_no_gap(cluster)
    never_two_at_once(cluster)
    every_run_was_seen(cluster, ledger)


def test_fires_whose_redis_replies_get_lost_are_still_run(cluster: Cluster) -> None:
    with RedisProxy(cluster.environment["REDIS_URL"]) as proxy:
        cluster.start(2, REDIS_URL=proxy.url)
        proxy.lost_replies.update({"EVALSHA": 40, "EVAL": 40})
        repository(cluster).save_schedules(once(soon(3)) for _ in range(200))
        eventually(lambda: count(cluster, "status = 'success'") == 200, 30)
        assert count(cluster) == 200
        cluster.end()


def test_a_replica_without_work_says_within_seconds_that_redis_is_away(cluster: Cluster) -> None:
    with RedisProxy(cluster.environment["REDIS_URL"]) as proxy:
        (replica,) = cluster.start(1, REDIS_URL=proxy.url, LOCK_TIMEOUT="600")
        proxy.refusing = True
        proxy.cut()
        eventually(lambda: replica.says("redis_degraded"), 15)
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


def test_replicas_use_a_redis_behind_tls(cluster: Cluster, tmp_path: Path) -> None:
    with TlsDoor(cluster.environment["REDIS_URL"], server_tls(tmp_path)) as door:
        address = f"rediss://127.0.0.1:{door.port}/0?ssl_ca_certs={certificate_file(tmp_path)}"
        cluster.start(2, REDIS_URL=address, LOCK_FAILURE_POLICY="pause")  # without Redis they would run nothing
        repository(cluster).save_schedules(once(soon(3)) for _ in range(100))
        eventually(lambda: count(cluster, "status = 'success'") == 100, 40)
        assert count(cluster) == 100
        cluster.end()
