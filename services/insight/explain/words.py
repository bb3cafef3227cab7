"""Formatting of instants and actors in an explanation."""

from datetime import datetime
from zoneinfo import ZoneInfo

from services.schedules.changes import Change


def moment(instant: datetime, timezone: str) -> str:
    """Local time in that zone, with milliseconds if it is not a full second."""
    local = instant.astimezone(ZoneInfo(timezone))
    fraction = f".{local.microsecond // 1000:03}" if local.microsecond else ""
    return f"{local:%Y-%m-%d %H:%M:%S}{fraction} {local:%Z}"


def by_whom(change: Change | None, timezone: str, verb: str = "changed") -> str:
    """` (changed by cli:anna at …)`; empty when the log has no entry."""
    return "" if change is None else f" ({verb} by {change.changed_by} at {moment(change.changed_at, timezone)})"
