"""Report on the rows of an earlier scheduler whose database is taken over, printed once by run_migrations.

Rows with an invalid timing are parked at this moment, not by the first replica, so the report is complete.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row

from services.errors import InvalidSchedule
from services.triggers import trigger_of
from services.wording.counts import counted

SHOWN = 3
ROWS_AT_ONCE = 2000


@dataclass(frozen=True, slots=True)
class Adopted:
    """Row counts before the first revision was applied."""

    schedules: int
    executions: int
    neither_on_nor_off: int  # `enabled` was NULL


def before_adoption(connection: Connection) -> Adopted | None:
    """None if there is nothing to adopt: the database is empty or already ours."""
    if connection.exec_driver_sql(IS_OF_AN_EARLIER_SCHEDULER).scalar_one():
        return Adopted(*connection.exec_driver_sql(BEFORE).one())
    return None


def after_adoption(connection: Connection, adopted: Adopted) -> Iterator[str]:
    """Lines for the operator who ran the migrations."""
    _park_unreadable(connection)
    parked, translated, abandoned = connection.exec_driver_sql(AFTER).one()
    yield f"adopted {counted(adopted.schedules, 'schedule')} and {counted(adopted.executions, 'execution')}"
    if parked:
        yield f"  parked: {counted(parked, 'schedule')} with an invalid timing; nothing was deleted"
        for row in connection.exec_driver_sql(PARKED, {"limit": SHOWN}):
            yield f"    {row.domain}: {row.invalid_reason[:150]}"
        yield "    list them: python manage.py schedule list --status invalid"
    if adopted.neither_on_nor_off:
        yield f"  disabled: {counted(adopted.neither_on_nor_off, 'schedule')} whose `enabled` was empty"
        yield "    list them: python manage.py schedule list --disabled"
    if translated:
        words = f", {abandoned:,} to abandoned (no end recorded)" if abandoned else ""
        yield f"  translated: {counted(translated, 'execution')} with a status unknown to this scheduler{words}"
        yield "    list them: python manage.py executions --status abandoned" if abandoned else "    see metadata"
    yield "times without a time zone were read as UTC; check the fires: python manage.py schedule list --sort next_run"


def _park_unreadable(connection: Connection) -> None:
    found = connection.exec_driver_sql(READABLE_SO_FAR, execution_options={"yield_per": ROWS_AT_ONCE})
    reasons = [{"id": row.schedule_id, "reason": reason} for row in found if (reason := _why_unreadable(row))]
    if reasons:
        connection.exec_driver_sql(PARK, reasons)


def _why_unreadable(row: Row[Any]) -> str | None:
    try:
        trigger_of(row)
    except InvalidSchedule as error:
        return str(error)
    return None


IS_OF_AN_EARLIER_SCHEDULER = """
SELECT to_regclass('alembic_version') IS NULL
   AND to_regclass('schedules') IS NOT NULL AND to_regclass('job_executions') IS NOT NULL
"""

BEFORE = """
SELECT (SELECT count(*) FROM schedules), (SELECT count(*) FROM job_executions),
       (SELECT count(*) FROM schedules WHERE enabled IS NULL)
"""

READABLE_SO_FAR = """
SELECT schedule_id, frequency, time_config::text AS time_config, timezone, start_at, end_at
FROM schedules WHERE invalid_reason IS NULL
"""

PARK = """
UPDATE schedules SET last_status = 'invalid', invalid_reason = %(reason)s, next_run = NULL WHERE schedule_id = %(id)s
"""

AFTER = """
SELECT (SELECT count(*) FROM schedules WHERE invalid_reason IS NOT NULL),
       count(*), count(*) FILTER (WHERE status = 'abandoned')
FROM job_executions WHERE metadata ? 'adopted_status'
"""

PARKED = """
SELECT domain, invalid_reason FROM schedules WHERE invalid_reason IS NOT NULL ORDER BY domain LIMIT %(limit)s
"""
