"""Workers that are really killed, frozen, and cut off from Postgres, Redis or the broker. Lines of the failure table.

What a worker does is the replicas' own code; these tests say that it also holds where a message wakes it.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg2
import redis  # noqa: TID251 - the broker's clock is moved

from services.insight.audit import audit
from services.job_history import JobHistory
from tests.acceptance.conftest import Breakable
from tests.acceptance.fleet.conftest import FleetOf
from tests.support.fleet import SOLO, Fleet, messages_at, run, runners, running
from tests.support.ledger import Ledger
from tests.support.postgres_proxy import PostgresProxy
from tests.support.redis_proxy import RedisProxy
from tests.support.replicas import Cluster
from tests.support.rows import (
    OPEN,
    calls,
    count,
    every_run_was_seen,
    every_second,
    never_two_at_once,
    once,
    repository,
    rows_at_each_request,
    soon,
    switch_off,
)
from tests.support.waiting import eventually

TAKES = "claimed_at = CASE WHEN"
RETRIED = {"max_retries": 1, "retry_backoff_seconds": 0}
LONG = {"job_type": "sleep", "job_config": {"seconds": 60}}
BROKERS_DATABASE = 1  # the one after ours


def ends(cluster: Cluster) -> list[tuple[object, ...]]:
    return cluster.rows("SELECT attempt, status FROM job_executions ORDER BY attempt")


def woken(cluster: Cluster, fleet: Fleet, successes: int) -> bool:
    """Whether so many have succeeded; else one more message, as when what nobody has taken is announced again."""
    if count(cluster, "status = 'success'") == successes:
        return True
    with closing(messages_at(cluster.environment["REDIS_URL"])) as messages:
        messages.send(fleet.queue, 1)
    return False


# --- killed ---


def test_all_children_of_a_killed_worker_are_given_up_and_retried_on_another(cluster: Cluster, fleet: Fleet) -> None:
    cluster.start(1, **fleet.environment)
    killed = fleet.start("--concurrency", "2", processes=2)
    for _ in range(2):
        run(cluster, fleet, **LONG, **RETRIED)
    eventually(lambda: count(cluster, "status = 'running'") == 2, 30)
    cluster.run("UPDATE schedules SET job_config = '{\"seconds\": 0}'")
    killed.kill()
    fleet.start("--pool", "threads", "--concurrency", "2")
    eventually(lambda: count(cluster, "attempt = 2 AND status = 'success'") == 2, 40)
    assert count(cluster, "attempt = 1 AND status = 'abandoned' AND reason = 'replica_dead'") == 2
    assert len(runners(cluster, "attempt = 1")) == 2
    assert runners(cluster, "attempt = 2") == {"worker-2"}


def test_a_worker_restarted_under_its_name_does_not_hide_its_former_self(cluster: Cluster, fleet: Fleet) -> None:
    cluster.start(1, **fleet.environment)
    former = fleet.start(*SOLO, INSTANCE_ID="same")
    run(cluster, fleet, **LONG)
    eventually(lambda: running(cluster), 30)
    former.kill()
    fleet.launch(*SOLO, INSTANCE_ID="same")
    eventually(lambda: count(cluster, "status = 'abandoned'") == 1, 30)


def test_a_worker_that_is_asked_to_stop_finishes_what_runs_and_fails_nothing(cluster: Cluster, fleet: Fleet) -> None:
    """A handler that fails is retried there, with a row for each attempt."""
    cluster.start(1, **fleet.environment)
    worker = fleet.start("--concurrency", "2", processes=2)
    run(cluster, fleet, job_type="fail", max_retries=2, retry_backoff_seconds=0)
    eventually(lambda: ends(cluster) == [(1, "failed"), (2, "failed"), (3, "failed")], 30)
    schedule_id = run(cluster, fleet, job_type="sleep", job_config={"seconds": 3})
    eventually(lambda: any(call.schedule_id == str(schedule_id) for call in cluster.calls()), 30)
    assert worker.stop() == 0
    assert count(cluster, f"schedule_id = '{schedule_id}' AND status = 'success'") == 1
    assert fleet.pids() == []


# --- an answer that comes late, a transaction that nobody ends ---


def test_a_row_that_a_worker_took_and_whose_answer_comes_late_is_run_once(
    cluster: Cluster, fleet: Fleet, proxy: PostgresProxy
) -> None:
    cluster.start(1, **fleet.environment)
    fleet.start(*SOLO, DATABASE_URL=proxy.url)
    fleet.start(*SOLO)
    late = [proxy.delay("COMMIT", 2.5, after=TAKES) for _ in range(2)]
    for _ in range(4):
        run(cluster, fleet)
    late[0].await_struck()
    eventually(lambda: late[0] not in proxy.faults, 20)
    late[1].release()
    eventually(lambda: woken(cluster, fleet, 4), 40, interval_seconds=0.5)
    assert len(cluster.calls()) == 4
    assert count(cluster) == 4


def test_a_worker_that_freezes_while_it_takes_a_row_holds_it_for_seconds_only(
    cluster: Cluster, fleet: Fleet, proxy: PostgresProxy
) -> None:
    cluster.start(1, **fleet.environment)
    frozen = fleet.start(*SOLO, DATABASE_URL=proxy.url)
    held = proxy.hold(TAKES)
    run(cluster, fleet)
    held.await_struck()
    frozen.freeze()
    fleet.start(*SOLO)
    eventually(lambda: woken(cluster, fleet, 1), 20, interval_seconds=0.5)
    held.release()
    frozen.resume()
    eventually(lambda: count(cluster, OPEN) == 0, 20)
    assert ends(cluster) == [(1, "success")]
    assert runners(cluster) == {"worker-2"}


# --- cut off ---


def test_a_worker_that_is_cut_off_from_postgres_is_given_up_and_its_late_end_is_refused(
    cluster: Cluster, fleet: Fleet, proxy: PostgresProxy, ledger: Ledger
) -> None:
    ledger.answer("/", delay_seconds=3)
    cluster.start(1, **fleet.environment)
    cut_off = fleet.start(*SOLO, DATABASE_URL=proxy.url)
    run(cluster, fleet, **calls(ledger), **RETRIED)
    eventually(lambda: len(ledger.requests()) == 1, 30)
    proxy.unplug()
    fleet.start(*SOLO)
    eventually(lambda: ends(cluster) == [(1, "abandoned"), (2, "success")], 40)
    proxy.plug_in()
    eventually(lambda: cut_off.says("finish_refused"), 30)
    assert ends(cluster) == [(1, "abandoned"), (2, "success")]
    every_run_was_seen(cluster, ledger)


def test_a_worker_that_is_cut_off_from_the_broker_leaves_its_work_to_others_and_comes_back(
    cluster: Cluster, fleet: Fleet, ledger: Ledger
) -> None:
    since = datetime.now(UTC)
    with RedisProxy(cluster.environment["REDIS_URL"]) as door:
        broker = f"{door.url.rpartition('/')[0]}/{BROKERS_DATABASE}"
        cluster.start(1, **fleet.environment)
        fleet.start(*SOLO, CELERY_BROKER_URL=broker)
        repository(cluster).save_schedules(every_second(queue=fleet.queue, **calls(ledger)) for _ in range(4))
        eventually(lambda: "worker-1" in runners(cluster), 30)
        fleet.start(*SOLO)
        eventually(lambda: "worker-2" in runners(cluster), 30)
        door.refusing = True
        door.cut()
        ((cut_at,),) = cluster.rows("SELECT clock_timestamp() + interval '1 s'")
        by_others = f"status = 'success' AND instance_id = 'worker-2' AND started_at > '{cut_at}'"
        eventually(lambda: count(cluster, by_others) >= 8, 60)
        assert count(cluster, f"instance_id = 'worker-1' AND started_at > '{cut_at}'") == 0
        door.refusing = False
        ((back_at,),) = cluster.rows("SELECT clock_timestamp()")
        eventually(lambda: count(cluster, f"instance_id = 'worker-1' AND started_at > '{back_at}'") >= 1, 60)
        switch_off(cluster)
        fleet.end()
    every_run_was_seen(cluster, ledger)
    never_two_at_once(cluster)
    assert audit(cluster.db, since, settle_seconds=0).is_clean


def test_a_worker_keeps_its_result_while_redis_and_then_postgres_are_away(
    breakable: Breakable, fleet_of: FleetOf, ledger: Ledger
) -> None:
    cluster = breakable.cluster
    fleet = fleet_of(cluster)
    ledger.answer("/slow", delay_seconds=3)
    cluster.start(1, **fleet.environment)
    fleet.start("--concurrency", "1")
    run(cluster, fleet, **calls(ledger, "/slow"))
    eventually(lambda: len(ledger.requests("/slow")) == 1, 30)
    breakable.servers.stop_redis()
    eventually(lambda: count(cluster, "status = 'success'") == 1, 20)
    breakable.servers.start_redis()
    run(cluster, fleet, **calls(ledger, "/slow"))
    eventually(lambda: len(ledger.requests("/slow")) == 2, 60)
    breakable.servers.stop_postgres("immediate")
    meanwhile = len(ledger.requests())
    time.sleep(4)  # its end has to wait
    assert len(ledger.requests()) == meanwhile, "nothing is started without a row"
    breakable.servers.start_postgres()
    eventually(lambda: count(cluster, "status = 'success'") == 2, 40)
    run(cluster, fleet, **calls(ledger))
    eventually(lambda: count(cluster, "status = 'success'") == 3, 60)
    every_run_was_seen(cluster, ledger)
    assert count(cluster) == 3


def test_no_worker_is_given_up_that_lived_while_a_table_was_locked(
    cluster: Cluster, fleet: Fleet, database_url: str
) -> None:
    cluster.start(1, **fleet.environment)
    fleet.start("--concurrency", "2", processes=2)
    for _ in range(2):
        run(cluster, fleet, job_type="sleep", job_config={"seconds": 12}, **RETRIED)
    eventually(lambda: count(cluster, "status = 'running'") == 2, 30)
    with locked(database_url, "scheduler_instances"):
        time.sleep(7)  # longer than the heartbeat's timeout
    eventually(lambda: count(cluster, OPEN) == 0, 40)
    assert ends(cluster) == [(1, "success"), (1, "success")]


@contextmanager
def locked(database_url: str, table: str) -> Iterator[None]:
    with closing(psycopg2.connect(database_url)) as holder:
        holder.cursor().execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


# --- a clock that is wrong, a message that comes again ---


def test_a_worker_whose_clock_is_far_off_takes_nothing_and_says_so(cluster: Cluster, fleet: Fleet) -> None:
    cluster.start(1, **fleet.environment)
    wrong = fleet.start(*SOLO, PYTHONPATH="tests/support/skewed", SKEW_SECONDS="60")
    run(cluster, fleet)
    eventually(lambda: count(cluster, "published_at IS NOT NULL") == 1, 30)
    assert not woken(cluster, fleet, 1)
    eventually(lambda: wrong.says("clock_skew"), 30)
    fleet.start(*SOLO)
    eventually(lambda: woken(cluster, fleet, 1), 30, interval_seconds=0.5)
    assert runners(cluster) == {"worker-2"}


def test_a_message_that_comes_again_after_the_visibility_timeout_starts_nothing(cluster: Cluster, fleet: Fleet) -> None:
    """The execution lasts longer than the broker waits for an acknowledgement: a task of Celery's would run twice."""
    fleet.app = "tests.support.celery_that_redelivers"
    cluster.start(1, **fleet.environment)
    fleet.start(*SOLO)
    run(cluster, fleet, job_type="sleep", job_config={"seconds": 15})
    eventually(lambda: len(cluster.calls()) == 1, 30)
    path = unquote(urlsplit(cluster.environment["REDIS_URL"]).path)
    with redis.Redis(unix_socket_path=path, db=BROKERS_DATABASE) as broker:
        tags = unacknowledged(broker, fleet.queue)
        assert len(tags) == 1
        broker.zadd("unacked_index", {tags[0]: 1.0})  # as if it had been delivered so long ago
        fleet.start(*SOLO)
        eventually(lambda: tags[0] not in unacknowledged(broker, fleet.queue), 40)
        assert count(cluster, "status = 'running'") == 1, "it comes again while the execution still runs"
        eventually(lambda: broker.llen(fleet.queue) == 0 and unacknowledged(broker, fleet.queue) == [], 40)
    eventually(lambda: count(cluster, "status = 'success'") == 1, 40)
    assert len(cluster.calls()) == 1
    assert count(cluster) == 1


def test_redis_keeps_no_message_that_a_worker_has_been_given(cluster: Cluster, fleet: Fleet) -> None:
    """Its row is announced again anyway; a copy would cost more than all that Celery does for a wake besides."""
    cluster.start(1, **fleet.environment)
    fleet.start("--concurrency", "1")
    run(cluster, fleet, job_type="sleep", job_config={"seconds": 2})
    eventually(lambda: len(cluster.calls()) == 1, 30)
    path = unquote(urlsplit(cluster.environment["REDIS_URL"]).path)
    with redis.Redis(unix_socket_path=path, db=BROKERS_DATABASE) as broker:
        assert (unacknowledged(broker, fleet.queue), broker.llen(fleet.queue)) == ([], 0)
    eventually(lambda: count(cluster, "status = 'success'") == 1, 30)


def unacknowledged(broker: "redis.Redis", queue: str) -> list[Any]:
    """The tags of messages that a worker has been given and has not answered."""
    found: dict[Any, Any] = broker.hgetall("unacked")
    return [tag for tag, message in found.items() if f'"{queue}"'.encode() in message]


# --- promises ---


def test_no_handler_is_called_on_a_worker_before_its_row_is_committed(
    cluster: Cluster, fleet: Fleet, ledger: Ledger
) -> None:
    """At the moment of each request somebody else looks at the table: fires, retries and manual runs alike."""
    seen = rows_at_each_request(cluster, ledger)
    ledger.answer("/unsure", status=503)
    cluster.start(2, **fleet.environment)
    fleet.start("--pool", "threads", "--concurrency", "4")
    at = soon(2)
    repository(cluster).save_schedules(once(at, queue=fleet.queue, **calls(ledger)) for _ in range(60))
    unsure = run(cluster, fleet, **calls(ledger, "/unsure"), **RETRIED)
    JobHistory(cluster.db).request_run(unsure, actor="test")
    eventually(lambda: count(cluster, "status = 'success'") == 60, 60)
    eventually(lambda: len(ledger.requests("/unsure")) == 4 and count(cluster, OPEN) == 0, 30)
    assert seen == [True] * 64
    every_run_was_seen(cluster, ledger)


def test_a_change_reaches_the_row_that_waits_for_a_worker(cluster: Cluster, fleet: Fleet, ledger: Ledger) -> None:
    """By plain SQL: one schedule is disabled, one is deleted, one gets another configuration."""
    cluster.start(1, **fleet.environment)
    disabled, deleted, changed = (run(cluster, fleet, **calls(ledger, f"/{n}")) for n in range(3))
    eventually(lambda: count(cluster, "published_at IS NOT NULL") == 3, 30)
    cluster.run("UPDATE schedules SET enabled = false WHERE schedule_id = %s", disabled)
    cluster.run("DELETE FROM schedules WHERE schedule_id = %s", deleted)
    cluster.run(
        "UPDATE schedules SET job_config = jsonb_build_object('url', %s::text) WHERE schedule_id = %s",
        f"{ledger.url}/new",
        changed,
    )
    fleet.start(*SOLO)
    eventually(lambda: count(cluster, OPEN) == 0, 40)
    assert [request.path for request in ledger.requests()] == ["/new"]
    reasons = dict(cluster.rows("SELECT schedule_id, coalesce(reason, status) FROM job_executions"))
    assert reasons == {disabled: "disabled", deleted: "deleted", changed: "success"}


def test_a_limit_holds_over_replicas_and_workers_together(cluster: Cluster, fleet: Fleet, ledger: Ledger) -> None:
    """By the ledger of the calls, each of which lasts longer than its answer is held back."""
    seconds, most = 0.5, 2
    ledger.answer("/", delay_seconds=seconds)
    cluster.run("INSERT INTO limits (name, max_running) VALUES ('site', %s)", most)
    cluster.start(1, **fleet.environment)
    fleet.start("--pool", "threads", "--concurrency", "4")
    at, job = soon(2), {"limit_keys": ["site"], "misfire_grace_seconds": 300, **calls(ledger)}
    repository(cluster).save_schedules(once(at, queue=queue, **job) for queue in (None, fleet.queue) * 8)
    eventually(lambda: count(cluster, "status = 'success'") == 16, 90)
    began = sorted(request.received_at for request in ledger.requests())
    together = max(sum(0 <= (each - other).total_seconds() < seconds for other in began) for each in began)
    assert together == most
    assert runners(cluster) == {"replica-1", "worker-1"}
    every_run_was_seen(cluster, ledger)


def test_more_than_one_instance_runs_on_replica_and_worker_together_and_no_more_than_allowed(
    cluster: Cluster, fleet: Fleet, ledger: Ledger
) -> None:
    """Its queue changes to and fro, so that both run it at the same time."""
    seconds, most = 2.5, 2
    ledger.answer("/", delay_seconds=seconds)
    cluster.start(1, **fleet.environment)
    fleet.start("--pool", "threads", "--concurrency", "4")
    schedule_id = repository(cluster).create_schedule(**every_second(max_instances=most, **calls(ledger)))
    for queue in (fleet.queue, None) * 3:
        done = len(ledger.requests())
        cluster.run("UPDATE schedules SET queue = %s WHERE schedule_id = %s", queue, schedule_id)
        eventually(lambda: len(ledger.requests()) > done, 30)  # noqa: B023
    switch_off(cluster)
    began = sorted(request.received_at for request in ledger.requests())
    assert max(sum(0 <= (each - other).total_seconds() < seconds for other in began) for each in began) == most
    assert runners(cluster) == {"replica-1", "worker-1"}
    every_run_was_seen(cluster, ledger)


def test_the_copy_of_a_worker_that_comes_back_from_a_handler_ends_itself(cluster: Cluster, fleet: Fleet) -> None:
    cluster.start(1, **fleet.environment)
    worker = fleet.start("--concurrency", "1")
    repository(cluster).save_schedules(every_second(queue=fleet.queue, job_type="fork") for _ in range(2))
    eventually(lambda: count(cluster, "status = 'success'") >= 8, 40)
    switch_off(cluster)
    never_two_at_once(cluster)
    assert worker.stop() == 0
    assert fleet.pids() == []
