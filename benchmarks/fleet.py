"""Fleet: CPU of publisher and workers for an execution on a Celery worker, beside a bare Celery no-op.

A turn is one design with one pool of workers on fresh servers and a broker of its own. So many executions are due each
second. What the same processes use while nothing is due is subtracted. The bare app has Celery's defaults, a process
that sends the messages, and no row of anything; designs take turns, as in burst.py.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

from benchmarks import costs
from benchmarks.cluster import cluster, ledger_of, sleep_until, soon
from benchmarks.designs.plan import Plan
from benchmarks.progress import doing
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet
from config import PROJECT_ROOT
from services.embedded import running
from services.embedded.programs import find_binaries
from tests.support.fleet import Fleet
from tests.support.replicas import Cluster
from tests.support.waiting import eventually

PER_SECOND = 50  # executions
PLACES = 2  # of the worker
POOLS = ("prefork", "threads")
OURS, BARE = "Enhanced Scheduler", "bare Celery"
QUEUE = "bench"
LEAD_SECONDS = 4  # until schedules are loaded
WARM_SECONDS = 3  # of executions before anything is measured: connections, caches
PAUSE_SECONDS = 4  # after each stretch of executions
LONGEST_SECONDS = 120.0
TARGET = 2.0

INSERT = """
INSERT INTO schedules (schedule_id, domain_config_id, domain, job_type, frequency, time_config, queue)
SELECT id, gen_random_uuid(), 'd', 'noop', 'once', jsonb_build_object('at', at), %s
FROM unnest(%s::uuid[], %s::text[]) AS given (id, at)
"""

Work = Mapping[datetime, list[UUID]]


@dataclass(frozen=True, slots=True)
class Used:
    """CPU seconds, by part: one reading, a difference, or a share of one."""

    publisher: float
    worker: float
    replica: float  # without its publisher
    postgres: float
    broker: float
    clock: float

    def beyond(self, idle: "Used", executions: int) -> "Used":
        """For one of so many executions, without what the same parts use when idle."""
        share = self.clock / idle.clock
        each = {part: (getattr(self, part) - getattr(idle, part) * share) / executions for part in PARTS}
        return Used(**each, clock=self.clock / executions)

    def since(self, before: "Used") -> "Used":
        return Used(**{name: getattr(self, name) - getattr(before, name) for name in (*PARTS, "clock")})

    @property
    def together(self) -> float:
        """What the target is about."""
        return self.publisher + self.worker


PARTS = tuple(field.name for field in fields(Used) if field.name != "clock")
Give = Callable[[Work], None]
Read = Callable[[], Used]


@dataclass(frozen=True, slots=True)
class Turn:
    each: Used
    lateness: list[float]
    twice: int
    missing: int


def run(scale: Scale) -> Iterator[Sheet]:
    idle, seconds = scale.fleet_seconds
    measured: dict[tuple[str, str], list[Turn]] = {(pool, design): [] for pool in POOLS for design in (OURS, BARE)}
    for number in range(scale.rounds):
        for (pool, design), turns in measured.items():
            doing(f"{pool}, round {number + 1} of {scale.rounds}: {design}")
            turns.append(measure(design, pool, idle, seconds))
    title = (
        f"Fleet: {PER_SECOND} executions/s for {seconds} s on one Celery worker with {PLACES} places, no-op job, CPU "
        f"of an execution without the idle cost of the same run, medians of {scale.rounds} rounds"
    )
    columns = ["pool", "design", "publisher", "worker", "together", "of bare", "scheduling", "Postgres", "broker"]
    sheet = Sheet("fleet", title, [*columns, "p50 late", "p99 late", "twice", "not run"])
    for (pool, design), turns in measured.items():
        _add(sheet, pool, design, turns, measured[pool, BARE])
    for pool in POOLS:
        ratio = sheet.facts[pool][OURS]["of_bare"]
        sheet.notes.append(
            f"{pool}: publisher and worker use {ratio:.2f} x the CPU of a bare Celery no-op (target: {TARGET:g} x)"
        )
    yield sheet


def measure(design: str, pool: str, idle_seconds: int, seconds: int) -> Turn:
    with cluster() as made, _broker(made.directory) as (url, broker_pid):
        start = _ours if design == OURS else _bare
        with start(made, pool, url, broker_pid) as (give, read):
            warm = _work(soon(LEAD_SECONDS), WARM_SECONDS)
            give(warm)
            _await(made, sum(map(len, warm.values())))
            work = _work(soon(idle_seconds + 2 * PAUSE_SECONDS + LEAD_SECONDS), seconds)
            give(work)
            time.sleep(PAUSE_SECONDS)  # ends are still written, and schedules loaded
            begun = read()
            time.sleep(idle_seconds)
            idle = read().since(begun)
            sleep_until(min(work) - timedelta(seconds=0.5))
            begun = read()
            executions = sum(map(len, work.values()))
            sleep_until(max(work))
            _await(made, sum(map(len, warm.values())) + executions)
            time.sleep(PAUSE_SECONDS)
            used = read().since(begun)
        calls = ledger_of(made)
        found = [calls.tally(Plan(len(ids), instant), ids) for instant, ids in work.items()]
        return Turn(
            used.beyond(idle, executions),
            sorted(late for tally in found for late in tally.lateness),
            sum(tally.twice for tally in found),
            sum(tally.missing for tally in found),
        )


def _work(first: datetime, seconds: int) -> Work:
    return {first + timedelta(seconds=number): [uuid4() for _ in range(PER_SECOND)] for number in range(seconds)}


def _await(made: Cluster, calls: int) -> None:
    deadline, ledger = time.monotonic() + LONGEST_SECONDS, ledger_of(made)
    while len(ledger) < calls and time.monotonic() < deadline:
        time.sleep(0.1)


@contextmanager
def _broker(directory: Path) -> Iterator[tuple[str, int]]:
    """A Redis of its own, so that its CPU is that of the messages alone."""
    (directory / "broker").mkdir()
    socket = directory / "broker" / "socket"
    options = ["--port", "0", "--unixsocket", str(socket), "--dir", str(socket.parent), "--save", ""]
    with (directory / "broker.log").open("wb") as log:
        process = subprocess.Popen([str(find_binaries().redis), *options], stdout=log, stderr=log)
    try:
        eventually(socket.exists, 30)
        yield f"redis+socket://{socket}", process.pid
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def _ours(made: Cluster, pool: str, url: str, broker_pid: int) -> Iterator[tuple[Give, Read]]:
    broker = {"CELERY_BROKER_URL": url}
    modules = f"{made.environment['JOB_MODULES']},benchmarks.designs.named_threads"
    (replica,) = made.start(1, CELERY_QUEUES=QUEUE, JOB_MODULES=modules, **broker)
    fleet = Fleet(made, QUEUE)
    processes = PLACES if pool == "prefork" else 1
    try:
        worker = fleet.start("--pool", pool, "--concurrency", str(PLACES), processes=processes, **broker)
        servers = running(made.directory / "servers")
        if servers is None or servers.postgres_pid is None:
            raise RuntimeError("the servers of the benchmark do not run")
        postgres = servers.postgres_pid

        def give(work: Work) -> None:
            instants = [(str(schedule_id), at.isoformat()) for at, ids in work.items() for schedule_id in ids]
            made.run(INSERT, QUEUE, [each for each, _ in instants], [at for _, at in instants])

        def read() -> Used:
            publisher = _thread_cpu_seconds(replica.pid, "publisher")
            return Used(
                publisher=publisher,
                worker=costs.family_cpu_seconds([worker.process.pid]),
                replica=costs.family_cpu_seconds([replica.pid]) - publisher,
                postgres=costs.family_cpu_seconds([postgres]),
                broker=costs.family_cpu_seconds([broker_pid]),
                clock=time.monotonic(),
            )

        yield give, read
        worker.stop()
    finally:
        fleet.end()


@contextmanager
def _bare(made: Cluster, pool: str, url: str, broker_pid: int) -> Iterator[tuple[Give, Read]]:
    environment = {**made.environment, "CELERY_BROKER_URL": url, "PATH": os.defpath}
    module = "benchmarks.designs.bare_celery"
    options = ["--pool", pool, "--concurrency", str(PLACES)]
    commands = [["-m", "celery", "--app", module, "worker", *options], ["-m", module]]
    with (made.directory / "bare.log").open("wb") as log:
        worker, publisher = processes = [
            subprocess.Popen(
                [sys.executable, *command],
                cwd=PROJECT_ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
            )
            for command in commands
        ]

    def give(work: Work) -> None:
        assert publisher.stdin is not None
        for at, ids in work.items():
            publisher.stdin.write(f"{json.dumps([at.isoformat(), [str(each) for each in ids]])}\n")
        publisher.stdin.flush()

    def read() -> Used:
        return Used(
            publisher=costs.family_cpu_seconds([publisher.pid]),
            worker=costs.family_cpu_seconds([worker.pid]),
            replica=0.0,
            postgres=0.0,
            broker=costs.family_cpu_seconds([broker_pid]),
            clock=time.monotonic(),
        )

    try:
        yield give, read
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.communicate(timeout=60)


def _thread_cpu_seconds(pid: int, name: str) -> float:
    """Of the thread of that name; named_threads.py has told the kernel."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    raise RuntimeError(f"process {pid} has no thread {name!r}")


def _add(sheet: Sheet, pool: str, design: str, turns: list[Turn], bare: list[Turn]) -> None:
    """Costs and times are medians; duplicates and losses are the worst of all rounds."""
    each = {part: statistics.median(getattr(turn.each, part) for turn in turns) for part in (*PARTS, "together")}
    ratio = each["together"] / statistics.median(turn.each.together for turn in bare)
    lateness = sorted(late for turn in turns for late in turn.lateness)
    p50, p99 = (lateness[int(len(lateness) * share)] if lateness else float("nan") for share in (0.5, 0.99))
    twice, missing = max(turn.twice for turn in turns), max(turn.missing for turn in turns)
    is_ours = design == OURS

    def cell(part: str) -> str:
        return f"{each[part] * 1000:.2f} ms"

    sheet.add(
        pool, design, *map(cell, ("publisher", "worker", "together")), f"{ratio:.2f} x" if is_ours else "",
        *(cell(part) if is_ours else "" for part in ("replica", "postgres")), cell("broker"),
        *(f"{late * 1000:,.0f} ms" for late in (p50, p99)), f"{twice:,}", f"{missing:,}",
    )  # fmt: skip
    sheet.facts.setdefault(pool, {})[design] = {
        **{f"{part}_cpu_seconds_per_execution": value for part, value in each.items()},
        "of_bare": ratio, "p50_seconds": p50, "p99_seconds": p99, "run_twice": twice, "not_run": missing,
        "rounds": [turn.each.together for turn in turns],
    }  # fmt: skip
