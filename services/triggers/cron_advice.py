"""Replacements for syntax that only other cron dialects support: wrapped ranges, `?`, `15W`, `FRIL`. Pure."""

import re

_LIMITS = {
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 23),
    "day-of-month": (1, 31),
    "month": (1, 12),
    "day-of-week": (0, 6),
}
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_NAMES = {
    "month": {name: number for number, name in enumerate(_MONTHS, 1)},
    "day-of-week": {name: number for number, name in enumerate(_DAYS)},
}
_RANGE = re.compile(r"(\w+)-(\w+)(?:/([1-9][0-9]?))?")


def advice_for(name: str, field: str) -> str | None:
    """Advice for a field in upper case, `name` as cronsim calls it; None: only the limits apply."""
    if field == "?":
        return "write '*' instead of '?'"
    if name == "day-of-month" and (day := re.fullmatch(r"(\d\d?)W", field)):
        return (
            f"the nearest weekday (W) is not supported: write '{day[1]}' for that day"
            " or 'LW' for the month's last weekday"
        )
    if name == "day-of-week" and (day := re.fullmatch(r"([A-Z]{3})L", field)) and day[1] in _NAMES[name]:
        return f"write '{_NAMES[name][day[1]]}L' for the last one of the month"
    return _advice_for_ranges(name, field)


def _advice_for_ranges(name: str, field: str) -> str | None:
    terms = field.split(",")
    written = [_wrap_around(name, term) for term in terms]
    if written == terms:
        return None
    ends_on_sunday = name == "day-of-week" and any(term.endswith("-7") for term in written)
    reason = "a range that ends on Sunday must end in 7" if ends_on_sunday else "a range cannot wrap around"
    return f"{reason}: write '{','.join(written)}'"


def _wrap_around(name: str, term: str) -> str:
    """`22-2` -> `22-23,0-2`; other terms unchanged."""
    found = _RANGE.fullmatch(term)
    if found is None:
        return term
    first, last = _number(name, found[1]), _number(name, found[2])
    lowest, highest = _LIMITS[name]
    if first is None or last is None or first <= last:
        return term
    if found[3]:
        values = [*range(first, highest + 1), *range(lowest, last + 1)][:: int(found[3])]
        return ",".join(map(str, values))
    if name == "day-of-week" and last == 0:
        return f"{first}-7"
    return ",".join(_span(*span) for span in ((first, highest), (lowest, last)))


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _number(name: str, text: str) -> int | None:
    number = int(text) if re.fullmatch(r"[0-9]{1,2}", text) else _NAMES.get(name, {}).get(text)
    lowest, highest = _LIMITS[name]
    return number if number is not None and lowest <= number <= highest else None
