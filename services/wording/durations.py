"""Durations for people: `42 ms`, `1.5 s`, `3 min 5 s`, `2 h 10 min`, `4 d 3 h`."""

from datetime import timedelta

UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def duration(length: timedelta | float) -> str:
    """The two largest units that matter."""
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    parts, rest = [], round(seconds)
    for size, unit in UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
