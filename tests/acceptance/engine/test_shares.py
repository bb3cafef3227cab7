"""Replicas that share the schedules: they join, die, start all at once, and run beside the version before."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from config import PROJECT_ROOT
from services.insight.audit import audit
from services.schedules.buckets import BUCKETS, bucket_of, from_bytes
from tests.support.replicas import Cluster, Replica
from tests.support.rows import count, every_second, repository, switch_off
from tests.support.waiting import eventually

COPIES = 2
SCHEDULES = 24
ELDER = "dedeaa4"  # the newest commit whose replicas load everything
LIVING = """
SELECT instance_id, holds FROM scheduler_instances
WHERE heartbeat_at > clock_timestamp() - greatest(interval '3 s', make_interval(secs => 2 * heartbeat_interval_seconds))
"""


def held(cluster: Cluster) -> dict[str, int]:
    """The buckets that the living replicas hold, by their names."""
    return {name: from_bytes(bytes(holds)) for name, holds in cluster.rows(LIVING) if holds is not None}


def are_shared(cluster: Cluster, replicas: int) -> bool:
    """Is each bucket held by as many of these replicas as it should be, and by no more?"""
    masks = held(cluster)
    return len(masks) == replicas and all(
        sum(mask >> bucket & 1 for mask in masks.values()) == min(COPIES, replicas) for bucket in range(BUCKETS)
    )


def has_run_for(cluster: Cluster, seconds: int) -> None:
    """Until every schedule has so many rows more."""
    ((before,),) = cluster.rows("SELECT count(*) FROM job_executions WHERE attempt = 1")
    ((schedules,),) = cluster.rows("SELECT count(*) FROM schedules WHERE enabled")
    eventually(lambda: count(cluster, "attempt = 1") >= before + seconds * schedules, seconds + 40)


def everything_is_accounted_for(cluster: Cluster) -> None:
    """Nothing was called twice, and the audit finds a row, or a summary, for every fire since the test began."""
    assert cluster.called_twice() == []
    until = datetime.now(UTC)

    def is_clean() -> bool:
        report = audit(cluster.db, until - timedelta(minutes=10), until, settle_seconds=0)
        assert (report.unexplained.first, report.unwatched.first, report.extra.first) == ([], [], [])
        return report.expected > 0 and report.is_clean

    eventually(is_clean, 30)  # the last fires wait for a gap scan


def test_one_replica_alone_holds_everything(cluster: Cluster) -> None:
    cluster.start(1)
    repository(cluster).save_schedules(every_second() for _ in range(5))
    eventually(lambda: are_shared(cluster, 1), 20)
    has_run_for(cluster, 3)
    switch_off(cluster)
    everything_is_accounted_for(cluster)


def test_a_replica_that_joins_and_one_that_dies_move_shares_and_no_fire_is_lost(cluster: Cluster) -> None:
    repository(cluster).save_schedules(every_second() for _ in range(SCHEDULES))
    cluster.start(3)
    eventually(lambda: are_shared(cluster, 3), 60)
    cluster.start(1)
    eventually(lambda: are_shared(cluster, 4), 60)
    cluster.replicas[0].kill()
    eventually(lambda: are_shared(cluster, 3), 60)
    has_run_for(cluster, 3)
    switch_off(cluster)
    everything_is_accounted_for(cluster)


def test_both_holders_of_a_bucket_die_together_and_its_fires_are_late_by_a_takeover(cluster: Cluster) -> None:
    schedule_id = repository(cluster).create_schedule(**every_second())
    cluster.start(4)
    eventually(lambda: are_shared(cluster, 4), 60)
    ((bucket,),) = cluster.rows(f"SELECT {bucket_of('%s::uuid')}", schedule_id)
    holders = {name for name, mask in held(cluster).items() if mask >> bucket & 1}
    assert len(holders) == COPIES
    ((killed_at,),) = cluster.rows("SELECT clock_timestamp()")
    for replica in cluster.replicas:
        if replica.name in holders:
            replica.kill()
    eventually(lambda: count(cluster, _by_others(holders)) >= 3, 30)
    switch_off(cluster)
    everything_is_accounted_for(cluster)
    late = "SELECT extract(epoch FROM max(created_at - scheduled_for)) FROM job_executions WHERE scheduled_for > %s"
    ((latest,),) = cluster.rows(late, killed_at)
    assert latest < 3 + 0.5 + 6, "the heartbeat timeout, an interval, and what a busy machine takes to load"


def _by_others(names: set[str]) -> str:
    listed = ", ".join(f"'{name}'" for name in sorted(names))
    return f"status = 'success' AND instance_id NOT IN ({listed})"


def test_six_replicas_that_start_at_once_share_everything(cluster: Cluster) -> None:
    repository(cluster).save_schedules(every_second() for _ in range(SCHEDULES))
    started = [cluster.one(f"replica-{number}") for number in range(1, 7)]
    cluster.await_live({replica.name for replica in started})
    eventually(lambda: are_shared(cluster, 6), 90)
    fair = COPIES * BUCKETS / 6
    assert max(mask.bit_count() for mask in held(cluster).values()) <= 1.25 * fair
    has_run_for(cluster, 2)
    switch_off(cluster)
    everything_is_accounted_for(cluster)


@pytest.fixture
def elder(tmp_path: Path) -> Path:
    """The program of the version before, as a directory."""
    made = tmp_path / "elder"
    made.mkdir()
    archive = subprocess.run(["git", "archive", ELDER], cwd=PROJECT_ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the commit {ELDER} is not in this clone")
    subprocess.run(["tar", "-x", "-C", str(made)], input=archive.stdout, check=True)
    return made


def test_replicas_of_the_version_before_are_replaced_one_by_one_under_load(cluster: Cluster, elder: Path) -> None:
    """No duplicate, no gap, no failed fire, whoever is there."""
    elders = [cluster.elder(f"elder-{number}", elder) for number in (1, 2)]
    cluster.await_live({replica.name for replica in elders})
    repository(cluster).save_schedules(every_second() for _ in range(SCHEDULES))
    has_run_for(cluster, 2)
    new: list[Replica] = []
    for old in elders:
        new += cluster.start(1)
        has_run_for(cluster, 2)
        assert new[0].says("elders")
        assert old.stop() == 0
    new += cluster.start(1)
    eventually(lambda: are_shared(cluster, 3), 60)
    has_run_for(cluster, 2)
    switch_off(cluster)
    everything_is_accounted_for(cluster)
    assert count(cluster, "status NOT IN ('success', 'skipped')") == 0
