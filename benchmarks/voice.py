"""What a voice costs a fire: live logs and notification rules, switched on and off in turns.

Three ways to run the same load: silent (`EXECUTION_LOG_MAX_BYTES=0`, no rule), with rules for every event, and with
these rules and a handler that logs a line in every execution.
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks import burst, steady
from benchmarks.cluster import REPLICAS, WORKERS
from benchmarks.designs.catalogue import OURS, Design, our_replicas
from benchmarks.designs.handlers import LINES
from benchmarks.progress import doing
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet
from services.notifications.rule_fields import Event
from services.notifications.rules import Rules
from tests.support.replicas import Cluster

CHANNEL = "INSERT INTO notification_channels (name, kind, config) VALUES ('bench', 'webhook', '{}')"
RULE = {
    "name": "everything",
    "channels": ["bench"],
    "events": [event.value for event in Event],
    "after_failures": 3,
    "late_seconds": 60,
    "slower_than_usual": 3,
    "no_success_seconds": 3600,
}


@dataclass(frozen=True, slots=True)
class Cost:
    late: float  # seconds: the last start of a burst, p99 of a steady load
    cpu: float  # of the replicas, seconds per fire
    twice: int
    missing: int


def run(scale: Scale) -> Iterator[Sheet]:
    fires = max(scale.bursts)
    title = (
        f"A voice: {fires:,} fires at one instant, and {steady.FIRES_PER_SECOND} fires/s for {scale.steady_seconds} s, "
        f"{REPLICAS} replicas, MAX_WORKERS={WORKERS}, medians of {scale.rounds} rounds"
    )
    sheet = Sheet("voice", title, ["load", "design", "late", "CPU/fire", "of silent", "twice", "not run"])
    loads: dict[str, Callable[[Design], Cost]] = {
        "burst": lambda design: _burst(design, fires),
        "steady": lambda design: _steady(design, scale.steady_seconds),
    }
    for load, measure in loads.items():
        measured: dict[str, list[Cost]] = {design.name: [] for design in DESIGNS}
        for number in range(scale.rounds):
            for design in DESIGNS:
                doing(f"{load}, round {number + 1} of {scale.rounds}: {design.name}")
                measured[design.name].append(measure(design))
        _add(sheet, load, measured)
    yield sheet


def _burst(design: Design, fires: int) -> Cost:
    found = burst._measure(fires, design)
    return Cost(found.last_start, found.cpu, found.twice, found.missing)


def _steady(design: Design, seconds: int) -> Cost:
    minute = steady._measure(design, seconds)
    fires = steady.FIRES_PER_SECOND * seconds
    return Cost(minute.found.percentile(99), minute.cpu / fires, minute.found.twice, minute.found.missing)


def _add_rule(made: Cluster) -> None:
    made.run(CHANNEL)
    Rules(made.db).add(RULE, "bench")


SILENT = Design("silent", OURS.table, our_replicas(EXECUTION_LOG_MAX_BYTES="0"))
RULES = Design("rules", OURS.table, our_replicas(_add_rule, EXECUTION_LOG_MAX_BYTES="0"))
LOUD = Design("rules, and a line in every log", OURS.table, our_replicas(_add_rule, **{LINES: "1"}))
DESIGNS = (SILENT, RULES, LOUD)


def _add(sheet: Sheet, load: str, measured: dict[str, list[Cost]]) -> None:
    """Times are medians; duplicates and losses are the worst of all rounds."""
    silent = statistics.median(one.cpu for one in measured[SILENT.name])
    silent_late = statistics.median(one.late for one in measured[SILENT.name])
    for name, rounds in measured.items():
        late, cpu = statistics.median(one.late for one in rounds), statistics.median(one.cpu for one in rounds)
        twice, missing = max(one.twice for one in rounds), max(one.missing for one in rounds)
        share = "" if name == SILENT.name else f"late {late / silent_late:.2f} x, CPU {cpu / silent:.2f} x"
        sheet.add(load, name, f"{late * 1000:,.0f} ms", f"{cpu * 1e6:,.0f} us", share, f"{twice:,}", f"{missing:,}")
        sheet.facts.setdefault(load, {})[name] = {
            "late_seconds": late, "cpu_seconds_per_fire": cpu, "run_twice": twice, "not_run": missing,
            "rounds": [one.cpu for one in rounds], "rounds_late": [one.late for one in rounds],
        }  # fmt: skip
