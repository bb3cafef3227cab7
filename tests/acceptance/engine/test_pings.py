"""A schedule's ping_url, with real replicas: the end of a run is told after it was written, and never invented."""

from tests.support.ledger import Ledger
from tests.support.replicas import Cluster
from tests.support.rows import count, once, repository, soon
from tests.support.waiting import eventually


def paths(ledger: Ledger) -> list[str]:
    return [each.path for each in ledger.requests()]


def test_runs_tell_their_start_and_end_and_a_retry_only_the_last_end(cluster: Cluster, ledger: Ledger) -> None:
    cluster.start(1)
    schedules = repository(cluster)
    schedules.create_schedule(**once(soon(2), ping_url=f"{ledger.url}/good"))
    schedules.create_schedule(
        **once(soon(2), job_type="fail", max_retries=1, retry_backoff_seconds=0, ping_url=f"{ledger.url}/bad")
    )
    eventually(lambda: len(paths(ledger)) == 5, 20)
    assert [each for each in paths(ledger) if "good" in each] == ["/good/start", "/good"]
    assert [each for each in paths(ledger) if "bad" in each] == ["/bad/start", "/bad/start", "/bad/fail"]
    (failed,) = ledger.requests("/bad/fail")
    assert failed.body.startswith(b"failed: ")
    assert count(cluster, f"execution_id = '{failed.target.rpartition('rid=')[2]}' AND attempt = 2") == 1


def test_a_run_whose_replica_was_killed_tells_no_success_and_its_retry_does(cluster: Cluster, ledger: Ledger) -> None:
    (doomed,) = cluster.start(1)
    repository(cluster).create_schedule(
        **once(soon(2), job_type="sleep", job_config={"seconds": 4}, max_retries=1, ping_url=f"{ledger.url}/p")
    )
    eventually(lambda: paths(ledger) == ["/p/start"], 20)
    doomed.kill()
    cluster.start(1)
    eventually(lambda: count(cluster, "status = 'abandoned'") == 1, 40)
    eventually(lambda: count(cluster, "status = 'success'") == 1, 40)
    eventually(lambda: paths(ledger) == ["/p/start", "/p/start", "/p"], 10)
