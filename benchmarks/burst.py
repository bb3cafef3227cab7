"""N schedules due at the same instant. Designs take turns: a busy moment of the machine affects all of them."""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from benchmarks.cluster import REPLICAS, WORKERS, cluster, ledger_of, sleep_until, tally
from benchmarks.designs.catalogue import FLOOR, NAIVE, NAIVE_PER_FIRE, OURS, Design, Processes
from benchmarks.designs.plan import Plan
from benchmarks.peers import peers
from benchmarks.progress import doing
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet
from tests.support.replicas import Cluster

LONGEST_SECONDS = 240
SLOW_DESIGNS_ROUNDS = 1  # for the peers and the largest burst, which takes the slowest design minutes


@dataclass(frozen=True, slots=True)
class Drained:
    last_start: float  # the handler is called, seconds after the instant
    last_end: float  # it is in the table
    p99: float
    twice: int
    missing: int
    cpu: float


def run(scale: Scale) -> Iterator[Sheet]:
    designs = [OURS, NAIVE, NAIVE_PER_FIRE, FLOOR, *(peers() if scale.peers else [])]
    title = f"Burst at one instant: {REPLICAS} replicas, MAX_WORKERS={WORKERS}, no-op job, medians of the rounds"
    columns = ["fires", "design", "rounds", "last start", "all ended", "p99 late", "twice", "not run", "CPU/fire"]
    sheet = Sheet("burst", title, [*columns, "ours is"])
    for count in scale.bursts:
        measured = _take_turns(count, designs, scale.rounds)
        for design in designs:
            _add(sheet, count, design, measured[design.name], measured[OURS.name])
    _note_targets(sheet, max(scale.bursts))
    yield sheet


def _take_turns(count: int, designs: Sequence[Design], rounds: int) -> dict[str, list[Drained]]:
    measured: dict[str, list[Drained]] = {design.name: [] for design in designs}
    for number in range(rounds):
        for design in designs:
            is_quick = design in (OURS, FLOOR) or (count < 10_000 and design in (NAIVE, NAIVE_PER_FIRE))
            if is_quick or number < SLOW_DESIGNS_ROUNDS:
                doing(f"{count:,} fires, round {number + 1} of {rounds}: {design.name}")
                measured[design.name].append(_measure(count, design))
    return measured


def _measure(count: int, design: Design) -> Drained:
    with cluster() as made, design.start(made, count, 1) as (plan, processes):
        return _drained(made, design, plan, processes)


def _drained(made: Cluster, design: Design, plan: Plan, processes: Processes) -> Drained:
    """Measure until three seconds without a newly ended execution. CPU time counts from shortly before the instant."""
    sleep_until(plan.at - timedelta(seconds=0.5))
    cpu_before = processes.cpu_seconds()
    deadline = plan.at.timestamp() + LONGEST_SECONDS
    calls, before = ledger_of(made), -1
    while time.time() < deadline:
        ((ended,),) = made.rows(f"SELECT count(DISTINCT schedule_id) FROM {design.table} WHERE status = 'success'")
        if ended == plan.count and len(calls) == before:
            break
        before = len(calls)
        time.sleep(3)
    ((end,),) = made.rows(
        f"""SELECT extract(epoch FROM max(ended)) FROM (
                SELECT min(completed_at - scheduled_for) AS ended FROM {design.table}
                WHERE started_at IS NOT NULL GROUP BY schedule_id) AS fires"""
    )
    cpu = (processes.cpu_seconds() - cpu_before) / plan.count
    found = tally(made, plan)
    return Drained(max(found.lateness), float(end), found.percentile(99), found.twice, found.missing, cpu)


def _add(sheet: Sheet, count: int, design: Design, rounds: list[Drained], ours: list[Drained]) -> None:
    """Times are medians; duplicates and losses are the worst of all rounds."""
    start = statistics.median(one.last_start for one in rounds)
    end = statistics.median(one.last_end for one in rounds)
    p99 = statistics.median(one.p99 for one in rounds)
    cpu = statistics.median(one.cpu for one in rounds)
    ratio = start / statistics.median(one.last_start for one in ours)
    twice, missing = max(one.twice for one in rounds), max(one.missing for one in rounds)
    times = f"{start:.2f} s", f"{end:.2f} s", f"{p99 * 1000:,.0f} ms"
    cells = f"{twice:,}", f"{missing:,}", f"{cpu * 1e6:,.0f} us", "" if design is OURS else f"{ratio:.1f} x as fast"
    sheet.add(f"{count:,}", design.name, str(len(rounds)), *times, *cells)
    sheet.facts.setdefault(str(count), {})[design.name] = {
        "last_start_seconds": start, "last_end_seconds": end, "p99_seconds": p99, "cpu_seconds_per_fire": cpu,
        "run_twice": twice, "not_run": missing, "rounds": [one.last_start for one in rounds],
    }  # fmt: skip


def _note_targets(sheet: Sheet, count: int) -> None:
    facts = sheet.facts[str(count)]
    ours = facts[OURS.name]

    def ratio(other: Design, key: str = "last_start_seconds") -> float:
        return float(facts[other.name][key]) / float(ours[key])

    sheet.notes.append(
        f"{count:,} fires: {ratio(NAIVE):.1f} x faster than naive, {ratio(NAIVE_PER_FIRE):.1f} x than with a key per "
        f"fire; {1 / ratio(FLOOR):.2f} x the floor until the last start, {1 / ratio(FLOOR, 'last_end_seconds'):.2f} x "
        f"until all ended; CPU per fire {1 / ratio(FLOOR, 'cpu_seconds_per_fire'):.2f} x the floor's"
    )
