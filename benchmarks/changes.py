"""Change latency, from the commit of a plain SQL change until every replica has it in its timer."""

import statistics
import time
from collections.abc import Iterator

from benchmarks.cluster import FIRST_PORT, POLL_SECONDS, REPLICAS, cluster, insert, metric
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet
from tests.support.waiting import eventually


def run(scale: Scale) -> Iterator[Sheet]:
    with cluster() as made:
        for number in range(REPLICAS):
            made.one(f"replica-{number + 1}", METRICS_PORT=str(FIRST_PORT + number), METRICS_HOST="127.0.0.1")
        made.await_live({replica.name for replica in made.replicas})
        insert(made, 1000, "daily", {"hour": 2})
        eventually(lambda: min(_revisions()) >= made.rows("SELECT max(revision) FROM schedules")[0][0], 30)
        waits = []
        for _ in range(scale.changes):
            made.run("UPDATE schedules SET priority = priority + 1 WHERE domain = 'd7'")
            committed = time.perf_counter()
            ((revision,),) = made.rows("SELECT max(revision) FROM schedules")
            while min(_revisions()) < revision:
                time.sleep(POLL_SECONDS)
            waits.append(time.perf_counter() - committed)
    median, slowest = statistics.median(waits), max(waits)
    sheet = Sheet(
        "changes", f"A change committed by SQL, live in all {REPLICAS} replicas", ["changes", "median", "slowest"]
    )
    sheet.add(str(len(waits)), f"{median * 1000:.0f} ms", f"{slowest * 1000:.0f} ms")
    sheet.facts = {"median_seconds": median, "slowest_seconds": slowest}
    yield sheet


def _revisions() -> list[float]:
    return [metric(FIRST_PORT + number, "scheduler_revision_applied") for number in range(REPLICAS)]
