"""Parser of the dates in `Expires`, as in browsers (RFC 6265, 5.1.1): parts in any order, any separators."""

import re
from datetime import UTC, datetime

_SEPARATORS = re.compile(r"[\t\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+")
_TIME = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?!\d)")
_DAY = re.compile(r"(\d{1,2})(?!\d)")
_YEAR = re.compile(r"(\d{2,4})(?!\d)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def parse_cookie_date(text: str) -> datetime | None:
    """None when it is not a date."""
    parts: dict[str, tuple[int, ...]] = {}
    for token in filter(None, _SEPARATORS.split(text)):
        for name, found in _readings(token):
            if name not in parts and found is not None:
                parts[name] = found
                break
    if len(parts) < 4:
        return None
    [year], [month], [day], [hour, minute, second] = (parts[name] for name in ("year", "month", "day", "time"))
    try:
        return datetime(_century(year), month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:  # such as 31 February
        return None


def _readings(token: str) -> list[tuple[str, tuple[int, ...] | None]]:
    """Possible readings of a token, most likely first."""
    month = token[:3].lower()
    return [
        ("time", _numbers(_TIME, token)),
        ("day", _numbers(_DAY, token)),
        ("month", (_MONTHS.index(month) + 1,) if month in _MONTHS else None),
        ("year", _numbers(_YEAR, token)),
    ]


def _numbers(pattern: re.Pattern[str], token: str) -> tuple[int, ...] | None:
    found = pattern.match(token)
    return tuple(map(int, found.groups())) if found and token.isascii() else None


def _century(year: int) -> int:
    if year < 70:
        return year + 2000
    return year + 1900 if year < 100 else year
