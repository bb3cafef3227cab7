"""The pipeline in replicas, fast enough for a test."""

from typing import Any

from services.workflows import queues
from tests.support.replicas import Cluster
from tests.support.waiting import eventually

EVERY_SECOND = """UPDATE schedules SET time_config = '{"seconds": 1}' WHERE source = 'system'"""


def start_pipeline(cluster: Cluster, count: int, environment: dict[str, str]) -> None:
    """Replicas whose queues run every second, as if an operator had edited their schedules."""
    cluster.start(count, **{**environment, "WORKFLOWS_ENABLED": "true"})
    job_ids = {queue.job_id for queue in queues.all() if queue.name != "hanging"}  # covered by other tests
    eventually(lambda: set(column(cluster, "SELECT name FROM schedules")) == job_ids, 30)
    cluster.run(EVERY_SECOND)


def column(cluster: Cluster, sql: str) -> list[Any]:
    return [row[0] for row in cluster.rows(sql)]
