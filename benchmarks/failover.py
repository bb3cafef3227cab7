"""One of three replicas is killed -9 under 200 fires a second; default heartbeats.

Every fire of the plan is accounted for by the calls of its handler, the first and the last second included.
"""

import time
from collections.abc import Iterator
from datetime import timedelta

from benchmarks.cluster import REPLICAS, cluster, insert, sleep_until, tally
from benchmarks.designs.catalogue import OURS
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet
from tests.replicas import Cluster
from tests.waiting import eventually

FIRES_PER_SECOND, SECONDS = 200, 35
BEFORE_SECONDS = 4  # of fires, before somebody is killed
AFTER_SECONDS = 5  # that the last fires may take
LATE_SECONDS = 1.0
SLEEPERS = 4

RUNNING = "FROM job_executions WHERE status = 'running' AND cause = 'manual'"


def run(scale: Scale) -> Iterator[Sheet]:
    with cluster() as made, OURS.start(made, FIRES_PER_SECOND, SECONDS) as (plan, _):
        insert(made, SLEEPERS, "interval", {"days": 1}, "sleep", job_config={"seconds": 120}, max_retries=1)
        sleep_until(plan.at + timedelta(seconds=BEFORE_SECONDS))
        takeover = _kill_one(made)
        sleep_until(plan.end + timedelta(seconds=AFTER_SECONDS))
        found = tally(made, plan)
        ((abandoned,),) = made.rows(
            "SELECT count(*) FROM job_executions WHERE status = 'abandoned' AND cause = 'schedule'"
        )
    late = found.later_than(LATE_SECONDS)
    columns = ["fires", "run twice", "not run", "later than 1 s, or never", "long jobs planned again after"]
    title = f"kill -9 of one of {REPLICAS} replicas under {FIRES_PER_SECOND} fires/s, one run"
    sheet = Sheet("failover", title, columns)
    cells = f"{plan.fires:,}", f"{found.twice:,}", f"{found.missing:,}", f"{late:,}"
    sheet.add(*cells, f"{takeover:.1f} s (bound: 22 s)")
    sheet.notes.append(f"{abandoned:,} fires were running in the killed replica and not known to have ended")
    sheet.facts = {
        "fires": plan.fires, "run_twice": found.twice, "not_run": found.missing, "late": late, "abandoned": abandoned,
        "takeover_seconds": takeover,
    }  # fmt: skip
    yield sheet


def _kill_one(made: Cluster) -> float:
    """The one with the most long jobs; seconds until others have these planned again."""
    made.run(
        """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, cause, due_at)
           SELECT schedule_id, domain, domain, domain_config_id, 'pending', 'manual', now() FROM schedules
           WHERE job_type = 'sleep'"""
    )
    eventually(lambda: made.rows(f"SELECT count(*) {RUNNING}")[0][0] >= SLEEPERS - 1, 20)
    ((victim, held),) = made.rows(f"SELECT instance_id, count(*) {RUNNING} GROUP BY 1 ORDER BY 2 DESC LIMIT 1")
    next(replica for replica in made.replicas if replica.name == victim).kill()
    killed = time.perf_counter()
    retried = "SELECT count(*) FROM job_executions WHERE attempt = 2 AND cause = 'manual'"
    eventually(lambda: made.rows(retried)[0][0] >= held, 60)
    return time.perf_counter() - killed
