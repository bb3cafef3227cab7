"""Instants, durations and people in the words of an explanation."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from services.schedule_repository import Change


def moment(instant: datetime, timezone: str) -> str:
    """As people of that zone read it; with the milliseconds of what is not on a full second."""
    local = instant.astimezone(ZoneInfo(timezone))
    fraction = f".{local.microsecond // 1000:03}" if local.microsecond else ""
    return f"{local:%Y-%m-%d %H:%M:%S}{fraction} {local:%Z}"


def duration(length: timedelta | float) -> str:
    """`0.4 s`, `42 s`, `3 min 5 s`, `2 h 10 min`, `4 d 3 h`: the two largest units that matter."""
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    parts, rest = [], round(seconds)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def by_whom(change: Change | None, timezone: str, verb: str = "changed") -> str:
    """` (changed by cli:anna at …)`; nothing when the log does not say."""
    return "" if change is None else f" ({verb} by {change.changed_by} at {moment(change.changed_at, timezone)})"
