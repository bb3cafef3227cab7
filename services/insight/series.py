"""Outcomes and lateness over a window, for charts. Fires are counted, not attempts.

An hour is read from the rows, anything longer from the counted hours of ledger/tallies.py, so that a month of a busy
fleet costs a few hundred rows.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, tzinfo

from database.connection import DatabaseConnection
from services.insight.failures import Failure
from services.insight.overview import Minute, Overview
from services.insight.windows import HOUR, Window
from services.ledger.fate_sql import Fate
from services.ledger.tallies import ExecutionTallies, Hour, Spread


class Series:
    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def read(self, window: Window, zone: tzinfo, failures: Sequence[Failure]) -> list[Minute]:
        """Oldest first, without holes; in local time. `failures` are those of the window."""
        if window is HOUR:
            bars = [Minute(bar.at.astimezone(zone), *_rest(bar)) for bar in Overview(self._db).minutes()]
            superseded = Counter((_at(window, zone, one.due_at), one.status) for one in failures if _goes_on(one))
        else:
            hours = ExecutionTallies(self._db).hourly(window.hours)
            bars = _fold(window, zone, hours, self._now())
            superseded = Counter((_at(window, zone, one.created_at), one.status) for one in failures if _goes_on(one))
        return [_without(bar, superseded) for bar in bars]

    def _now(self) -> datetime:
        with self._db.transaction() as connection:
            now: datetime = connection.exec_driver_sql("SELECT now()").scalar_one()
            return now


def _rest(bar: Minute) -> tuple[dict[str, int], float | None, float | None]:
    return bar.outcomes, bar.p50_seconds, bar.p99_seconds


def _at(window: Window, zone: tzinfo, at: datetime) -> datetime:
    return window.begin_of(at.astimezone(zone))


def _goes_on(failure: Failure) -> bool:
    """Another attempt of its fire is counted."""
    return failure.fate != Fate.FAILED


def _without(bar: Minute, superseded: Counter[tuple[datetime, str]]) -> Minute:
    left = {status: number - superseded[bar.at, status] for status, number in bar.outcomes.items()}
    outcomes = {status: number for status, number in left.items() if number > 0}
    return Minute(bar.at, outcomes, bar.p50_seconds, bar.p99_seconds)


def _fold(window: Window, zone: tzinfo, hours: Sequence[Hour], now: datetime) -> list[Minute]:
    steps = round(window.hours * 3600 / window.step.total_seconds())
    begins = sorted({_at(window, zone, now - back * window.step) for back in range(steps)})
    outcomes = {begin: Counter[str]() for begin in begins}
    places = {begin: Counter[int]() for begin in begins}
    for hour in hours:
        begin = _at(window, zone, hour.at)
        if begin in outcomes:
            outcomes[begin].update(hour.outcomes)
            places[begin].update(hour.latenesses.counts)
    return [Minute(begin, dict(outcomes[begin]), *_percentiles(Spread(places[begin]))) for begin in begins]


def _percentiles(spread: Spread) -> tuple[float | None, float | None]:
    return (spread.percentile(0.5), spread.percentile(0.99)) if spread.counts else (None, None)
