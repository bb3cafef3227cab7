"""What a row says about a fire is what became of it: nothing that was recorded as missed runs, nothing is invented."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest

from services.insight.audit import audit
from tests.support.ledger import Ledger
from tests.support.postgres_proxy import PostgresProxy
from tests.support.replicas import Cluster, Replica
from tests.support.rows import OPEN, calls, count, every_second, repository, switch_off
from tests.support.waiting import eventually

SUMMARIES = """
SELECT sum((metadata->>'count')::int), max((metadata->>'last')::timestamptz) FROM job_executions
WHERE reason = 'catchup_cap'
"""
# What the handlers' calls and the summaries say about the same fires.
RUN_AFTER_ALL = """
SELECT e.schedule_id, e.scheduled_for FROM job_executions AS e JOIN job_executions AS summary
  ON summary.schedule_id = e.schedule_id AND summary.reason = 'catchup_cap' AND e.created_at > summary.created_at
 AND e.scheduled_for BETWEEN summary.scheduled_for AND (summary.metadata->>'last')::timestamptz
WHERE e.started_at IS NOT NULL
"""


def test_what_was_recorded_as_missed_while_a_replica_was_frozen_is_not_run_when_it_wakes_up(
    cluster: Cluster, ledger: Ledger
) -> None:
    """It is the only one when it freezes; the one that comes then records the downtime, as `catchup=none` says."""
    (frozen,) = cluster.start(1, CATCHUP_MAX_FIRES="3")
    jobs = (every_second(coalesce=False, max_instances=3, catchup="none", **calls(ledger)) for _ in range(6))
    repository(cluster).save_schedules(jobs)
    eventually(lambda: count(cluster, "status = 'success'") >= 12, 20)
    ((since,),) = cluster.rows("SELECT max(effective_from) FROM schedules")
    frozen.freeze()
    ((frozen_at,),) = cluster.rows("SELECT clock_timestamp()")
    long_enough = "SELECT clock_timestamp() > %s + interval '12 seconds'"
    eventually(lambda: cluster.rows(long_enough, frozen_at) == [(True,)], 30)
    cluster.start(1, CATCHUP_MAX_FIRES="3")
    eventually(lambda: count(cluster, "reason = 'catchup_cap'") == 6, 20)
    fires, last = cluster.rows(SUMMARIES)[0]
    assert fires > 6 * 3
    frozen.resume()
    eventually(lambda: cluster.rows("SELECT until > %s FROM fires_watched", last) == [(True,)], 30)
    eventually(lambda: count(cluster, f"instance_id = '{frozen.name}' AND scheduled_for > '{last}'") >= 3, 30)
    switch_off(cluster)
    assert cluster.rows(RUN_AFTER_ALL) == []
    report = audit(cluster.db, since)
    assert (report.contradicted.count, report.extra.count, report.unexplained.count) == (0, 0, 0)


@pytest.mark.parametrize(
    ("how", "is_on_at_last"), [("frozen", True), ("frozen", False), ("cut off", True), ("unplugged", False)]
)
def test_nothing_is_invented_for_the_time_in_which_a_schedule_was_off(
    cluster: Cluster, proxy: PostgresProxy, how: str, is_on_at_last: bool
) -> None:
    """The replica does not hear of it: somebody switches the schedules off and on while it is away.

    One that is cut off goes on: for what it knows, every second of that time had its fires.
    """
    (replica,) = cluster.start(1, DATABASE_URL=proxy.url)
    repository(cluster).save_schedules(every_second(coalesce=False, max_instances=5) for _ in range(3))
    eventually(lambda: count(cluster, "status = 'success'") >= 6, 20)
    ((since,),) = cluster.rows("SELECT max(effective_from) FROM schedules")
    with away(replica, proxy, how):
        off_from, off_until = switched_off_for_some_fires(cluster)
        if not is_on_at_last:
            cluster.run("UPDATE schedules SET enabled = false")
    if is_on_at_last:
        eventually(lambda: count(cluster, f"status = 'success' AND scheduled_for > '{off_until}'") >= 3, 30)
        cluster.run("UPDATE schedules SET enabled = false")
    vouched = "SELECT until > %s FROM fires_watched"
    eventually(lambda: cluster.rows(vouched, off_until) == [(True,)] and count(cluster, OPEN) == 0, 40)
    invented = cluster.rows(
        """SELECT status, reason, scheduled_for FROM job_executions
           WHERE scheduled_for > %s AND scheduled_for <= %s""",
        off_from,
        off_until,
    )
    assert invented == []
    report = audit(cluster.db, since)
    assert (report.extra.count, report.unexplained.count, report.unwatched.count) == (0, 0, 0)


@contextmanager
def away(replica: Replica, proxy: PostgresProxy, how: str) -> Iterator[None]:
    """Nothing comes through between this replica and Postgres, its process may go on."""
    match how:
        case "frozen":
            replica.freeze()
            yield
            replica.resume()
        case "cut off":
            proxy.refusing = True
            proxy.cut()
            yield
            proxy.refusing = False
        case "unplugged":
            proxy.unplug()
            yield
            proxy.plug_in()


def switched_off_for_some_fires(cluster: Cluster) -> tuple[datetime, datetime]:
    cluster.run("UPDATE schedules SET enabled = false")
    ((off_from, enough),) = cluster.rows(
        "SELECT max(effective_from), max(effective_from) + interval '4 s' FROM schedules"
    )
    eventually(lambda: cluster.rows("SELECT clock_timestamp() > %s", enough) == [(True,)], 10)
    cluster.run("UPDATE schedules SET enabled = true")
    ((off_until,),) = cluster.rows("SELECT min(effective_from) FROM schedules")
    return off_from, off_until
