"""Validation of `frequency`, `time_config`, `timezone`, `start_at`, `end_at` into a Definition.

Nothing is guessed or converted: all problems of the input are reported at once, each with its field and a reason.
Two spellings of the same timing give equal Definitions.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from services.errors import InvalidSchedule, Problem
from services.triggers.cron import Cron
from services.triggers.local_time import (
    END_OF_TIME,
    FIRST_YEAR,
    LAST_YEAR,
    LocalClock,
    ceil_seconds_of,
    local_clock,
    seconds_of,
    wall_seconds_of,
    zone_names,
)

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")  # calendar's obey the locale
UNIT_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
MAX_INTERVAL_SECONDS = 366 * 86_400

Similar = Callable[[str, Callable[[], Mapping[str, str]]], str]

_SHOWN_LENGTH = 60


@dataclass(frozen=True, slots=True)
class Hourly:
    minute: int


@dataclass(frozen=True, slots=True)
class Daily:
    hour: int
    minute: int


@dataclass(frozen=True, slots=True)
class Weekly:
    day: int  # Monday is 0
    hour: int
    minute: int


@dataclass(frozen=True, slots=True)
class Monthly:
    day: int
    hour: int
    minute: int


@dataclass(frozen=True, slots=True)
class Interval:
    seconds: int


@dataclass(frozen=True, slots=True)
class CronLine:
    expression: str


@dataclass(frozen=True, slots=True)
class Once:
    at: int  # seconds since 1970, UTC


Timing = Hourly | Daily | Weekly | Monthly | Interval | CronLine | Once


@dataclass(frozen=True, slots=True)
class Definition:
    """When a schedule fires, in canonical form: t is a fire only if start <= t < end (seconds since 1970, UTC)."""

    timing: Timing
    timezone: str
    start: int | None
    end: int | None

    @property
    def first(self) -> int:
        return self.start or 0

    @property
    def limit(self) -> int:
        return END_OF_TIME if self.end is None else self.end


def read_definition(
    frequency: object, time_config: object, timezone: object, start_at: object, end_at: object, *, suggest: bool = True
) -> Definition:
    """`suggest`: problems may contain a "did you mean", which takes milliseconds. For user input, not for rows."""
    similar = _did_you_mean if suggest else _no_suggestion
    problems: list[Problem] = []
    zone_problems: list[Problem] = []
    clock = _read_timezone(timezone, zone_problems, similar)  # first: a naive moment in time_config needs it
    timing = _read_timing(frequency, time_config, clock, problems, similar)
    problems += zone_problems
    start, end = _read_bounds(start_at, end_at, problems)
    if problems or timing is None:
        raise InvalidSchedule(*problems)
    return Definition(timing, clock.name, start, end)


def _read_timezone(timezone: object, problems: list[Problem], similar: Similar) -> LocalClock:
    if isinstance(timezone, str) and timezone in zone_names():
        return local_clock(timezone)
    if isinstance(timezone, str):
        hint = similar(timezone, _zone_spellings) or "; use a name such as 'Europe/Berlin' or 'UTC'"
        problems.append(Problem("timezone", f"unknown time zone {_as_written(timezone)}{hint}"))
    else:
        problems.append(
            Problem("timezone", f"must be a name such as 'Europe/Berlin' or 'UTC', got {_as_written(timezone)}")
        )
    return local_clock("UTC")  # so that the rest of the input can be checked too


def _zone_spellings() -> dict[str, str]:
    """Lower-case spellings of every zone, with and without its region."""
    names = sorted(zone_names())
    return {name.rpartition("/")[2].lower(): name for name in names} | {name.lower(): name for name in names}


def _read_bounds(start_at: object, end_at: object, problems: list[Problem]) -> tuple[int | None, int | None]:
    start = _read_instant("start_at", start_at, problems)
    end = _read_instant("end_at", None if _is_beyond_time(end_at) else end_at, problems)
    if start is not None and end is not None and end <= start:
        problems.append(Problem("end_at", "must be later than start_at"))
    return start, end


def _is_beyond_time(end_at: object) -> bool:
    """Many systems write "no end" as the year 9999."""
    return isinstance(end_at, datetime) and end_at.utcoffset() is not None and end_at.year > LAST_YEAR


def _read_instant(field: str, value: object, problems: list[Problem]) -> int | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.utcoffset() is None:
        problems.append(Problem(field, f"must be a datetime with a time zone, got {_as_written(value)}"))
    elif not FIRST_YEAR <= value.year <= LAST_YEAR:
        problems.append(Problem(field, _year_reason(value)))
    else:
        return ceil_seconds_of(value)
    return None


def _read_timing(
    frequency: object, time_config: object, clock: LocalClock, problems: list[Problem], similar: Similar
) -> Timing | None:
    if not isinstance(frequency, str) or frequency not in _FREQUENCIES:
        known = {name: name for name in _FREQUENCIES}
        hint = similar(frequency, lambda: known) if isinstance(frequency, str) else ""
        problems.append(Problem("frequency", f"unknown frequency {_as_written(frequency)}{hint or _choices(known)}"))
        return None
    if not isinstance(time_config, Mapping):
        problems.append(
            Problem("time_config", f"must be an object with keys and values, got {_as_written(time_config)}")
        )
        return None
    keys, read = _FREQUENCIES[frequency]
    config = _TimeConfig(time_config, clock, problems, similar)
    config.refuse_keys_other_than(keys)
    return read(config)


class _TimeConfig:
    """Reads the values one by one; an invalid one is reported and replaced, so that reading continues."""

    def __init__(self, values: Mapping[Any, Any], clock: LocalClock, problems: list[Problem], similar: Similar) -> None:
        self._values, self._clock, self._problems, self._similar = values, clock, problems, similar

    def refuse_keys_other_than(self, keys: tuple[str, ...]) -> None:
        known = {key: key for key in keys}
        for key in self._values:
            if key not in known:
                hint = self._similar(key, lambda: known) if isinstance(key, str) else ""
                self._refuse(str(key)[:_SHOWN_LENGTH], f"unknown key{hint or _choices(keys)}")

    def number(self, key: str, low: int, high: int, default: int | None = None) -> int:
        if key not in self._values:
            if default is None:
                self._refuse(key, "is required")
            return default or low
        value = self._values[key]
        if not _is_whole(value):
            self._refuse(key, f"must be a whole number, got {_as_written(value)}")
        elif not low <= value <= high:
            self._refuse(key, f"must be between {low} and {high}, got {_as_written(value)}")
        else:
            return int(value)
        return low

    def weekday(self) -> int:
        value: Any = self._values.get("day")
        if "day" not in self._values:
            self._refuse("day", "is required")
        elif _is_whole(value) and 0 <= value <= 6:
            return int(value)
        elif isinstance(value, str) and value.lower() in _WEEKDAY_SPELLINGS:
            return WEEKDAYS.index(_WEEKDAY_SPELLINGS[value.lower()])
        elif isinstance(value, str) and (hint := self._similar(value, lambda: _WEEKDAY_SPELLINGS)):
            self._refuse("day", f"unknown weekday {_as_written(value)}{hint}")
        else:
            self._refuse("day", f"must be the name of a weekday or 0 (Monday) to 6 (Sunday), got {_as_written(value)}")
        return 0

    def interval_seconds(self) -> int:
        given = [unit for unit in UNIT_SECONDS if unit in self._values]
        if not given:
            self._problems.append(Problem("time_config", f"needs at least one of {', '.join(UNIT_SECONDS)}"))
        total = sum(
            self.number(unit, 1, MAX_INTERVAL_SECONDS // UNIT_SECONDS[unit]) * UNIT_SECONDS[unit] for unit in given
        )
        if total > MAX_INTERVAL_SECONDS:
            self._problems.append(Problem("time_config", f"must add up to at most 366 days, got {total} seconds"))
        return total

    def cron_expression(self) -> str:
        value = self._values.get("expression")
        if "expression" not in self._values:
            self._refuse("expression", "is required")
        elif not isinstance(value, str):
            self._refuse("expression", f"must be text such as '0 2 * * 1', got {_as_written(value)}")
        else:
            try:
                return Cron(value).expression
            except ValueError as error:
                self._refuse("expression", str(error))
        return ""

    def moment(self) -> int:
        if "at" not in self._values:
            self._refuse("at", "is required")
            return 0
        value = self._values["at"]
        moment = _iso_datetime(value) if isinstance(value, str) else value
        if not isinstance(moment, datetime):
            example = "a date and time such as '2027-03-01T02:00:00+01:00'"
            self._refuse("at", f"must be {example}, got {_as_written(value)}")
        elif not FIRST_YEAR <= moment.year <= LAST_YEAR:
            self._refuse("at", _year_reason(moment))
        elif moment.utcoffset() is None:
            return self._clock.first_reaches(wall_seconds_of(moment))
        else:
            return seconds_of(moment)
        return 0

    def _refuse(self, key: str, reason: str) -> None:
        self._problems.append(Problem(f"time_config.{key}", reason))


def _hour_and_minute(config: _TimeConfig) -> tuple[int, int]:
    return config.number("hour", 0, 23), config.number("minute", 0, 59, default=0)


_FREQUENCIES: dict[str, tuple[tuple[str, ...], Callable[[_TimeConfig], Timing]]] = {
    "hourly": (("minute",), lambda config: Hourly(config.number("minute", 0, 59, default=0))),
    "daily": (("hour", "minute"), lambda config: Daily(*_hour_and_minute(config))),
    "weekly": (("day", "hour", "minute"), lambda config: Weekly(config.weekday(), *_hour_and_minute(config))),
    "monthly": (
        ("day", "hour", "minute"),
        lambda config: Monthly(config.number("day", 1, 31), *_hour_and_minute(config)),
    ),
    "interval": (tuple(UNIT_SECONDS), lambda config: Interval(config.interval_seconds())),
    "cron": (("expression",), lambda config: CronLine(config.cron_expression())),
    "once": (("at",), lambda config: Once(config.moment())),
}
FREQUENCIES = tuple(_FREQUENCIES)

_WEEKDAY_SPELLINGS = {name: name for name in WEEKDAYS} | {name[:3]: name for name in WEEKDAYS}


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _iso_datetime(text: str) -> datetime | None:
    """None for anything else, including a date without a time: midnight must be explicit."""
    if len(text) <= len("2027-03-01"):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _did_you_mean(text: str, spellings: Callable[[], Mapping[str, str]]) -> str:
    known = spellings()
    close = get_close_matches(text[:_SHOWN_LENGTH].lower(), known, n=1)
    return f": did you mean '{known[close[0]]}'?" if close else ""


def _no_suggestion(text: str, spellings: Callable[[], Mapping[str, str]]) -> str:
    return ""


def _choices(names: Iterable[str]) -> str:
    return f" (known: {', '.join(names)})"


def _year_reason(value: datetime) -> str:
    return f"must be between the years {FIRST_YEAR} and {LAST_YEAR}, got {value.year}"


def _as_written(value: object) -> str:
    """The value as the user wrote it in JSON or Python, cut to a readable length."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, datetime):
        return f"'{value.isoformat()}'"
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write out integers of more than 4300 digits
        return "a huge number"
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"
