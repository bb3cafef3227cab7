"""A timing as people type it ("weekly monday 02:00"), converted from and to frequency and time_config."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from services.errors import InvalidSchedule, Problem

EXAMPLES = ", ".join(
    f'"{example}"'
    for example in (
        "hourly :15",
        "daily 02:00",
        "weekly monday 02:00",
        "monthly 31 02:00",
        "every 15m",
        "cron 0 2 * * 1",
        "once 2027-01-31T08:00",
    )
)
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

Timing = tuple[str, dict[str, Any]]


def parse_when(text: str) -> Timing:
    """Parses the syntax only; the trigger validates values such as 25:00."""
    word, _, rest = text.strip().partition(" ")
    reader = READERS.get(word.lower())
    timing = reader(rest.strip()) if reader else None
    if timing is None:
        raise InvalidSchedule(Problem("when", f"cannot read {text!r}; examples: {EXAMPLES}"))
    return timing


def when_words(frequency: str, time_config: Mapping[str, Any]) -> str:
    """The text that `parse_when` parses into this timing; initial value of a form field."""
    given = dict(time_config)
    at = f"{given.get('hour', 0)}:{given.get('minute', 0):02}"
    match frequency:
        case "hourly":
            return f"hourly :{given.get('minute', 0):02}"
        case "daily":
            return f"daily {at}"
        case "weekly" | "monthly":
            return f"{frequency} {given.get('day', '')} {at}"
        case "interval":
            return "every " + " ".join(f"{count} {unit}" for unit, count in given.items())
        case "cron":
            return f"cron {given.get('expression', '')}"
        case _:
            return f"{frequency} {given.get('at', '')}"


def _hourly(rest: str) -> Timing | None:
    found = re.fullmatch(r":?(\d{1,2})?", rest)
    return ("hourly", {"minute": int(found[1] or 0)}) if found else None


def _daily(rest: str) -> Timing | None:
    found = re.fullmatch(r"(?:at )?(\d{1,2}):(\d{2})", rest)
    return ("daily", {"hour": int(found[1]), "minute": int(found[2])}) if found else None


def _weekly(rest: str) -> Timing | None:
    return _on_a_day("weekly", rest, r"[a-zA-Z]+|\d", str.lower)


def _monthly(rest: str) -> Timing | None:
    return _on_a_day("monthly", rest, r"\d{1,2}", int)


def _on_a_day(frequency: str, rest: str, day: str, read: Callable[[str], Any]) -> Timing | None:
    found = re.fullmatch(rf"(?:on )?({day}) (?:at )?(\d{{1,2}}):(\d{{2}})", rest)
    if not found:
        return None
    day_value = int(found[1]) if found[1].isdigit() else read(found[1])
    return frequency, {"day": day_value, "hour": int(found[2]), "minute": int(found[3])}


def _every(rest: str) -> Timing | None:
    parts = re.findall(r"(\d+)\s*([a-z]+)", rest)
    if not parts or re.sub(r"\d+\s*[a-z]+|\s", "", rest):
        return None
    config = {UNITS.get(unit[0]): int(count) for count, unit in parts if _is_unit(unit)}
    return ("interval", config) if len(config) == len(parts) else None  # type: ignore[return-value]


def _is_unit(word: str) -> bool:
    return any(word in (short, long, long.removesuffix("s"), long[:3]) for short, long in UNITS.items())


def _cron(rest: str) -> Timing | None:
    return ("cron", {"expression": rest}) if rest else None


def _once(rest: str) -> Timing | None:
    return ("once", {"at": rest.removeprefix("at ").strip()}) if rest else None


READERS: dict[str, Callable[[str], Timing | None]] = {
    "hourly": _hourly,
    "daily": _daily,
    "weekly": _weekly,
    "monthly": _monthly,
    "every": _every,
    "cron": _cron,
    "once": _once,
}
