"""Instants and people in the words of an explanation."""

from datetime import datetime
from zoneinfo import ZoneInfo

from services.schedules.changes import Change


def moment(instant: datetime, timezone: str) -> str:
    """As people of that zone read it; with the milliseconds of what is not on a full second."""
    local = instant.astimezone(ZoneInfo(timezone))
    fraction = f".{local.microsecond // 1000:03}" if local.microsecond else ""
    return f"{local:%Y-%m-%d %H:%M:%S}{fraction} {local:%Z}"


def by_whom(change: Change | None, timezone: str, verb: str = "changed") -> str:
    """` (changed by cli:anna at …)`; nothing when the log does not say."""
    return "" if change is None else f" ({verb} by {change.changed_by} at {moment(change.changed_at, timezone)})"
