"""Durations for people: `42 ms`, `1.5 s`, `3 min 5 s`, `2 h 10 min`, `4 d 3 h`."""

from datetime import timedelta

UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def duration(length: timedelta | float) -> str:
    """The two largest units that matter; tenths and thousandths of a second where they do."""
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    return whole_units(round(seconds))


def whole_units(seconds: int) -> str:
    """The two largest units that matter: `5 s`, `3 h 20 min`."""
    parts = []
    for size, unit in UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def one_unit(seconds: float) -> str | None:
    """Rounded to the largest unit: `3 min`. None: less than a second."""
    return next((f"{seconds / size:.0f} {unit}" for size, unit in UNITS if seconds >= size), None)
