"""The log of a running execution, seen from outside, and what is left of it after kill -9."""

from uuid import UUID

from services.job_history import JobHistory
from tests.support.replicas import Cluster
from tests.support.rows import count, once, repository, soon
from tests.support.waiting import eventually


def attempts(cluster: Cluster) -> list[UUID]:
    return [row[0] for row in cluster.rows("SELECT execution_id FROM job_executions ORDER BY attempt")]


def test_what_a_killed_replica_s_handler_said_is_there_and_stays_apart_from_its_retry(cluster: Cluster) -> None:
    (replica,) = cluster.start(1)
    logs = JobHistory(cluster.db).logs
    repository(cluster).create_schedule(
        **once(
            soon(1),
            job_type="talk",
            job_config={"lines": 30, "pause_seconds": 0.1},
            max_retries=1,
            retry_backoff_seconds=0,
        )
    )
    eventually(lambda: count(cluster) == 1, 15)
    (first,) = attempts(cluster)
    eventually(lambda: len(logs.read(first)) >= 5, 15)  # while it runs
    state = logs.state(first)
    assert state is not None
    assert 0 < (state.done or 0) <= 30
    assert count(cluster, "status = 'running'") == 1
    replica.kill()
    cluster.start(1)
    eventually(lambda: count(cluster, "attempt = 2 AND status = 'success'") == 1, 30)
    second = attempts(cluster)[1]
    eventually(lambda: (logs.state(second) or state).is_complete, 10)
    lost, whole = ([line.text for line in logs.read(each)] for each in (first, second))
    said = [
        text for number in range(30) for text in (f"attempt 2 said {number}", f"talking: attempt 2 logged {number}")
    ]
    assert whole == said
    assert lost == [text.replace("attempt 2", "attempt 1") for text in said[: len(lost)]]
    assert 5 <= len(lost) < 60
    assert JobHistory(cluster.db).follow_log(first).look().is_over
