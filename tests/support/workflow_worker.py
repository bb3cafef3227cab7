"""A worker that tests disturb: python -m tests.support.workflow_worker URL [SECONDS PER ITEM [RUNS]]

Each item inserts a row into `worked` when it starts, outside of the loop's own transactions. With several short runs,
every fifth key fails, and claims become stale so soon that the processes take them from one another.
"""

import sys
import time

from database.connection import DatabaseConnection
from services.jobs import JobFailed
from tests.support.places import query, run_places, working


def main(url: str, seconds: float = 0.0, runs: float = 1) -> None:
    own, db = DatabaseConnection(url), DatabaseConnection(url, pool_size=1)

    def work(key: int) -> None:
        query(own, "INSERT INTO worked (key, pid) VALUES (:key, pg_backend_pid())", key=key)
        time.sleep(seconds)
        if runs > 1 and key % 5 == 0:
            raise JobFailed("as told")

    print("ready", flush=True)  # noqa: T201 - whoever started us waits for it
    sys.stdin.readline()
    contended = {"stale_seconds": 0.05, "run_budget_seconds": 0.3} if runs > 1 else {}
    for _ in range(int(runs)):
        run_places(db, working(work), concurrency=4, **contended)


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
