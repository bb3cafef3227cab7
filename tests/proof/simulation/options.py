"""What is played, and what came of it. Imports nothing of the product."""

from collections import Counter
from dataclasses import dataclass, field

from tests.proof.checker import Verdict
from tests.proof.simulation.net import KINDS, Fault

QUEUE = 9  # the number of the queue's schedule in a history


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """With a seed they say all about a history."""

    faults: tuple[str, ...] = KINDS  # kinds from which it draws
    only: frozenset[str] | None = None  # keys of the faults that may strike; None: all
    schedules: frozenset[int] | None = None  # numbers of those that are left; None: all
    replicas: int | None = None  # None: as drawn
    pace: str | None = None  # quick or usual; None: as drawn
    queue: bool | None = None  # with a status queue or without one; None: as drawn
    fleet: bool | None = None  # with workers of Celery, or without; None: as drawn


@dataclass(slots=True)
class Result:
    seed: int
    options: Options
    violations: list[str]
    verdict: Verdict
    faults: list[Fault]
    counts: Counter[str]
    lines: list[tuple[float, str]] = field(repr=False)
    digest: str
    schedules: tuple[int, ...]
    replicas: int
    virtual_seconds: float

    @property
    def is_clean(self) -> bool:
        return not self.violations

    @property
    def has_queue(self) -> bool:
        return QUEUE in self.schedules

    @property
    def kinds(self) -> set[str]:
        """Of what was broken."""
        return {each.partition(":")[0] for each in self.violations}
