"""The figures of many histories."""

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from tests.proof.simulation.options import Result


@dataclass(slots=True)
class Figures:
    histories: int = 0
    twice: int = 0
    different: list[int] = field(default_factory=list)
    failed: dict[int, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    statements: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    fires: int = 0
    rows: int = 0
    virtual_seconds: float = 0.0
    worst_takeover: float = 0.0
    worst_takeover_any: float = 0.0
    worst_lateness: float = 0.0
    cpu_seconds: float = 0.0
    seconds: float = 0.0  # real ones, of all processes together

    def add(self, result: Result) -> None:
        verdict = result.verdict
        self.histories += 1
        self.counts += result.counts
        self.statements.append(result.counts["statements"])
        self.calls.append(verdict.calls)
        self.fires += verdict.fires
        self.rows += verdict.rows.total()
        self.virtual_seconds += result.virtual_seconds
        self.worst_takeover = max(self.worst_takeover, verdict.worst_takeover)
        self.worst_takeover_any = max(self.worst_takeover_any, verdict.worst_takeover_any)
        if not result.has_queue:  # else fires wait for workers: a run of a queue keeps one for seconds
            self.worst_lateness = max(self.worst_lateness, verdict.worst_lateness)
        if result.violations:
            self.failed[result.seed] = result.violations

    def merge(self, other: "Figures") -> None:
        for name in ("histories", "twice", "fires", "rows", "virtual_seconds", "cpu_seconds", "counts", "statements",
                     "calls", "different"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("worst_takeover", "worst_takeover_any", "worst_lateness"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        self.failed |= other.failed

    def as_json(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self)}  # asdict() takes a Counter apart

    def in_short(self) -> dict[str, Any]:
        """What docs/guarantees.md shows."""
        told = Counter(text.partition(":")[0] for texts in self.failed.values() for text in texts)
        return {
            "histories": self.histories,
            "statements": sum(self.statements),
            "fires": self.fires,
            "calls": sum(self.calls),
            "faults": sum(self.faults().values()),
            "called_twice": told["called twice"],
            "unaccounted": told["unaccounted"],
            "broken": told.total() + len(self.different),
            "worst_takeover": round(self.worst_takeover, 1),
            "worst_takeover_any": round(self.worst_takeover_any, 1),
            "worst_lateness": round(self.worst_lateness, 2),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Figures":
        failed = {int(seed): found for seed, found in values["failed"].items()}
        return cls(**{**values, "failed": failed, "counts": Counter(values["counts"])})

    def faults(self) -> dict[str, int]:
        named = {name.removeprefix("fault "): count for name, count in self.counts.items() if name.startswith("fault ")}
        return dict(sorted(named.items(), key=lambda item: -item[1]))

    def told(self, processes: int) -> Iterable[str]:
        statements = sum(self.statements)
        if not self.histories:
            return
        middle = (
            f"median {statistics.median(self.statements):.0f} statements, {statistics.median(self.calls):.0f} calls"
        )
        yield (f"{self.histories} histories ({middle}), {statements:,} statements, {self.fires:,} fires, "
               f"{self.rows:,} rows, {sum(self.calls):,} calls, {self.counts['redis calls']:,} Redis calls, "
               f"{self.virtual_seconds:,.0f} virtual seconds")  # fmt: skip
        if self.counts["histories with a queue"]:
            yield (f"{self.counts['histories with a queue']} of them with a queue: {self.counts['items']:,} items, "
                   f"{self.counts['item claims']:,} claims, {self.counts['item takeovers']:,} takeovers, "
                   f"{self.counts['item calls']:,} calls, {self.counts['item saves']:,} saves, "
                   f"{self.counts['dead letters']:,} dead letters")  # fmt: skip
        if self.counts["histories with a fleet"]:
            yield (f"{self.counts['histories with a fleet']} of them with a fleet: {self.counts['messages']:,} "
                   f"messages, {self.counts['messages given']:,} deliveries, {self.counts['messages given again']:,} "
                   f"given again, {self.counts['rows served']:,} executions")  # fmt: skip
        faults = self.faults()
        yield f"{sum(faults.values()):,} faults: {', '.join(f'{kind} {count}' for kind, count in faults.items())}"
        yield (f"{self.counts['waits']} waits for a lock, {self.counts['deadlocks']} deadlocks, "
               f"{self.counts['idle_transactions']} idle transactions ended, "
               f"{self.counts['pool waits']} waits for the pool")  # fmt: skip
        yield (f"worst takeover {self.worst_takeover:.1f} s (with all faults about {self.worst_takeover_any:.1f} s), "
               f"worst lateness in calm {self.worst_lateness:.2f} s")  # fmt: skip
        each = self.seconds * processes
        yield (f"{self.seconds:.1f} s in {processes} process{'es' if processes > 1 else ''}: "
               f"{60 * (self.histories + self.twice) / each:.0f} histories a minute and "
               f"{statements / each:.0f} statements a second for each")  # fmt: skip
        which = f": {self.different[:5]}" if self.different else ""
        yield f"{self.twice} played twice, {len(self.different)} differ{which}"
        yield f"{len(self.failed)} histories broke a promise" if self.failed else "nothing is broken"
