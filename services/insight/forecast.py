"""Forecast of the load in the coming minutes, which makes the pile-up at 02:00 visible the day before.

Schedules with the same timing are counted together: a hundred thousand schedules have a few hundred timings.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import Row

from database.connection import DatabaseConnection
from services.errors import InvalidSchedule
from services.insight.overview_sql import DUE_WITHIN
from services.triggers import trigger_of

SAMPLE = 20_000  # newest executions from which typical durations are taken
MOST_FIRES = 61  # computed one by one for a timing; a denser timing is extrapolated
MINUTE = timedelta(minutes=1)


@dataclass(slots=True)
class Load:
    """The load of one minute."""

    at: datetime
    fires: float = 0.0
    seconds: float = 0.0  # of work, by the typical duration of such executions
    labels: Counter[str] = field(default_factory=Counter)  # fires by timing


def forecast(db: DatabaseConnection, minutes: int = 60) -> list[Load]:
    with db.transaction() as connection:
        now = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
        rows = list(connection.exec_driver_sql(DUE_WITHIN, {"sample": SAMPLE, "minutes": minutes}))
    first = now.replace(second=0, microsecond=0)
    loads = [Load(first + number * MINUTE) for number in range(minutes + 1)]
    for row in rows:
        for at, weight in _fires(row, now, first + (minutes + 1) * MINUTE):
            load = loads[int((at - first) / MINUTE)]
            load.fires += weight * row.schedules
            load.seconds += weight * row.seconds
            label = row.label if row.schedules == 1 else f"{row.label} and {row.schedules - 1} more"
            load.labels[label] += round(weight * row.schedules)
    return loads


def _fires(row: Row[Any], now: datetime, until: datetime) -> Iterator[tuple[datetime, float]]:
    """The fires of this timing, each with its weight; a spread is distributed over its minutes."""
    for at, weight in _nominal_fires(row, now, until):
        parts = max(1, -(-row.spread_seconds // 60))
        for part in range(parts):
            moved = at + part * MINUTE
            if moved < until:
                yield moved, weight / parts


def _nominal_fires(row: Row[Any], now: datetime, until: datetime) -> Iterator[tuple[datetime, float]]:
    try:
        trigger = trigger_of(row)
    except InvalidSchedule:  # written by SQL a moment ago; the watcher parks it
        return
    first = list(islice(trigger.between(now, until - timedelta(microseconds=1)), MOST_FIRES))
    if len(first) < MOST_FIRES:
        yield from ((at, 1.0) for at in first)
        return
    step = (first[-1] - first[0]) / (MOST_FIRES - 1)
    minute = now.replace(second=0, microsecond=0)
    while minute < until:
        yield minute, MINUTE / step
        minute += MINUTE
