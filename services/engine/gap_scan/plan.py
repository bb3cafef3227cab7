"""Which fires of one schedule without a row are run late, tried again, or recorded; verdicts.py says as what. Pure.

One schedule gets a bounded number of rows, however many fires it missed: those beyond the cap share one summary row.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from database.models import Catchup, ExecutionStatus
from services.engine.gap_scan.walk import Watched
from services.ledger.fires import Fire
from services.ledger.verdicts import HANDED_OVER, Kind, Reason, Situation, Stage, Tolerances, Verdict, decide


class Gap:
    """The fires of one schedule that have no row, added oldest first: all are counted, the newest are kept."""

    def __init__(self, watched: Watched, first: datetime, held: int) -> None:
        self.watched, self.first = watched, first
        self.newest: deque[datetime] = deque([first], maxlen=held)
        self.count = 1

    def add(self, at: datetime) -> None:
        self.newest.append(at)
        self.count += 1

    def due_since(self, age: timedelta, now: datetime) -> list[datetime]:
        """Those of the newest that came due within this time."""
        return [at for at in self.newest if now - at - self.watched.spread <= age]


@dataclass(frozen=True, slots=True)
class Planned:
    """One row to write."""

    scheduled_for: datetime
    status: ExecutionStatus | None
    reason: Reason | None = None
    details: dict[str, Any] | None = None

    @property
    def fires(self) -> int:
        return int(self.details["count"]) if self.details else 1

    @classmethod
    def of(cls, at: datetime, verdict: Verdict, details: dict[str, Any] | None = None) -> "Planned":
        return cls(at, verdict.status, verdict.reason, details)


def catch_up(gap: Gap, rule: Catchup, grace: timedelta, limits: Tolerances, now: datetime) -> list[Planned]:
    """After downtime: the rule says how many of the latest run; one that is merely late runs in any case."""
    recent = gap.due_since(max(limits.window, grace), now)
    wanted = max(limits.caught_up(rule), min(1, len(gap.due_since(grace, now))))
    run = recent[max(0, len(recent) - wanted) :]
    late = _verdict(Situation.CAUGHT_UP)
    return [*(Planned.of(at, late) for at in run), *_records(gap, limits, without_newest=len(run))]


def try_again(gap: Gap, limits: Tolerances, now: datetime) -> tuple[list[Fire], list[Planned]]:
    """While we run: the newest go to the dispatcher, whose claim decides; fires too old to run are recorded."""
    watched = gap.watched
    young = [at for at in gap.newest if now - at < limits.horizon][-HANDED_OVER:]
    fires = [Fire(watched.schedule_id, at, at + watched.spread, watched.priority, watched.bucket) for at in young]
    return fires, list(_records(gap, limits, without_newest=len(fires)))


def record(gap: Gap, limits: Tolerances) -> list[Planned]:
    """Of a timing that has ended: it is not caught up."""
    return list(_records(gap, limits, Situation.ENDED))


def _records(gap: Gap, limits: Tolerances, *situations: Situation, without_newest: int = 0) -> Iterator[Planned]:
    count = gap.count - without_newest
    if count > limits.max_fires:
        first, last = gap.first, gap.newest[-1 - without_newest]
        details = {"first": first, "last": last, "count": count}
        yield Planned.of(first, _verdict(*situations, Situation.BEYOND_CAP), details)
        return
    for at in list(gap.newest)[:count]:
        yield Planned.of(at, _verdict(*situations))


def _verdict(*situations: Situation) -> Verdict:
    return decide(Stage.GAP_SCAN, Kind.SCHEDULE, situations).verdict
