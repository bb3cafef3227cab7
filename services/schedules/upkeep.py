"""The watcher's writes to `schedules`: invalid rows are parked, next_run follows changes made by plain SQL.

These writes never delay a change on its way into the timer: they are collected here and written afterwards in parts,
so that neither a hundred thousand rows nor a row locked by another session holds up the next change.
"""

import json
import logging
from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from database.connection import DedicatedConnection

logger = logging.getLogger(__name__)

# A statement locks the rows of its part while it runs, and the fires of a locked schedule wait.
REPAIR_ROWS = 500
PARK_ROWS = 500
NAMED_ROWS = 20  # rows of a part that get their own log line


class ScheduleUpkeep:
    """Used by one thread, on that thread's connection."""

    def __init__(self, connection: DedicatedConnection) -> None:
        self._connection = connection
        self._unparked: dict[UUID, tuple[int, str]] = {}  # revision and reason
        self._unplanned: dict[UUID, tuple[int, datetime | None]] = {}
        self.is_busy = False  # more rows are waiting, and not all of them are locked by other sessions

    def park(self, schedule_id: UUID, revision: int, reason: str) -> None:
        self._unparked[schedule_id] = revision, reason

    def plan(self, schedule_id: UUID, revision: int, next_run: datetime | None) -> None:
        self._unplanned[schedule_id] = revision, next_run

    def write_some(self) -> None:
        """Write one part of each kind; after a failure the next call retries the same part."""
        progressed = [self._repair_some(), self._park_some()]
        self.is_busy = bool(self._unparked or self._unplanned) and any(progressed)

    def _repair_some(self) -> bool:
        part = dict(islice(self._unplanned.items(), REPAIR_ROWS))
        if part:
            self._write(REPAIR_NEXT_RUN, part, "next_run")
            _drop(part, self._unplanned)
        return bool(part)

    def _park_some(self) -> bool:
        """A row locked by another session is parked by a later tick, after all others."""
        part = dict(islice(self._unparked.items(), PARK_ROWS))
        if not part:
            return False
        answers = self._write(PARK, part, "reason")
        parked = {row.schedule_id for row in answers if row.parked}
        held = {row.schedule_id: part[row.schedule_id] for row in answers if row.schedule_id not in parked}
        _drop(part, self._unparked)
        self._unparked |= held
        _report({schedule_id: part[schedule_id][1] for schedule_id in parked})
        return len(held) < len(part)

    def _write(self, sql: str, part: Mapping[UUID, tuple[int, object]], name: str) -> list[Row[Any]]:
        """In a transaction, in which rows are found by their keys."""
        rows = [{"schedule_id": str(key), "revision": revision, name: value} for key, (revision, value) in part.items()]
        values = {"ids": [row["schedule_id"] for row in rows], "rows": json.dumps(rows, default=str)}
        with self._connection.transaction():
            return self._connection.run(sql, values)


def _drop(part: Mapping[UUID, Any], waiting: dict[UUID, Any]) -> None:
    for schedule_id in part:
        del waiting[schedule_id]


def _report(parked: Mapping[UUID, str]) -> None:
    for schedule_id, reason in islice(parked.items(), NAMED_ROWS):
        extra = {"event": "schedule_parked", "schedule_id": str(schedule_id)}
        logger.error("schedule %s is parked: %s", schedule_id, reason, extra=extra)
    if len(parked) > NAMED_ROWS:
        facts = {"event": "schedules_parked", "count": len(parked)}
        logger.error("%d schedules were parked in total; see invalid_reason for each", len(parked), extra=facts)


# Both list the ids wherever they read the table. With outdated statistics (collected on an empty table) Postgres
# plans the join as if the table had one row, and would compare each of a hundred thousand rows with each of the part.

# Returns the rows that were not parked before, and again, marked, those that are now: the rest is locked.
PARK = """
WITH wanted AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(rows)s::json) AS w (schedule_id uuid, revision bigint, reason text)
), free AS MATERIALIZED (
    SELECT s.schedule_id, w.reason FROM wanted AS w JOIN schedules AS s USING (schedule_id, revision)
    WHERE s.schedule_id = ANY(%(ids)s::uuid[]) AND s.invalid_reason IS DISTINCT FROM w.reason
    ORDER BY s.schedule_id FOR NO KEY UPDATE OF s SKIP LOCKED
), parked AS (
    UPDATE schedules AS s SET last_status = 'invalid', invalid_reason = free.reason, next_run = NULL
    FROM free WHERE s.schedule_id = free.schedule_id AND s.schedule_id = ANY(%(ids)s::uuid[])
    RETURNING s.schedule_id
)
SELECT schedule_id, true AS parked FROM parked
UNION ALL
SELECT s.schedule_id, false FROM wanted AS w JOIN schedules AS s USING (schedule_id, revision)
WHERE s.schedule_id = ANY(%(ids)s::uuid[]) AND s.invalid_reason IS DISTINCT FROM w.reason
"""

# Locks only the rows that it changes.
REPAIR_NEXT_RUN = """
WITH wrong AS (
    SELECT s.schedule_id, planned.next_run
    FROM json_to_recordset(%(rows)s::json) AS planned (schedule_id uuid, revision bigint, next_run timestamptz)
    JOIN schedules AS s ON s.schedule_id = planned.schedule_id AND s.revision = planned.revision
    WHERE s.schedule_id = ANY(%(ids)s::uuid[]) AND s.next_run IS DISTINCT FROM planned.next_run
    ORDER BY s.schedule_id FOR NO KEY UPDATE OF s SKIP LOCKED)
UPDATE schedules AS s SET next_run = wrong.next_run FROM wrong
WHERE s.schedule_id = wrong.schedule_id AND s.schedule_id = ANY(%(ids)s::uuid[])
"""
