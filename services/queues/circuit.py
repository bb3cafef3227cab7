"""Circuit breaker of a queue: too many failures among the last items open it, one successful probe closes it. Pure.

Only retryable failures count, because they point to a problem outside. A permanent failure concerns its own row; so
does the failure of a site that only this row calls (run_ledger.py).
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto

from database.workflow_statuses import CircuitStatus

WORKED, DID_NOT = ".", "x"


@dataclass(frozen=True, slots=True)
class Breaker:
    """Opens after `failures` among the last `window` items; probes with one item after the cool-down."""

    window: int = 20
    failures: int = 15
    cool_down_seconds: float = 120.0


class Entry(Enum):
    """What a run may do."""

    WORK = auto()
    PROBE = auto()  # one item, whose outcome closes or reopens the circuit
    SKIP = auto()


@dataclass(frozen=True, slots=True)
class Circuit:
    status: CircuitStatus
    changed_at: datetime
    recent: str = ""  # marks of the last items, newest last

    def entry(self, now: datetime, breaker: Breaker) -> tuple[Entry, "Circuit"]:
        """A probe without a report (its process died) is repeated after another cool-down."""
        if self.status is CircuitStatus.CLOSED:
            return Entry.WORK, self
        if now - self.changed_at < timedelta(seconds=breaker.cool_down_seconds):
            return Entry.SKIP, self
        return Entry.PROBE, Circuit(CircuitStatus.HALF_OPEN, now)

    def after(self, marks: str, now: datetime, breaker: Breaker) -> "Circuit":
        if not marks:
            return self
        match self.status:
            case CircuitStatus.CLOSED:
                recent = (self.recent + marks)[-breaker.window :]
                if recent.count(DID_NOT) >= breaker.failures:
                    return Circuit(CircuitStatus.OPEN, now)
                return replace(self, recent=recent)
            case CircuitStatus.HALF_OPEN:
                good = marks.endswith(WORKED)
                return Circuit(CircuitStatus.CLOSED if good else CircuitStatus.OPEN, now)
            case CircuitStatus.OPEN:
                return self  # these items were in progress when it opened

    def not_probed(self, now: datetime, breaker: Breaker) -> "Circuit":
        """There was no item to probe with: the next run may probe."""
        if self.status is not CircuitStatus.HALF_OPEN:
            return self
        return Circuit(CircuitStatus.OPEN, now - timedelta(seconds=breaker.cool_down_seconds))
