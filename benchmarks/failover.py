"""One of three replicas is killed -9 under load; default heartbeats."""

import time
from collections.abc import Iterator

from benchmarks.cluster import REPLICAS, cluster, insert
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet
from tests.waiting import eventually


def run(scale: Scale) -> Iterator[Sheet]:
    """One of three replicas is killed under 200 fires a second; default heartbeats."""
    with cluster() as made:
        made.start(REPLICAS)
        insert(made, 200, "interval", {"seconds": 1})
        insert(made, 4, "interval", {"days": 1}, "sleep", job_config={"seconds": 120}, max_retries=1)
        time.sleep(8)
        made.run(
            """INSERT INTO job_executions (schedule_id, job_id, domain, domain_config_id, status, cause, due_at)
               SELECT schedule_id, domain, domain, domain_config_id, 'pending', 'manual', now() FROM schedules
               WHERE job_type = 'sleep'"""
        )
        eventually(
            lambda: (
                made.rows("SELECT count(*) FROM job_executions WHERE status = 'running' AND cause = 'manual'")[0][0]
                >= 3
            ),
            20,
        )
        ((victim, held),) = made.rows(
            """SELECT instance_id, count(*) FROM job_executions WHERE status = 'running' AND cause = 'manual'
               GROUP BY 1 ORDER BY 2 DESC LIMIT 1"""
        )
        next(replica for replica in made.replicas if replica.name == victim).kill()
        killed = time.perf_counter()
        eventually(lambda: made.rows("SELECT count(*) FROM job_executions WHERE attempt = 2")[0][0] >= held, 60)
        takeover = time.perf_counter() - killed
        time.sleep(5)
        made.run("UPDATE schedules SET enabled = false")
        time.sleep(3)
        ((twice,),) = made.rows(
            """SELECT count(*) FROM (
                   SELECT FROM job_executions GROUP BY schedule_id, scheduled_for, attempt HAVING count(*) > 1) AS t"""
        )
        ((gaps, late, fires),) = made.rows(
            """SELECT count(*) FILTER (WHERE step > interval '1 s'),
                      count(*) FILTER (WHERE lateness > interval '1 s'), count(*)
               FROM (SELECT scheduled_for - lag(scheduled_for) OVER mine AS step, started_at - scheduled_for AS lateness
                     FROM job_executions WHERE cause = 'schedule' AND attempt = 1
                     WINDOW mine AS (PARTITION BY schedule_id ORDER BY scheduled_for)) AS fires"""
        )
    columns = ["fires", "run twice", "gaps", "later than 1 s", "abandoned and planned again after"]
    sheet = Sheet("failover", "kill -9 of one of three replicas under 200 fires/s", columns)
    sheet.add(f"{fires:,}", str(twice), str(gaps), str(late), f"{takeover:.1f} s (bound: 22 s)")
    sheet.facts = {"fires": fires, "run_twice": twice, "gaps": gaps, "late": late, "takeover_seconds": takeover}
    yield sheet
