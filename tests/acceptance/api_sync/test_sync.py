"""Replicas and the external API: one of them asks, and an API that fails takes nothing away."""

from collections.abc import Iterator

import pytest

from tests.support.api_stand_in import ApiStandIn, many_items, raw, silence, status
from tests.support.replicas import Cluster
from tests.support.waiting import eventually


@pytest.fixture
def api() -> Iterator[ApiStandIn]:
    with ApiStandIn(many_items(20)) as api:
        yield api


def loaded_everywhere(cluster: Cluster, schedules: int) -> bool:
    """By two replicas each, or by the only one."""
    loaded = [int(row[0]) for row in cluster.rows("SELECT schedules FROM scheduler_instances")]
    return sum(loaded) == schedules * min(2, len(loaded))


def test_one_replica_asks_and_all_of_them_run_what_the_api_says(cluster: Cluster, api: ApiStandIn) -> None:
    cluster.start(3, API_URL=api.url, API_SYNC_INTERVAL="3600")
    eventually(lambda: loaded_everywhere(cluster, 20), 20)
    assert len(api.requests) == 1
    eventually(lambda: any(replica.says("synced") for replica in cluster.replicas), 20)  # written after its commit
    assert [replica.says("synced") for replica in cluster.replicas].count(True) == 1


def test_an_api_that_is_down_or_sends_rubbish_takes_nothing_away(cluster: Cluster, api: ApiStandIn) -> None:
    cluster.start(1, API_URL=api.url, API_SYNC_INTERVAL="1", REQUEST_TIMEOUT="1")
    eventually(lambda: loaded_everywhere(cluster, 20), 20)
    before = cluster.rows("SELECT schedule_id, revision, enabled FROM schedules ORDER BY 1")
    rubbish = [raw(b"<html>sign in</html>"), raw(b'{"data": null}'), raw(b'{"data": []}'), status(403), silence]
    api.script = list(rubbish)
    eventually(lambda: not api.script, 60)
    eventually(lambda: cluster.replicas[0].says("sync_removals_refused"), 20)
    assert cluster.replicas[0].says("sync_failed")
    assert cluster.rows("SELECT schedule_id, revision, enabled FROM schedules ORDER BY 1") == before
    assert loaded_everywhere(cluster, 20)
    api.items = api.items[:19]
    eventually(lambda: loaded_everywhere(cluster, 19), 30)


def test_the_sync_of_a_killed_replica_is_taken_over(cluster: Cluster, api: ApiStandIn) -> None:
    api.script = [api.held_back]
    cluster.start(1, API_URL=api.url, API_SYNC_INTERVAL="1")
    assert api.held.wait(20)
    cluster.replicas[0].kill()
    cluster.run("UPDATE api_sync_state SET lease_until = clock_timestamp()")  # two minutes later
    cluster.start(1, API_URL=api.url, API_SYNC_INTERVAL="3600")
    eventually(lambda: cluster.rows("SELECT last->>'by' FROM api_sync_state") == [("replica-2",)], 20)
    assert cluster.rows("SELECT count(*) FROM schedules") == [(20,)]


def test_a_replica_that_stops_hands_its_sync_back(cluster: Cluster, api: ApiStandIn) -> None:
    api.script = [status(503, Retry_After="30")] * 2
    cluster.start(1, API_URL=api.url, API_SYNC_INTERVAL="3600")
    eventually(lambda: api.requests, 20)
    assert cluster.replicas[0].stop() == 0
    assert cluster.replicas[0].says("sync_interrupted")
    assert cluster.rows("SELECT lease_token, started_at FROM api_sync_state") == [(None, None)]
