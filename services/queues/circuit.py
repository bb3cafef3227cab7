"""The circuit breaker of a queue: too many failures among the last items open it, one good item closes it again. Pure.

What is counted are failures that another attempt may cure: they say something about the outside world. A permanent
failure says something about its own row, and so does a site that only this row asks (run_ledger.py).
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto

from database.workflow_statuses import CircuitStatus

WORKED, DID_NOT = ".", "x"


@dataclass(frozen=True, slots=True)
class Breaker:
    """When to open: `failures` of the last `window` items; how long to wait before an item is tried."""

    window: int = 20
    failures: int = 15
    cool_down_seconds: float = 120.0


class Entry(Enum):
    """What a run may do."""

    WORK = auto()
    PROBE = auto()  # one item; what becomes of it decides
    SKIP = auto()


@dataclass(frozen=True, slots=True)
class Circuit:
    status: CircuitStatus
    changed_at: datetime
    recent: str = ""  # newest last

    def entry(self, now: datetime, breaker: Breaker) -> tuple[Entry, "Circuit"]:
        """A probe that nobody reported about (its process died) is tried again after another cool-down."""
        if self.status is CircuitStatus.CLOSED:
            return Entry.WORK, self
        if now - self.changed_at < timedelta(seconds=breaker.cool_down_seconds):
            return Entry.SKIP, self
        return Entry.PROBE, Circuit(CircuitStatus.HALF_OPEN, now)

    def after(self, outcomes: str, now: datetime, breaker: Breaker) -> "Circuit":
        if not outcomes:
            return self
        match self.status:
            case CircuitStatus.CLOSED:
                recent = (self.recent + outcomes)[-breaker.window :]
                if recent.count(DID_NOT) >= breaker.failures:
                    return Circuit(CircuitStatus.OPEN, now)
                return replace(self, recent=recent)
            case CircuitStatus.HALF_OPEN:
                good = outcomes.endswith(WORKED)
                return Circuit(CircuitStatus.CLOSED if good else CircuitStatus.OPEN, now)
            case CircuitStatus.OPEN:
                return self  # of items that were under way when it opened

    def not_probed(self, now: datetime, breaker: Breaker) -> "Circuit":
        """There was no item to try: the next run may."""
        if self.status is not CircuitStatus.HALF_OPEN:
            return self
        return Circuit(CircuitStatus.OPEN, now - timedelta(seconds=breaker.cool_down_seconds))
