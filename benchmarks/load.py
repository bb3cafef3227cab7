"""Many schedules in one replica: loading time, memory, idle CPU, change latency, cost of a fire."""

import json
import statistics
import time
from collections.abc import Iterator

from benchmarks.cluster import FIRST_PORT, POLL_SECONDS, cluster, cpu_seconds, fill, memory_mb, metric, soon
from benchmarks.growth import exponent
from benchmarks.progress import doing
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet
from tests.support.replicas import Cluster, Replica
from tests.support.waiting import eventually

IDLE_SECONDS = 30
CHANGES = 20
FIRES = 2000


def run(scale: Scale) -> Iterator[Sheet]:
    columns = ["schedules", "start until loaded", "memory", "idle CPU", "a change is live", f"CPU/fire of {FIRES:,}"]
    sheet = Sheet("load", "One replica with many schedules", columns)
    for count in scale.loads:
        doing(f"a replica with {count:,} schedules")
        _measure(sheet, count)
    costs = [(int(count), facts["cpu_seconds_per_fire"]) for count, facts in sheet.facts.items()]
    power = exponent(costs)
    sheet.facts["exponent"] = power
    sheet.notes.append(f"the cost of a fire grows with the number of schedules to the power of {power:.2f}")
    yield sheet


def _measure(sheet: Sheet, count: int) -> None:
    with cluster() as made:
        fill(made, count)
        started = time.perf_counter()
        replica = made.one("replica-1", METRICS_PORT=str(FIRST_PORT), METRICS_HOST="127.0.0.1")
        eventually(lambda: metric(FIRST_PORT, "scheduler_schedules_loaded") >= count, 120)
        loaded = time.perf_counter() - started
        time.sleep(10)  # the first gap scan
        idle, memory = _idle_percent(replica), memory_mb(replica.pid)
        waits = [_change(made) for _ in range(CHANGES)]
        cpu = _cpu_per_fire(made, replica)
    live = f"median {statistics.median(waits) * 1000:.0f} ms, slowest {max(waits) * 1000:.0f} ms"
    cells = f"{loaded:.1f} s", f"{memory:.0f} MB", f"{idle:.1f} %", live, f"{cpu * 1e6:.0f} us"
    sheet.add(f"{count:,}", *cells)
    sheet.facts[str(count)] = {
        "loaded_seconds": loaded, "memory_mb": memory, "idle_percent": idle,
        "change_median_seconds": statistics.median(waits), "change_slowest_seconds": max(waits),
        "cpu_seconds_per_fire": cpu,
    }  # fmt: skip


def _idle_percent(replica: Replica) -> float:
    before = cpu_seconds(replica.pid)
    time.sleep(IDLE_SECONDS)
    return (cpu_seconds(replica.pid) - before) / IDLE_SECONDS * 100


def _change(made: Cluster) -> float:
    """From the commit of a plain SQL change until the replica has it in its timer."""
    made.run(
        """UPDATE schedules SET priority = 1 - priority
           WHERE schedule_id = (SELECT schedule_id FROM schedules ORDER BY schedule_id LIMIT 1)"""
    )
    committed = time.perf_counter()
    ((revision,),) = made.rows("SELECT last_value FROM schedule_revision_seq")
    while metric(FIRST_PORT, "scheduler_revision_applied") < revision:
        time.sleep(POLL_SECONDS)
    return time.perf_counter() - committed


def _cpu_per_fire(made: Cluster, replica: Replica) -> float:
    """Cost of schedules that fire at the same instant among many that do not."""
    at = soon(5)
    made.run(
        """INSERT INTO schedules (domain_config_id, domain, job_type, frequency, time_config)
           SELECT gen_random_uuid(), 'f' || n, 'noop', 'once', %s::jsonb FROM generate_series(1, %s) AS n""",
        json.dumps({"at": at.isoformat()}),
        FIRES,
    )
    time.sleep(max(0.0, at.timestamp() - 0.3 - time.time()))
    before = cpu_seconds(replica.pid)
    eventually(lambda: made.rows("SELECT count(*) FROM job_executions WHERE status = 'success'") == [(FIRES,)], 60)
    return (cpu_seconds(replica.pid) - before) / FIRES
