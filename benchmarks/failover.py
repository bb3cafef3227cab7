"""One of three replicas is killed (-9) in the middle of a batch, at 200 fires per second; default heartbeats.

The benchmark freezes the victim briefly until it finds it holding claimed or running executions, then kills it: between
two batches there would be nothing to lose. Every fire of the plan is accounted for by its handler calls.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta

from benchmarks.cluster import REPLICAS, cluster, insert, sleep_until, tally
from benchmarks.designs.catalogue import OURS
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet
from tests.support.replicas import Cluster, Replica
from tests.support.waiting import eventually

FIRES_PER_SECOND, SECONDS = 200, 45
BEFORE_SECONDS = (
    18  # of fires, before somebody is killed: replicas that were only just started listen for a timeout first
)
AFTER_SECONDS = 5  # grace for the last fires
LATE_SECONDS = 1.0
SLEEPERS = 4
MID_BATCH = 5  # fires held by the victim count as the middle of a batch
LOOK_SECONDS = 0.001
STILL_SECONDS = 0.02  # until the servers have processed what the frozen process sent
WAIT_SECONDS = 15  # to find such a moment; there is a batch once a second

LONG = "FROM job_executions WHERE status = 'running' AND cause = 'manual'"
HELD = "FROM job_executions WHERE status IN ('claimed', 'running') AND instance_id = %s"


@dataclass(frozen=True, slots=True)
class Found:
    fires: int
    run_twice: int
    not_run: int
    late: int  # or never
    overlap: int  # rows of fires that met one of the victim's
    held: int  # by the victim when it was killed
    takeover_seconds: float


def run(scale: Scale) -> Iterator[Sheet]:
    found = [_once() for _ in range(scale.rounds)]
    title = f"kill -9 of one of {REPLICAS} replicas in mid-batch under {FIRES_PER_SECOND} fires/s, {len(found)} runs"
    columns = [
        "fires", "held by it", "run twice", "not run", "later than 1 s, or never", "skipped: overlap",
        "all it held was given up after",
    ]  # fmt: skip
    sheet = Sheet("failover", title, columns)
    for one in found:
        counts = one.fires, one.held, one.run_twice, one.not_run, one.late, one.overlap
        sheet.add(*(f"{number:,}" for number in counts), f"{one.takeover_seconds:.1f} s (bound: 8 s)")
    sheet.facts = {"runs": [asdict(one) for one in found]}
    yield sheet


def _once() -> Found:
    with cluster() as made, OURS.start(made, FIRES_PER_SECOND, SECONDS) as (plan, _):
        insert(made, SLEEPERS, "interval", {"days": 1}, "sleep", job_config={"seconds": 120}, max_retries=1)
        sleep_until(plan.at + timedelta(seconds=BEFORE_SECONDS))
        victim = _with_long_jobs(made)
        held = _kill_in_mid_batch(made, victim)
        killed = time.perf_counter()
        eventually(lambda: made.rows(f"SELECT count(*) {HELD}", victim.name) == [(0,)], 60)
        takeover = time.perf_counter() - killed
        sleep_until(plan.end + timedelta(seconds=AFTER_SECONDS))
        calls = tally(made, plan)
        ((overlap,),) = made.rows(
            "SELECT count(*) FROM job_executions WHERE status = 'skipped' AND starts_with(reason, 'overlap')"
        )
    return Found(
        fires=plan.fires,
        run_twice=calls.twice,
        not_run=calls.missing,
        late=calls.later_than(LATE_SECONDS),
        overlap=overlap,
        held=held,
        takeover_seconds=takeover,
    )


def _with_long_jobs(made: Cluster) -> Replica:
    """The replica with the most held fires."""
    made.run(
        """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, cause, due_at)
           SELECT schedule_id, domain, domain, domain_config_id, 'pending', 'manual', now() FROM schedules
           WHERE job_type = 'sleep'"""
    )
    eventually(lambda: made.rows(f"SELECT count(*) {LONG}")[0][0] >= SLEEPERS - 1, 20)
    ((victim, _),) = made.rows(f"SELECT instance_id, count(*) {LONG} GROUP BY 1 ORDER BY 2 DESC LIMIT 1")
    return next(replica for replica in made.replicas if replica.name == victim)


def _kill_in_mid_batch(made: Cluster, victim: Replica) -> int:
    """The number of fires that the replica held, by the table."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        if _held(made, victim) >= MID_BATCH or time.monotonic() > deadline:
            victim.freeze()
            time.sleep(STILL_SECONDS)
            if (held := _held(made, victim)) >= MID_BATCH or time.monotonic() > deadline:
                victim.kill()
                return held
            victim.resume()
        time.sleep(LOOK_SECONDS)


def _held(made: Cluster, victim: Replica) -> int:
    return int(made.rows(f"SELECT count(*) {HELD} AND cause = 'schedule'", victim.name)[0][0])
