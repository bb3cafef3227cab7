"""The floor: the cost without a scheduler. Our own statements on prepared batches, as one of several processes.

The fire marks, the claim with its overlap guard and `next_run`, the leases, the start, a call of the job in a pool of
threads, and the finish, for every PARTS-th schedule, as fast as one loop can. No timer, no choice, no contexts, no
metrics, no second chance. `python -m benchmarks.designs.floor`
"""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

from benchmarks.designs import ledger
from benchmarks.designs.plan import await_plan, say_planned
from database.arrays import flag_array, instant_array, number_array, uuid_array
from database.connection import DatabaseConnection
from database.models import ExecutionStatus
from services.distributed_lock import Coordinator
from services.ledger import claims_sql as sql
from services.redis_client import RedisClient

BATCH = 500


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    loop = BareLoop(DatabaseConnection(os.environ["DATABASE_URL"]), RedisClient(os.environ["REDIS_URL"]))
    batches = list(loop.batches(int(os.environ["PART"]), int(os.environ["PARTS"])))
    loop.wait()
    for batch in batches:
        loop.work(batch)
    signal.sigwait([signal.SIGTERM])
    os._exit(0)


class BareLoop:
    def __init__(self, db: DatabaseConnection, redis: RedisClient) -> None:
        self._connection = db.dedicated()
        self._redis = Coordinator(redis, owner=str(uuid4()), lease_seconds=60, mark_seconds=600)
        self._pool = ThreadPoolExecutor(int(os.environ["MAX_WORKERS"]))
        self._owner = {"instance_id": f"part-{os.environ['PART']}", "incarnation": uuid4()}

    def batches(self, part: int, parts: int) -> Iterator[list[UUID]]:
        rows = self._connection.run("SELECT schedule_id FROM schedules ORDER BY schedule_id")
        ids = [row.schedule_id for row in rows][part::parts]
        yield from (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))

    def wait(self) -> None:
        self._at = await_plan(self._connection.run).at
        say_planned(self._connection.run)
        time.sleep(max(0.0, self._at.timestamp() - time.time()))

    def work(self, ids: list[UUID]) -> None:
        self._redis.mark_fires([(schedule_id, self._at) for schedule_id in ids])
        claimed = self._claim(ids)
        leases = {row.schedule_id: row.fencing_token for row in claimed}
        self._redis.take_leases(leases)
        self._start(claimed)
        list(self._pool.map(_job, claimed))
        self._finish(claimed)
        self._redis.release_leases(leases)

    def _claim(self, ids: list[UUID]) -> list[Any]:
        with self._connection.transaction():
            rows = self._connection.run(sql.LOCK_SCHEDULES, {"ids": uuid_array(ids)})
            count = len(rows)
            values = {
                **self._owner,
                "schedule_ids": uuid_array(row.schedule_id for row in rows),
                "scheduled": instant_array([self._at] * count),
                "due": instant_array([self._at] * count),
                "verdicts": [ExecutionStatus.CLAIMED.value] * count,
                "coalesce": flag_array([True] * count),
                "limits": number_array([1] * count),
                "job_ids": [str(row.schedule_id) for row in rows],
                "domains": [row.domain for row in rows],
                "config_ids": uuid_array(row.domain_config_id for row in rows),
                "next_runs": [None] * count,
                "starts": flag_array([False] * count),
                "able": flag_array([True] * count),
                "keys": ["{}"] * count,
                **dict.fromkeys(("full_keys", "queues", "needs", "priorities")),
                "grace": 300,
                "horizon": 86_400,
            }
            self._revisions = {row.schedule_id: row.revision for row in rows}
            return self._connection.run(sql.INSERT_CLAIMS, values)

    def _start(self, claimed: list[Any]) -> None:
        values = {
            **_fenced(claimed),
            "schedule_ids": uuid_array(row.schedule_id for row in claimed),
            "revisions": number_array(self._revisions[row.schedule_id] for row in claimed),
        }
        with self._connection.transaction():
            self._connection.run(sql.START, values)

    def _finish(self, claimed: list[Any]) -> None:
        count = len(claimed)
        values = {
            **_fenced(claimed),
            "statuses": ["success"] * count,
            "durations": number_array([0.0] * count),
            **{name: [None] * count for name in ("details", "messages", "errors", "scans", "delays", "reasons")},
        }
        with self._connection.transaction():
            self._connection.run(sql.LOCK_OR_TELL, {"ids": uuid_array(row.schedule_id for row in claimed)})
            self._connection.run(sql.FINISH, values)


def _fenced(claimed: list[Any]) -> dict[str, Any]:
    tokens = number_array(row.fencing_token for row in claimed)
    return {"execution_ids": uuid_array(row.execution_id for row in claimed), "tokens": tokens}


def _job(row: Any) -> None:
    ledger.noop(row.schedule_id, row.scheduled_for)


if __name__ == "__main__":
    main()
