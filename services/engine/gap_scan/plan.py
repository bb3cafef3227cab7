"""Decides about the fires of one schedule that have no row: run late, dispatch again, or record. Pure.

One schedule gets a bounded number of rows, however many fires it missed: those beyond the cap share one summary row.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from database.models import Catchup
from services.engine.gap_scan.walk import Watched
from services.ledger.bounds import HANDED_OVER, CatchupLimits
from services.ledger.fires import Fire

DOWNTIME, CHANGED, SUMMARY = "downtime", "changed", "catchup_cap"


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
    status: str
    reason: str | None = None
    details: dict[str, Any] | None = None

    @property
    def fires(self) -> int:
        return int(self.details["count"]) if self.details else 1


def catch_up(gap: Gap, rule: Catchup, grace: timedelta, limits: CatchupLimits, now: datetime) -> list[Planned]:
    """After downtime: the rule says how many of the latest run; one that is merely late runs in any case."""
    recent = gap.due_since(max(limits.window, grace), now)
    most = {Catchup.NONE: 0, Catchup.ONE: 1, Catchup.ALL: limits.max_fires}[rule]
    wanted = max(most, min(1, len(gap.due_since(grace, now))))
    run = recent[max(0, len(recent) - wanted) :]
    return [*(Planned(at, "pending") for at in run), *_missed(gap, len(run), DOWNTIME, limits)]


def try_again(gap: Gap, limits: CatchupLimits, now: datetime) -> tuple[list[Fire], list[Planned]]:
    """While we run: the newest go to the dispatcher, whose claim decides; what nobody may run any more is recorded."""
    watched = gap.watched
    young = [at for at in gap.newest if now - at < limits.horizon][-HANDED_OVER:]
    fires = [Fire(watched.schedule_id, at, at + watched.spread, watched.priority) for at in young]
    return fires, list(_missed(gap, len(fires), DOWNTIME, limits))


def record(gap: Gap, limits: CatchupLimits) -> list[Planned]:
    """Of a timing that has ended: it is not caught up."""
    return list(_missed(gap, 0, CHANGED, limits))


def _missed(gap: Gap, without_newest: int, reason: str, limits: CatchupLimits) -> Iterator[Planned]:
    count = gap.count - without_newest
    if count > limits.max_fires:
        last = gap.newest[-1 - without_newest]
        yield Planned(gap.first, "missed", SUMMARY, {"first": gap.first, "last": last, "count": count})
        return
    for at in list(gap.newest)[:count]:
        yield Planned(at, "missed", reason)
