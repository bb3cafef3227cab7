"""How long the executions of a schedule usually take: the 95th percentile of its latest successes, kept for a while."""

import time
from collections.abc import Collection
from uuid import UUID

from sqlalchemy import Connection

from services.notifications import notifier_sql as sql

KEPT_SECONDS = 600.0
MOST_KEPT = 20_000
ASKED_AT_ONCE = 1000  # as many as a page of the walk has: of what is not asked for, slow ones go unseen


class UsualDurations:
    def __init__(self) -> None:
        self._known: dict[UUID, tuple[float, float | None]] = {}  # when it was asked for, seconds

    def of(self, connection: Connection, schedule_ids: Collection[UUID]) -> dict[UUID, float]:
        """Without those that have too few successes."""
        now = time.monotonic()
        if len(self._known) > MOST_KEPT:
            self._known.clear()
        asked = [each for each in schedule_ids if now - self._known.get(each, (-KEPT_SECONDS, None))[0] >= KEPT_SECONDS]
        if asked := asked[:ASKED_AT_ONCE]:
            rows = connection.exec_driver_sql(sql.USUAL, {"ids": asked})
            found = {row.schedule_id: float(row.seconds) for row in rows}
            self._known |= {each: (now, found.get(each)) for each in asked}
        known = {each: self._known.get(each, (0.0, None))[1] for each in schedule_ids}
        return {each: seconds for each, seconds in known.items() if seconds is not None}
