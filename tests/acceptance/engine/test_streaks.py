"""Policies after failures in a row, with real replicas: what they skip and pause is accounted for."""

from uuid import uuid4

from services.engine.shares.orders import trying
from services.insight.audit import audit
from services.schedules.buckets import ALL, to_bytes
from tests.support.replicas import Cluster
from tests.support.rows import count, every_second, repository, switch_off
from tests.support.waiting import eventually


def test_a_failing_schedule_backs_off_another_is_paused_although_a_replica_dies_and_every_fire_is_accounted_for(
    cluster: Cluster,
) -> None:
    replicas = cluster.start(2)
    schedules = repository(cluster)
    thinned = schedules.create_schedule(**every_second(job_type="fail", backoff_after_failures=2))
    paused = schedules.create_schedule(**every_second(job_type="fail", pause_after_failures=3))
    well = schedules.create_schedule(**every_second())
    ((since,),) = cluster.rows("SELECT clock_timestamp()")
    eventually(lambda: count(cluster, f"schedule_id = '{thinned}' AND reason = 'backoff'") >= 3, 30)
    replicas[0].kill()  # perhaps the one whose turn it was: the other one goes on
    eventually(lambda: not schedules.find_schedule(str(paused)).enabled, 90)
    record = schedules.find_schedule(str(paused))
    assert record.failures_in_a_row >= 3
    assert str(record.disabled_note).startswith("paused by pause_after_failures=3 after")
    assert schedules.get_changes(paused, 1)[0].changed_by == "policy:pause_after_failures"
    assert schedules.find_schedule(str(well)).enabled
    assert count(cluster, f"schedule_id = '{thinned}' AND status = 'failed'") < 30, "most of its fires are skipped"
    ((until,),) = cluster.rows("SELECT clock_timestamp()")
    eventually(lambda: cluster.rows("SELECT until > %s FROM fires_watched", until) == [(True,)], 60)
    switch_off(cluster)
    report = audit(cluster.db, since)
    assert (report.unexplained.count, report.duplicates, report.extra.count) == (0, 0, 0)


def test_streaks_are_counted_while_a_replica_of_the_version_before_is_first_everywhere(cluster: Cluster) -> None:
    """During a rolling upgrade, or for as long as somebody lets one of each version run."""
    (replica,) = cluster.start(1)
    names = (f"before-{number}" for number in range(100))
    first = next(name for name in names if trying(0, {name, replica.name})[0] == name)
    before = {"name": first, "incarnation": uuid4(), "holds": to_bytes(ALL)}
    with cluster.db.transaction() as connection:
        connection.exec_driver_sql(
            """INSERT INTO scheduler_instances (instance_id, incarnation, claiming, on_duty, holds, facts, started_at,
                                                heartbeat_at, kind)
               VALUES (%(name)s, %(incarnation)s, true, true, %(holds)s, '{"schema": "0031"}', now(),
                       now() + interval '1 day', 'replica')""",
            before,
        )
    ((inserted,),) = cluster.rows("SELECT clock_timestamp() + interval '1 second'")
    beat = "SELECT heartbeat_at > %s FROM scheduler_instances WHERE instance_id = %s"
    eventually(lambda: cluster.rows(beat, inserted, replica.name) == [(True,)], 30)  # it has read the row
    schedules = repository(cluster)
    failing = str(schedules.create_schedule(**every_second(job_type="fail")))
    eventually(lambda: schedules.find_schedule(failing).failures_in_a_row >= 2, 60)
