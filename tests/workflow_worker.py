"""A process that works on places, for tests that kill it: python -m tests.workflow_worker URL [SECONDS PER ITEM]

Each item leaves a row in `worked` as soon as it is begun, outside of the loop's own transactions.
"""

import sys
import time

from database.connection import DatabaseConnection
from tests.places import query, run_places, working


def main(url: str, seconds: float = 0.0) -> None:
    own, db = DatabaseConnection(url), DatabaseConnection(url, pool_size=1)

    def work(key: int) -> None:
        query(own, "INSERT INTO worked (key, pid) VALUES (:key, pg_backend_pid())", key=key)
        time.sleep(seconds)

    print("ready", flush=True)  # noqa: T201 - whoever started us waits for it
    sys.stdin.readline()
    run_places(db, working(work), concurrency=4)


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
