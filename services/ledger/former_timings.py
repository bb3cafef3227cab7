"""Whether a fire existed under an earlier timing of its schedule, according to the log of changes.

A row is written only for a fire of a definition that was in effect: a schedule disabled at that instant had no fire.
The rows are those of claims_sql.FORMER_TIMINGS.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Row

from services.errors import InvalidSchedule
from services.triggers import trigger_of


def had_fire(timings: Iterable[Row[Any]], at: datetime) -> bool:
    """Did one of these stretches of a schedule have this fire?"""
    return any(timing.effective_from < at <= timing.ended_at and _fires_at(timing, at) for timing in timings)


def _fires_at(timing: Row[Any], at: datetime) -> bool:
    try:
        return trigger_of(timing).fires_at(at)
    except InvalidSchedule:
        return False  # it was parked and never fired
