"""200 fires per second for a minute, from 200 schedules. Designs take turns, as in burst.py."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from benchmarks.cluster import REPLICAS, WORKERS, cluster, sleep_until, tally
from benchmarks.designs.catalogue import NAIVE, NAIVE_PER_FIRE, OURS, Design
from benchmarks.designs.ledger import Tally
from benchmarks.peers import peers
from benchmarks.progress import doing
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet

FIRES_PER_SECOND = 200
LATE_SECONDS = 10  # grace for a design after the last fire
PEERS_ROUNDS = 1


@dataclass(frozen=True, slots=True)
class Minute:
    found: Tally
    cpu: float


def run(scale: Scale) -> Iterator[Sheet]:
    total = FIRES_PER_SECOND * scale.steady_seconds
    title = (
        f"Steady: {FIRES_PER_SECOND} fires/s for {scale.steady_seconds} s, {REPLICAS} replicas, "
        f"MAX_WORKERS={WORKERS}, medians of the rounds"
    )
    columns = ["design", "rounds", f"run of {total:,}", "run twice", "p50 late", "p99 late", "CPU of the replicas"]
    sheet = Sheet("steady", title, columns)
    ours_and_naive = [OURS, NAIVE, NAIVE_PER_FIRE]
    designs = [*ours_and_naive, *(peers() if scale.peers else [])]
    measured: dict[str, list[Minute]] = {design.name: [] for design in designs}
    for number in range(scale.rounds):
        for design in designs:
            if design in ours_and_naive or number < PEERS_ROUNDS:
                doing(f"{scale.steady_seconds} s, round {number + 1} of {scale.rounds}: {design.name}")
                measured[design.name].append(_measure(design, scale.steady_seconds))
    for name, rounds in measured.items():
        _add(sheet, name, rounds, total)
    yield sheet


def _measure(design: Design, seconds: int) -> Minute:
    with cluster() as made, design.start(made, FIRES_PER_SECOND, seconds) as (plan, processes):
        sleep_until(plan.at - timedelta(seconds=0.5))
        cpu_before = processes.cpu_seconds()
        sleep_until(plan.end + timedelta(seconds=LATE_SECONDS))
        return Minute(tally(made, plan), processes.cpu_seconds() - cpu_before)


def _add(sheet: Sheet, name: str, rounds: list[Minute], planned: int) -> None:
    """Times are medians; duplicates and losses are the worst of all rounds."""
    p50 = statistics.median(one.found.percentile(50) for one in rounds)
    p99 = statistics.median(one.found.percentile(99) for one in rounds)
    cpu = statistics.median(one.cpu for one in rounds)
    run, twice = min(one.found.run for one in rounds), max(one.found.twice for one in rounds)
    times = f"{p50 * 1000:,.0f} ms", f"{p99 * 1000:,.0f} ms", f"{cpu:.1f} s"
    sheet.add(name, str(len(rounds)), f"{run:,}", f"{twice:,}", *times)
    sheet.facts[name] = {
        "run": run, "run_twice": twice, "planned": planned, "p50_seconds": p50, "p99_seconds": p99, "cpu_seconds": cpu,
        "rounds": [one.found.percentile(99) for one in rounds],
    }  # fmt: skip
