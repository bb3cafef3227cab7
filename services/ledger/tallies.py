"""Statistics over long periods from pre-aggregated hours (`execution_hours`); exact except for the percentiles.

A query first aggregates the hours that are still missing. Percentiles come from buckets on a logarithmic scale and are
off by at most 2 %; without an aggregated hour in the range, the rows themselves are queried.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from math import ceil, floor

from database.connection import DatabaseConnection
from services.ledger import tallies_sql as sql

HOURS_AT_ONCE = 200
FAILED = ("failed", "timed_out", "abandoned")


@dataclass(frozen=True, slots=True)
class Spread:
    """The number of values in each bucket of the scale."""

    counts: Mapping[int, int]

    def percentile(self, share: float) -> float:
        """Between two values in proportion, as Postgres' percentile_cont; 0.0 where there is nothing to measure."""
        places = sorted(self.counts)
        up_to = list(accumulate(self.counts[place] for place in places))
        if not up_to:
            return 0.0
        rank = share * (up_to[-1] - 1)
        below, above = (middle(places[bisect_right(up_to, number)]) for number in (floor(rank), ceil(rank)))
        return below + (above - below) * (rank - floor(rank))


@dataclass(frozen=True, slots=True)
class Hour:
    """The executions created in one hour, by status, and how late the ordinary ones started."""

    at: datetime
    outcomes: Mapping[str, int]
    latenesses: Spread


def middle(place: int) -> float:
    """What is at most 2 % from everything in this place."""
    upper = sql.GROWTH**place
    return 0.0 if upper <= sql.SMALLEST * sql.GROWTH else 2 * upper / (1 + sql.GROWTH)


class ExecutionTallies:
    """Safe to share between threads."""

    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def count_hours(self) -> int:
        """Count what can be counted by now; returns how many hours. One at a time, the others go on without it."""
        counted = 0
        while True:
            with self._db.transaction() as connection:
                if not connection.exec_driver_sql(sql.ALONE).scalar_one():
                    return counted
                batch: int = connection.exec_driver_sql(sql.COUNT_HOURS, {"hours": HOURS_AT_ONCE}).scalar_one()
                connection.exec_driver_sql(sql.SET_MARK)
            counted += batch
            if batch < HOURS_AT_ONCE:
                return counted

    def read(self, days: int) -> dict[str, int | float] | None:
        """None while no counted hour is part of it."""
        with self._db.transaction() as connection:
            connection.exec_driver_sql(sql.HASHED)
            row = connection.exec_driver_sql(sql.READ, {"days": days}).one()
        if not row.is_counted:
            return None
        durations, latenesses = _spread(row.durations), _spread(row.latenesses)
        successful = row.outcomes.get("success", 0)
        failed = sum(row.outcomes.get(status, 0) for status in FAILED)
        ended = successful + failed
        least, most = row.least or 0.0, row.most or 0.0
        return {
            "total_executions": ended,
            "successful": successful,
            "failed": failed,
            "success_rate": 100.0 * successful / ended if ended else 0.0,
            "avg_duration": row.total / row.n if row.n else 0.0,
            "min_duration": least,
            "max_duration": most,
            **{status: row.outcomes.get(status, 0) for status in ("cancelled", "skipped", "missed")},
            **{status: row.outcomes.get(status, 0) for status in ("abandoned", "timed_out")},
            "running": row.outcomes.get("claimed", 0) + row.outcomes.get("running", 0),
            **{f"p{p}_duration": min(most, max(least, durations.percentile(p / 100))) for p in (50, 95, 99)},
            **{f"p{p}_lateness": latenesses.percentile(p / 100) for p in (50, 99)},
        }

    def hourly(self, hours: int) -> list[Hour]:
        """The present hour and those before it, oldest first; an hour without executions is left out."""
        self.count_hours()
        with self._db.transaction() as connection:
            connection.exec_driver_sql(sql.HASHED)
            rows = connection.exec_driver_sql(sql.HOURLY, {"hours": hours}).all()
        return [Hour(row.hour, row.outcomes, Spread(dict(zip(row.places, row.counts, strict=True)))) for row in rows]


def _spread(counts: Mapping[str, int]) -> Spread:
    return Spread({int(place): count for place, count in counts.items()})
