"""Millions of schedules over six replicas: time until each is held twice, change latency, schedules moved.

All replicas start at once on a full table. Then one more joins, and one is killed. The benchmark polls the loaded
schedules from the metrics of each replica. A join or a death moves the sum of all increases, compared with the fair
share of one replica: schedules times copies, divided by replicas.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benchmarks.cluster import POLL_SECONDS, cluster, fill, free_ports, memory_mb, metric
from benchmarks.progress import doing
from benchmarks.scale import Scale
from benchmarks.sheet import Sheet
from services.schedules.buckets import BUCKETS
from tests.support.replicas import Cluster, Replica

REPLICAS, COPIES = 6, 2
CHANGES = 20
LOOK_SECONDS = 0.2
LONGEST_SECONDS = 600.0


@dataclass(slots=True)
class Fleet:
    """The expected live replicas by metrics port, and the schedules that each has loaded."""

    made: Cluster
    schedules: int
    living: dict[int, Replica] = field(default_factory=dict)
    loaded: dict[int, float] = field(default_factory=dict)
    moved: float = 0.0

    @property
    def fair(self) -> float:
        return self.schedules * COPIES / len(self.living)

    def start(self, number: int) -> None:
        for port in free_ports(number):
            name = f"replica-{len(self.made.replicas) + 1}"
            self.living[port] = self.made.one(name, METRICS_PORT=str(port), METRICS_HOST="127.0.0.1")
            self.loaded[port] = 0.0

    def kill_one(self) -> None:
        port = next(iter(self.living))
        self.living.pop(port).kill()
        del self.loaded[port]

    def seconds_until_shared(self) -> float:
        """Wait until two replicas hold every schedule and each replica holds exactly the buckets of its duty."""
        self.moved, began = 0.0, time.perf_counter()
        while not (self._look() and self._are_shared()):
            if (waited := time.perf_counter() - began) > LONGEST_SECONDS:
                raise RuntimeError(f"after {waited:.0f} s the replicas hold {sorted(self.loaded.values())} schedules")
            time.sleep(LOOK_SECONDS)
        return time.perf_counter() - began

    def _look(self) -> bool:
        """False while a replica does not answer yet."""
        seen = {port: metric(port, "scheduler_schedules_loaded") for port in self.living}
        for port, count in seen.items():
            self.moved += max(0.0, count - self.loaded[port])
            self.loaded[port] = max(0.0, count)
        return min(seen.values()) >= 0

    def _are_shared(self) -> bool:
        duties = [metric(port, 'scheduler_buckets{state="duty"}') for port in self.living]
        held = [metric(port, 'scheduler_buckets{state="held"}') for port in self.living]
        everything = sum(duties) == BUCKETS * COPIES and sum(self.loaded.values()) == self.schedules * COPIES
        return everything and held == duties and min(duties) > 0


def run(scale: Scale) -> Iterator[Sheet]:
    columns = ["what", "until all are held twice", "loaded", "of a fair share", "largest share", "memory of a replica"]
    title = f"Shares: {scale.shared:,} schedules over {REPLICAS} replicas, each held by {COPIES}"
    sheet = Sheet("shares", title, columns)
    with cluster() as made:
        doing(f"{scale.shared:,} schedules")
        fill(made, scale.shared)
        fleet = Fleet(made, scale.shared)
        for what, change in _steps():
            doing(what)
            change(fleet)
            _add(sheet, what, fleet, seconds=fleet.seconds_until_shared())
            if what == "cold start":
                _note_changes(sheet, fleet)
    yield sheet


def _steps() -> Iterator[tuple[str, Callable[[Fleet], None]]]:
    yield "cold start", lambda fleet: fleet.start(REPLICAS)
    yield "one joins", lambda fleet: fleet.start(1)
    yield "one is killed", Fleet.kill_one


def _add(sheet: Sheet, what: str, fleet: Fleet, seconds: float) -> None:
    share, largest = fleet.moved / fleet.fair, max(fleet.loaded.values()) / fleet.fair
    memory = max(memory_mb(replica.pid) for replica in fleet.living.values())
    sheet.add(what, f"{seconds:.1f} s", f"{fleet.moved:,.0f}", f"{share:.2f}", f"{largest:.2f}", f"{memory:,.0f} MB")
    sheet.facts[what] = {
        "seconds": seconds, "moved": fleet.moved, "moved_fair_shares": share, "largest_share": largest,
        "loaded": sorted(fleet.loaded.values()), "memory_mb": memory,
    }  # fmt: skip


def _note_changes(sheet: Sheet, fleet: Fleet) -> None:
    waits = [_change(fleet) for _ in range(CHANGES)]
    middle, slowest = statistics.median(waits), max(waits)
    sheet.facts["changes"] = {"median_seconds": middle, "slowest_seconds": slowest}
    sheet.notes.append(
        f"a change committed by SQL is live in all replicas after {middle * 1000:.0f} ms (median of {CHANGES}), "
        f"{slowest * 1000:.0f} ms at the slowest"
    )


def _change(fleet: Fleet) -> float:
    """A commit by plain SQL until every replica has noted it; those that hold the schedule have it in their timer."""
    fleet.made.run(
        """UPDATE schedules SET priority = 1 - priority
           WHERE schedule_id = (SELECT schedule_id FROM schedules ORDER BY schedule_id LIMIT 1)"""
    )
    committed = time.perf_counter()
    ((revision,),) = fleet.made.rows("SELECT last_value FROM schedule_revision_seq")
    while min(metric(port, "scheduler_revision_applied") for port in fleet.living) < revision:
        time.sleep(POLL_SECONDS)
    return time.perf_counter() - committed
