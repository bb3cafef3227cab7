"""1 to 12 replicas share 200 fires per second: CPU per fire of replicas, Postgres and Redis beyond the idle cost.

A turn is one number of replicas on fresh servers. They load schedules that are not yet due. Their CPU use while nothing
is due is subtracted from their use while 200 fires per second are due. Numbers of replicas take turns, as designs do in
burst.py.
"""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from benchmarks import costs
from benchmarks.cluster import WORKERS, cluster, free_ports, metric, sleep_until, soon, tally
from benchmarks.costs import Cost
from benchmarks.designs.catalogue import insert_schedules
from benchmarks.designs.ledger import Tally
from benchmarks.designs.plan import Plan
from benchmarks.growth import exponent
from benchmarks.progress import doing
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet
from tests.support.replicas import Cluster

FIRES_PER_SECOND = 200
AT_ONCE = 3  # replicas that start together: more would wait for a core longer than the start timeout
LATE_SECONDS = 5  # grace for the last fires
LEAD_SECONDS = 2  # between the idle stretch and the fires
GROWTH_FROM = 3  # replicas: a single replica has no others to share with
PARTS = ("replicas", "postgres", "redis")


@dataclass(frozen=True, slots=True)
class Turn:
    found: Tally
    idle: Cost  # CPU seconds per second of the clock
    per_fire: Cost  # CPU seconds, without the idle cost
    loaded: list[int]  # schedules in the timer of each replica


def run(scale: Scale) -> Iterator[Sheet]:
    settle, idle, fires = scale.replicas_seconds
    measured: dict[int, list[Turn]] = {number: [] for number in scale.replicas}
    for round_number in range(scale.rounds):
        for number in scale.replicas:
            doing(f"{number} replicas, round {round_number + 1} of {scale.rounds}")
            measured[number].append(measure(number, settle, idle, fires))
    title = (
        f"Replicas: {FIRES_PER_SECOND} fires/s for {fires} s, no-op job, MAX_WORKERS={WORKERS}, idle cost of the same "
        f"run subtracted, medians of {scale.rounds} rounds"
    )
    columns = ["replicas", "CPU/fire", "Postgres/fire", "Redis/fire", "idle CPU", "idle Postgres", "idle Redis"]
    columns += ["p50 late", "p99 late", f"run of {FIRES_PER_SECOND * fires:,}", "twice", "not run", "loaded by each"]
    sheet = Sheet("replicas", title, columns)
    for number, turns in measured.items():
        _add(sheet, number, turns)
    _note_growth(sheet, {number: [turn.per_fire for turn in turns] for number, turns in measured.items()})
    yield sheet


def measure(number: int, settle_seconds: int, idle_seconds: int, fire_seconds: int) -> Turn:
    """One turn: settle, a stretch with the schedules loaded and nothing due, then the fires."""
    with cluster() as made:
        ports = _start(made, number)
        plan = Plan(FIRES_PER_SECOND, soon(settle_seconds + idle_seconds + LEAD_SECONDS), fire_seconds)
        insert_schedules(made, plan)
        sleep_until(plan.at - timedelta(seconds=idle_seconds + LEAD_SECONDS))
        loaded = [int(metric(port, "scheduler_schedules_loaded")) for port in ports]
        begun = costs.read(made)
        sleep_until(plan.at - timedelta(seconds=LEAD_SECONDS))
        idle_end = costs.read(made)
        sleep_until(plan.at - timedelta(seconds=0.5))
        fires_begin = costs.read(made)
        sleep_until(plan.end + timedelta(seconds=LATE_SECONDS))
        idle, used = idle_end.since(begun), costs.read(made).since(fires_begin)
        return Turn(tally(made, plan), idle.by(idle.clock), used.beyond(idle).by(plan.fires), loaded)


def growing(numbers: Iterable[int]) -> list[int]:
    """Points for the growth exponent: from three replicas on, or all points if fewer than two have that many."""
    known = sorted(numbers)
    many = [number for number in known if number >= GROWTH_FROM]
    return many if len(many) > 1 else known


def median(turns: Sequence[Cost]) -> Cost:
    """Part by part."""
    return Cost(*(statistics.median(getattr(turn, name) for turn in turns) for name in (*PARTS, "clock")))


def _start(made: Cluster, number: int) -> list[int]:
    """The ports of their metrics."""
    ports = free_ports(number)
    for first in range(0, number, AT_ONCE):
        for port in ports[first : first + AT_ONCE]:
            made.one(f"replica-{len(made.replicas) + 1}", METRICS_PORT=str(port), METRICS_HOST="127.0.0.1")
        made.await_live({replica.name for replica in made.replicas})
    return ports


def _add(sheet: Sheet, number: int, turns: list[Turn]) -> None:
    """Costs and times are medians; duplicates and losses are the worst of all rounds."""
    per_fire, idle = median([turn.per_fire for turn in turns]), median([turn.idle for turn in turns])
    p50, p99 = (statistics.median(turn.found.percentile(percent) for turn in turns) for percent in (50, 99))
    run, twice = min(turn.found.run for turn in turns), max(turn.found.twice for turn in turns)
    missing, loaded = max(turn.found.missing for turn in turns), turns[-1].loaded
    sheet.add(
        str(number),
        *(f"{getattr(per_fire, part) * 1e6:,.0f} us" for part in PARTS),
        *(f"{getattr(idle, part) * 100:.1f} %" for part in PARTS),
        *(f"{late * 1000:,.0f} ms" for late in (p50, p99)),
        *(f"{count:,}" for count in (run, twice, missing)),
        f"{statistics.mean(loaded):,.0f} ({min(loaded):,} to {max(loaded):,})",
    )
    sheet.facts[str(number)] = {
        **{f"{part}_cpu_seconds_per_fire": getattr(per_fire, part) for part in PARTS},
        **{f"{part}_idle_cores": getattr(idle, part) for part in PARTS},
        "p50_seconds": p50, "p99_seconds": p99, "run": run, "run_twice": twice, "not_run": missing, "loaded": loaded,
        "rounds": [{part: getattr(turn.per_fire, part) for part in PARTS} for turn in turns],
    }  # fmt: skip


def _note_growth(sheet: Sheet, measured: dict[int, list[Cost]]) -> None:
    numbers = growing(measured)
    medians = {number: median(measured[number]) for number in numbers}
    exponents = {part: exponent([(number, getattr(medians[number], part)) for number in numbers]) for part in PARTS}
    sheet.facts["exponents"] = exponents
    sheet.notes.append(
        f"from {numbers[0]} to {numbers[-1]} replicas the CPU of a fire grows with their number to the power of "
        f"{exponents['replicas']:.2f} in the replicas together, {exponents['postgres']:.2f} in Postgres, "
        f"{exponents['redis']:.2f} in Redis"
    )
