"""The designs that are compared: N schedules due at one instant, or due once a second for a while.

A design is a number of processes that say when they are ready, are then told the Plan's first instant, write what they
ran into a table, and call the no-op of ledger.py for each of it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta

from benchmarks.cluster import REPLICAS, cpu_seconds, sleep_until, soon
from benchmarks.designs.plan import RUNS, Plan
from config import PROJECT_ROOT
from tests.support.replicas import Cluster
from tests.support.waiting import eventually


@dataclass(frozen=True, slots=True)
class Processes:
    """A design at work."""

    pids: Sequence[int]

    def cpu_seconds(self) -> float:
        """CPU time used so far, over all processes."""
        return sum(cpu_seconds(pid) for pid in self.pids)


# Called with the number of schedules and of fires per schedule; the yielded object lives as long as the design.
Start = Callable[[Cluster, int, int], AbstractContextManager[tuple[Plan, Processes]]]


@dataclass(frozen=True, slots=True)
class Design:
    name: str
    table: str
    start: Start


def our_replicas(prepare: Callable[[Cluster], None] = lambda made: None, **environment: str) -> Start:
    """`prepare` is called before they start."""

    @contextmanager
    def start(made: Cluster, count: int, fires_each: int) -> Iterator[tuple[Plan, Processes]]:
        prepare(made)
        replicas = made.start(REPLICAS, **environment)
        plan = Plan(count, soon(4 + count / 2000), fires_each)
        insert_schedules(made, plan)
        yield plan, Processes([replica.pid for replica in replicas])

    return start


def in_processes(
    module: str,
    python: str = sys.executable,
    count: int = REPLICAS,
    per_second: int = 500,
    lead_seconds: float = 5,
    **environment: str,
) -> Start:
    """So many processes, each of which says `ready`, hears the plan, and says `planned` before the plan's instant.

    They get `lead_seconds`, and the time that it takes to plan `per_second` schedules a second.
    """

    @contextmanager
    def start(made: Cluster, schedules: int, fires_each: int) -> Iterator[tuple[Plan, Processes]]:
        made.run(RUNS)
        insert_schedules(made, Plan(schedules, soon(86_400), fires_each))
        given = {**made.environment, "PATH": os.defpath, "FIRES_EACH": str(fires_each), **environment}
        command = [python, "-m", f"benchmarks.designs.{module}"]
        processes = [
            subprocess.Popen(command, cwd=PROJECT_ROOT, env={**given, "PART": str(number), "PARTS": str(count)})
            for number in range(count)
        ]
        try:
            eventually(lambda: _said(made, "ready") == count, 120)
            plan = Plan(schedules, soon(lead_seconds + schedules / per_second), fires_each)
            made.run("INSERT INTO runs (status, scheduled_for) VALUES ('plan', %s)", plan.at)
            sleep_until(plan.at - timedelta(seconds=1))
            if _said(made, "planned") < count:
                raise RuntimeError(f"{module} had not planned {schedules:,} schedules in time")
            yield plan, Processes([process.pid for process in processes])
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)

    return start


def _said(made: Cluster, word: str) -> int:
    return int(made.rows("SELECT count(*) FROM runs WHERE status = %s", word)[0][0])


def insert_schedules(made: Cluster, plan: Plan) -> None:
    frequency, config = plan.timing()
    made.run(
        """INSERT INTO schedules (domain_config_id, domain, job_type, frequency, time_config, start_at, end_at)
           SELECT gen_random_uuid(), 'd' || n, 'noop', %s, %s::jsonb, %s, %s FROM generate_series(1, %s) AS n""",
        frequency, json.dumps(config), plan.at if plan.fires_each > 1 else None,
        plan.end if plan.fires_each > 1 else None, plan.count,
    )  # fmt: skip


OURS = Design("Enhanced Scheduler", "job_executions", our_replicas())
NAIVE = Design("naive (APScheduler, SET NX)", "runs", in_processes("naive"))
NAIVE_PER_FIRE = Design("naive, a key per fire", "runs", in_processes("naive", KEY_PER_FIRE="1"))
FLOOR = Design("floor (our SQL, bare loop)", "job_executions", in_processes("floor"))
