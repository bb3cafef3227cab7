"""Faults that hit a part: one answer late, one connection that hangs, some rows held, a server that stalls.

Everything else goes on meanwhile, which is what makes them worse than a crash. Lines of the failure table.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import psycopg2
import pytest
from psycopg2.extensions import connection as PgConnection

from services.engine.shares.orders import trying
from services.job_history import JobHistory
from services.schedules.buckets import bucket_of
from tests.acceptance.conftest import Breakable
from tests.support.postgres_proxy import PostgresProxy
from tests.support.replicas import Cluster, Replica
from tests.support.rows import (
    count,
    every_second,
    gauge,
    has_run,
    nothing_twice_and_no_gap,
    once,
    repository,
    soon,
    switch_off,
)
from tests.support.waiting import eventually

# Where a statement of the engine is recognized on its way.
CLAIMS = "THEN 'coalesced'"
LOCKS_FOR_A_CLAIM = "ORDER BY s.schedule_id FOR NO KEY UPDATE SKIP LOCKED"
CLAIMS_PENDING = "claimed_at = CASE WHEN verdict = 'claimed'"
STARTS = "SET status = 'running', started_at"
FINISHES = "completed_at = clock_timestamp(), duration_seconds = c.duration"
HANDS_BACK = "FROM free WHERE e.execution_id = free.execution_id"
BEATS = "INSERT INTO scheduler_instances"
WATCHES = "INSERT INTO fires_watched"

SEVERAL_BEATS = 2.5  # seconds, with the intervals of tests/support/replicas.py
LONGER_THAN_THE_TIMEOUT = 7.0
A_BUSY_MACHINE_SECONDS = 0.2
# Room between what a missing connection tells and what silence tells.
PATIENT = {"HEARTBEAT_INTERVAL_SECONDS": "1", "HEARTBEAT_TIMEOUT_SECONDS": "8"}
DEFAULTS = {
    "HEARTBEAT_INTERVAL_SECONDS": "4",
    "HEARTBEAT_TIMEOUT_SECONDS": "15",
    "RESCUE_INTERVAL_SECONDS": "5",
    "VERIFY_AFTER_SECONDS": "3",
    "GAP_SCAN_SECONDS": "30",
}


# --- an answer that comes late ---


def test_a_claim_whose_answer_comes_late_is_run_once(cluster: Cluster, proxy: PostgresProxy) -> None:
    late = proxy.delay("COMMIT", SEVERAL_BEATS, after=CLAIMS)
    replicas = cluster.start(2, DATABASE_URL=proxy.url)
    repository(cluster).create_schedule(**once(soon(2)))
    late.await_struck()
    eventually(lambda: late not in proxy.faults, SEVERAL_BEATS + 5)
    eventually(lambda: count(cluster, "status = 'success'") == 1, 15)
    stop(replicas)
    assert len(cluster.calls()) == 1
    assert cluster.rows("SELECT status, attempt FROM job_executions") == [("success", 1)]


def test_a_claim_is_not_run_once_it_is_being_handed_back(cluster: Cluster, proxy: PostgresProxy) -> None:
    """The claim's answer overtakes the hand-back: at that moment the row still is what the answer says."""
    replicas = [cluster.one("slow", DATABASE_URL=proxy.url), cluster.one("other")]
    cluster.await_live({"slow", "other"})
    claim = proxy.delay("COMMIT", after=CLAIMS)
    hand_back = proxy.send_late(HANDS_BACK)
    create = repository(cluster).create_schedule
    long = once(soon(2), job_type="sleep", job_config={"seconds": 6})
    create(schedule_id=preferred_by(cluster, "slow", "other"), **long)
    claim.await_struck()
    hand_back.await_struck()
    claim.release()
    afterwards = create(schedule_id=preferred_by(cluster, "slow", "other"), **once(soon(1)))
    eventually(lambda: has_run(cluster, afterwards), 15)
    hand_back.release()
    eventually(lambda: count(cluster, "status = 'success'") == 2, 15)
    stop(replicas)
    assert len(cluster.calls()) == 2


def test_a_replica_that_gets_its_own_late_claims_again_loses_no_slot(cluster: Cluster, proxy: PostgresProxy) -> None:
    """The handlers still run when the rows that were handed back are there to be claimed."""
    late = proxy.delay("COMMIT", SEVERAL_BEATS, after=CLAIMS)
    (replica,) = cluster.start(1, DATABASE_URL=proxy.url, MAX_WORKERS="4")
    at = soon(2)
    repository(cluster).save_schedules(once(at, job_type="sleep", job_config={"seconds": 2}) for _ in range(4))
    late.await_struck()
    eventually(lambda: count(cluster, "status = 'success'") == 4, 20)
    repository(cluster).save_schedules(once(soon(1)) for _ in range(4))
    eventually(lambda: count(cluster, "status = 'success'") == 8, 15)
    stop([replica])
    assert len(cluster.calls()) == 8
    assert not replica.says("loop_failed")


def test_late_answers_under_load_call_no_attempt_twice(cluster: Cluster, proxy: PostgresProxy) -> None:
    """Late is what claims, starts and finishes get to hear, in turn; retries and manual runs are among them.

    Jobs take so long that some of a second's fires are claimed ahead, and started by a statement of their own.
    """
    replicas = cluster.start(2, DATABASE_URL=proxy.url)
    schedules = repository(cluster)
    schedules.save_schedules(every_second(job_type="sleep", job_config={"seconds": 0.05}) for _ in range(60))
    schedules.save_schedules(every_second(job_type="fail", max_retries=1, retry_backoff_seconds=0) for _ in range(5))
    eventually(lambda: count(cluster, "status = 'success'") >= 60, 20)
    ids = [row[0] for row in cluster.rows("SELECT schedule_id FROM schedules LIMIT 10")]
    for text, after in (
        ("COMMIT", CLAIMS),
        ("COMMIT", CLAIMS_PENDING),
        (STARTS, ""),
        ("COMMIT", FINISHES),
        ("COMMIT", CLAIMS),
    ):
        late = [proxy.delay(text, SEVERAL_BEATS, after=after) for _ in range(2)]  # perhaps one for each replica
        for schedule_id in ids:
            JobHistory(cluster.db).request_run(schedule_id, actor="test")
        late[0].await_struck()
        eventually(lambda: late[0] not in proxy.faults, SEVERAL_BEATS + 5)  # noqa: B023
        late[1].release()
    switch_off(cluster)
    stop(replicas)
    nothing_twice_and_no_gap(cluster)
    assert count(cluster, "status = 'abandoned'") == 0


def test_an_execution_that_was_given_up_is_not_called_when_the_late_answers_arrive(
    cluster: Cluster, proxy: PostgresProxy
) -> None:
    """Its replica's heartbeat is answered after the timeout, then its claim: it is trusted again, but has not been."""
    slow, other = cluster.one("slow", DATABASE_URL=proxy.url), cluster.one("other")
    cluster.await_live({"slow", "other"})
    await_rescuers(cluster, 3)
    at = soon(3)
    wanted = once(at, max_retries=1, retry_backoff_seconds=0)
    repository(cluster).create_schedule(schedule_id=preferred_by(cluster, "slow", "other"), **wanted)
    claim = proxy.delay("COMMIT", after=CLAIMS)
    eventually(lambda: datetime.now(UTC) > at - timedelta(seconds=0.6))
    beat = proxy.delay(BEATS)
    claim.await_struck()
    eventually(lambda: count(cluster, "attempt = 1 AND status = 'abandoned'") == 1, 15)
    beat.release()
    await_rescuers(cluster, 1)
    claim.release()
    eventually(lambda: count(cluster, "attempt = 2 AND status = 'success'") == 1, 15)
    stop([slow, other])
    assert [call.attempt for call in cluster.calls()] == ["2"]


# --- a transaction that nobody ends ---


def test_a_replica_that_freezes_inside_a_claim_does_not_silence_its_schedules(
    cluster: Cluster, proxy: PostgresProxy
) -> None:
    frozen, _ = cluster.one("frozen", DATABASE_URL=proxy.url), cluster.one("other")
    cluster.await_live({"frozen", "other"})
    repository(cluster).save_schedules(every_second() for _ in range(12))
    eventually(lambda: count(cluster, "status = 'success' AND instance_id = 'frozen'") >= 12, 20)
    held = proxy.hold(LOCKS_FOR_A_CLAIM)
    held.await_struck()
    frozen.freeze()
    assert schedules_with_locks(cluster), "it is inside its transaction"
    ((frozen_at,),) = cluster.rows("SELECT clock_timestamp()")
    eventually(lambda: schedules_run_since(cluster, frozen_at + timedelta(seconds=1)) == 12, 11)
    frozen.resume()
    held.release()
    eventually(lambda: count(cluster, f"instance_id = 'frozen' AND claimed_at > '{frozen_at}'") > 0, 20)
    switch_off(cluster)
    nothing_twice_and_no_gap(cluster)


def test_a_replica_that_is_unplugged_inside_a_claim_does_not_silence_its_schedules(
    cluster: Cluster, proxy: PostgresProxy
) -> None:
    """It lives and hears nothing; what it holds must end at the server."""
    cluster.one("unplugged", DATABASE_URL=proxy.url)
    cluster.one("other")
    cluster.await_live({"unplugged", "other"})
    repository(cluster).save_schedules(every_second() for _ in range(12))
    eventually(lambda: count(cluster, "status = 'success' AND instance_id = 'unplugged'") >= 12, 20)
    proxy.hold(LOCKS_FOR_A_CLAIM).await_struck()
    proxy.unplug()
    ((unplugged_at,),) = cluster.rows("SELECT clock_timestamp()")
    eventually(lambda: schedules_run_since(cluster, unplugged_at + timedelta(seconds=1)) == 12, 11)
    assert cluster.called_twice() == []


def test_a_gap_scan_that_freezes_inside_its_transaction_stops_nobody_else_s(
    cluster: Cluster, proxy: PostgresProxy
) -> None:
    frozen = cluster.one("frozen", DATABASE_URL=proxy.url, GAP_SCAN_SECONDS="1.5")
    cluster.one("other", GAP_SCAN_SECONDS="1.5")
    cluster.await_live({"frozen", "other"})
    eventually(lambda: cluster.rows("SELECT until FROM fires_watched") != [], 20)
    proxy.hold(WATCHES).await_struck()
    frozen.freeze()
    ((frozen_at,),) = cluster.rows("SELECT clock_timestamp()")
    eventually(lambda: cluster.rows("SELECT until > %s FROM fires_watched", frozen_at) == [(True,)], 12)


def test_a_rescue_waits_for_no_row_that_somebody_holds(cluster: Cluster, database_url: str) -> None:
    (dead,) = cluster.start(1, MAX_WORKERS="10")
    at = soon(2)
    repository(cluster).save_schedules(once(at, job_type="sleep", job_config={"seconds": 60}) for _ in range(10))
    eventually(lambda: count(cluster, "status = 'running'") == 10, 15)
    with session(database_url, "SELECT FROM job_executions ORDER BY execution_id LIMIT 1 FOR UPDATE") as holder:
        cluster.start(1)
        dead.kill()
        eventually(lambda: count(cluster, "status = 'abandoned'") == 9, 9)
        holder.rollback()
        eventually(lambda: count(cluster, "status = 'abandoned'") == 10, 9)


# --- a server that stalls ---


@pytest.mark.parametrize("table", ["scheduler_instances", "job_executions"])
def test_nobody_who_lives_is_given_up_when_a_table_was_locked(cluster: Cluster, database_url: str, table: str) -> None:
    cluster.start(2, MAX_WORKERS="6")
    run_long_jobs(cluster, seconds=16)
    with session(database_url, f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE") as holder:
        pause(holder, LONGER_THAN_THE_TIMEOUT)
    nothing_was_given_up(cluster)


def test_nobody_who_lives_is_given_up_when_postgres_stood_still(breakable: Breakable) -> None:
    cluster = breakable.cluster
    cluster.start(2, MAX_WORKERS="6")
    run_long_jobs(cluster, seconds=16)
    with standstill(breakable):
        time.sleep(LONGER_THAN_THE_TIMEOUT)
    nothing_was_given_up(cluster)


def test_nobody_who_lives_is_given_up_when_postgres_was_restarted(breakable: Breakable) -> None:
    cluster = breakable.cluster
    cluster.start(2, MAX_WORKERS="6", **PATIENT)
    run_long_jobs(cluster, seconds=16, timeout_seconds=8)
    breakable.servers.restart_postgres("immediate")
    nothing_was_given_up(cluster)


# --- schedules that somebody holds ---


def test_held_schedules_keep_no_other_ones_waiting(cluster: Cluster, database_url: str, free_port: int) -> None:
    cluster.start(1)
    cluster.start(1, METRICS_PORT=str(free_port))
    job = {"job_type": "sleep", "job_config": {"seconds": 0.05}}  # a replica claims few at once
    repository(cluster).save_schedules(every_second(tags=["held"], **job) for _ in range(60))
    repository(cluster).save_schedules(every_second(tags=["free"], **job) for _ in range(30))
    eventually(lambda: schedules_run_since(cluster, datetime.min.replace(tzinfo=UTC)) == 90, 20)
    ((begun_at,),) = cluster.rows("SELECT clock_timestamp()")
    eventually(lambda: cluster.rows("SELECT clock_timestamp() > %s", begun_at + timedelta(seconds=5)) == [(True,)])
    before = runs_within(cluster, "free", 5)
    with session(database_url, "SELECT FROM schedules WHERE 'held' = ANY(tags) FOR UPDATE") as holder:
        pause(holder, 13)
        # Starved ones would not come back while the others are held; a busy machine calms down.
        eventually(lambda: runs_within(cluster, "free", 5) > 2 / 3 * before, 30)
        eventually(lambda: gauge(free_port, "scheduler_fires_oldest_seconds") > 10, 20)
        eventually(lambda: gauge(free_port, "scheduler_schedules_held") > 0, 20)
        ((released_at,),) = cluster.rows("SELECT clock_timestamp()")
    eventually(lambda: schedules_run_since(cluster, released_at) == 90, 20)
    eventually(lambda: gauge(free_port, "scheduler_fires_oldest_seconds") < 2, 20)
    switch_off(cluster)
    nothing_twice_and_no_gap(cluster)


# --- a replica that starts meanwhile ---


@pytest.mark.parametrize("table", ["scheduler_instances", "job_executions"])
def test_a_replica_that_starts_while_a_table_is_locked_waits_for_it(
    cluster: Cluster, database_url: str, table: str
) -> None:
    with session(database_url, f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"):
        late, impatient = cluster.one("late"), cluster.one("impatient")
        for replica in (late, impatient):
            eventually(lambda: replica.says("start_waits"), 20)  # noqa: B023
        assert impatient.stop() == 0, "it hears SIGTERM while it waits"
        assert not impatient.says("started")
    cluster.await_live({"late"})
    run = repository(cluster).create_schedule(**once(soon(1)))
    eventually(lambda: has_run(cluster, run), 15)
    assert late.log.read_text().count('"event": "start_waits"') == 1
    assert cluster.rows("SELECT instance_id FROM scheduler_instances") == [("late",)]


# --- a process that is dead, and those that only look like it ---


def test_a_process_killed_in_the_middle_of_a_batch_is_noticed_before_its_silence_is(cluster: Cluster) -> None:
    """Under load and with the default settings: silence alone would need 11 seconds at least."""
    killed, _ = cluster.start(2, MAX_WORKERS="20", **DEFAULTS)
    repository(cluster).save_schedules(
        every_second(job_type="sleep", job_config={"seconds": 0.3}, max_retries=1, retry_backoff_seconds=0)
        for _ in range(40)
    )
    await_rescuers(cluster, 15)
    held = f"instance_id = '{killed.name}' AND status = 'running'"
    eventually(lambda: count(cluster, held) >= 5, 20, interval_seconds=0.005)
    killed.kill()
    ((killed_at,),) = cluster.rows("SELECT clock_timestamp()")
    assert count(cluster, held) > 0, "it was killed in the middle of a batch"
    eventually(lambda: count(cluster, held) == 0, 15)
    ((noticed_at,),) = cluster.rows("SELECT max(completed_at) FROM job_executions WHERE status = 'abandoned'")
    assert (noticed_at - killed_at).total_seconds() < 10
    eventually(lambda: schedules_run_since(cluster, noticed_at) == 40, 20)
    switch_off(cluster)
    nothing_twice_and_no_gap(cluster)


def test_behind_a_transaction_pooler_only_silence_tells_who_is_dead(cluster: Cluster) -> None:
    """The connections at the server are the pooler's, whoever lives."""
    killed, _ = cluster.start(2, DATABASE_TRANSACTION_POOLER="true", **PATIENT)
    run_long_jobs(cluster, seconds=60, timeout_seconds=8)
    killed.kill()
    ((killed_at,),) = cluster.rows("SELECT clock_timestamp()")
    held = f"instance_id = '{killed.name}' AND status = 'running'"
    eventually(lambda: count(cluster, held) == 0, 15)
    ((noticed_at,),) = cluster.rows("SELECT min(completed_at) FROM job_executions WHERE status = 'abandoned'")
    assert (noticed_at - killed_at).total_seconds() > 6.5


def test_a_replica_whose_connections_end_again_and_again_is_not_given_up(
    cluster: Cluster, proxy: PostgresProxy
) -> None:
    """First by a storm of pg_terminate_backend; then it has none for a moment, three times."""
    cluster.one("cut-off", MAX_WORKERS="6", DATABASE_URL=proxy.url, **PATIENT)
    cluster.one("other", MAX_WORKERS="6", **PATIENT)
    cluster.await_live({"cut-off", "other"})
    run_long_jobs(cluster, seconds=30, timeout_seconds=8)
    ends_at = time.monotonic() + 6
    while time.monotonic() < ends_at:
        cluster.rows(TERMINATE, "cut-off")
        time.sleep(0.1)
    for _ in range(3):
        proxy.refusing = True
        proxy.cut()
        time.sleep(1.5)
        proxy.refusing = False
        time.sleep(1)
    nothing_was_given_up(cluster)


TERMINATE = """
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a
WHERE a.application_name IN (SELECT session_name FROM scheduler_instances WHERE instance_id = %s)
"""


# --- what the tests do ---


def stop(replicas: Sequence[Replica]) -> None:
    """Whatever they still were to call, they have called when this returns."""
    for replica in replicas:
        assert replica.stop() == 0


def preferred_by(cluster: Cluster, name: str, *others: str) -> UUID:
    """A schedule that this replica tries first, once all of them have loaded it."""
    while True:
        schedule_id = uuid4()
        ((bucket,),) = cluster.rows(f"SELECT {bucket_of('%s::uuid')}", schedule_id)
        if trying(bucket, [name, *others])[0] == name:
            return schedule_id


def await_rescuers(cluster: Cluster, timeout_seconds: float) -> None:
    """Until every replica has beaten without a break for longer than that: before, nobody would rescue anything."""
    ((now,),) = cluster.rows("SELECT clock_timestamp()")
    until = now + timedelta(seconds=timeout_seconds + 1)
    beat = "SELECT bool_and(heartbeat_at > %s) FROM scheduler_instances"
    eventually(lambda: cluster.rows(beat, until) == [(True,)], timeout_seconds + 10)


def run_long_jobs(cluster: Cluster, *, seconds: float, timeout_seconds: float = 3) -> None:
    """Three in each replica, until the replicas would notice if one of them died."""
    names = {replica.name for replica in cluster.replicas}
    job = once(soon(2), job_type="sleep", job_config={"seconds": seconds}, max_retries=1, retry_backoff_seconds=0)
    repository(cluster).save_schedules(
        {**job, "schedule_id": preferred_by(cluster, name, *names - {name})} for name in names for _ in range(3)
    )
    eventually(lambda: count(cluster, "status = 'running'") == 6, 15)
    await_rescuers(cluster, timeout_seconds)


def nothing_was_given_up(cluster: Cluster) -> None:
    """Long after whoever was mistaken would have run them again, all have ended as if nothing had happened."""
    eventually(lambda: count(cluster, "status = 'running' AND attempt = 1") == 0, 40)
    ends = cluster.rows("SELECT attempt, status, count(*) FROM job_executions GROUP BY 1, 2 ORDER BY 1, 2")
    assert ends == [(1, "success", 6)]
    assert len(cluster.calls()) == 6


@contextmanager
def session(database_url: str, sql: str) -> Iterator[PgConnection]:
    """Somebody's psql in which a transaction is open."""
    with closing(psycopg2.connect(database_url)) as connection:
        connection.cursor().execute(sql)
        yield connection


def pause(holder: PgConnection, seconds: float) -> None:
    holder.cursor().execute("SELECT pg_sleep(%s)", (seconds,))


@contextmanager
def standstill(breakable: Breakable) -> Iterator[None]:
    """All processes of Postgres, as when its machine is paused; those that hear the replicas' hearts wake up last."""
    hearts = {row[0] for row in breakable.cluster.rows(HEARTS)}
    postmaster = breakable.servers.addresses.postgres_pid
    assert postmaster is not None
    os.kill(postmaster, signal.SIGSTOP)  # first: it makes no further ones
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    stopped = [postmaster, *sorted((int(child) for child in children), key=lambda pid: pid in hearts)]
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in stopped:
            if pid in hearts:
                time.sleep(A_BUSY_MACHINE_SECONDS)
            os.kill(pid, signal.SIGCONT)


HEARTS = """
SELECT pid FROM pg_stat_activity
WHERE query ~ 'INSERT INTO scheduler_instances|SELECT DISTINCT instance_id|AS cancel_requested'
  AND pid <> pg_backend_pid()
"""


def schedules_with_locks(cluster: Cluster) -> int:
    """How many that are held by somebody's transaction."""
    with cluster.db.transaction() as connection:
        free = connection.exec_driver_sql("SELECT schedule_id FROM schedules FOR UPDATE SKIP LOCKED").all()
        everything = connection.exec_driver_sql("SELECT count(*) FROM schedules").scalar_one()
    return int(everything) - len(free)


def schedules_run_since(cluster: Cluster, since: datetime) -> int:
    sql = "SELECT count(DISTINCT schedule_id) FROM job_executions WHERE status = 'success' AND scheduled_for > %s"
    return int(cluster.rows(sql, since)[0][0])


def runs_within(cluster: Cluster, tag: str, seconds: float) -> int:
    """How many have begun in the last so many seconds."""
    sql = """SELECT count(*) FROM job_executions JOIN schedules USING (schedule_id)
             WHERE %s = ANY(tags) AND started_at > clock_timestamp() - make_interval(secs => %s)"""
    return int(cluster.rows(sql, tag, seconds)[0][0])
