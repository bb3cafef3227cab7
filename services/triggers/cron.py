"""Cron expressions on a naive wall clock; the only module that imports cronsim.

cronsim parses the expression and matches days. It never sees a time zone: inside a repeated hour its daylight-saving
handling returns a past instant, so times.py applies one rule to all frequencies instead. cronsim does not search for
the next fire either: it steps by seconds or hours, about ten times slower than looking up the times of a day.
"""

from bisect import bisect_right
from datetime import date, timedelta

from cronsim import CronSim, CronSimError

from services.triggers.cron_advice import advice_for
from services.triggers.local_time import wall_datetime_of

_MAX_LENGTH = 200  # longer ones are not schedules; also keeps int() away from absurd numbers
_ALLOWED = {
    "second": "0-59",
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31 or L",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT, Sunday is 0 and 7",
}
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ANY_WALL = wall_datetime_of(0)
_DAY = 86_400
_ONE_DAY = timedelta(days=1)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_RAREST_YEARS = 40  # 29 February on a given weekday, across 2100; a date that does not occur in 40 years never does


class Cron:
    """A parsed expression of five fields, or six with seconds first; raises ValueError with the reason."""

    __slots__ = ("_minutes", "_seconds", "_sim", "expression")

    def __init__(self, expression: str) -> None:
        if len(expression) > _MAX_LENGTH:
            raise ValueError(f"must have at most {_MAX_LENGTH} characters, got {len(expression)}")
        if expression.lower() in _MACROS:
            raise ValueError(f"macros are not supported: write '{_MACROS[expression.lower()]}'")
        self.expression = " ".join(expression.upper().split())
        self._sim = sim = _simulator(self.expression)
        if sim is not None:
            self._minutes = sorted(hour * 3600 + minute * 60 for hour in sim.hours for minute in sim.minutes)
            self._seconds = sorted(sim.seconds)

    def after(self, wall: int) -> int | None:
        if self._sim is None:
            return None
        day, second = divmod(wall, _DAY)
        if self._runs_on(self._sim, _date_of(day)):
            time = self._time_after(second)
            if time is not None:
                return day * _DAY + time
        next_day = self._day_after(self._sim, day)
        return None if next_day is None else next_day * _DAY + self._minutes[0] + self._seconds[0]

    def _time_after(self, second: int) -> int | None:
        """The next time of the same day, in seconds since midnight."""
        index = bisect_right(self._minutes, second)
        if index:
            minute = self._minutes[index - 1]
            later = bisect_right(self._seconds, second - minute)
            if later < len(self._seconds):
                return minute + self._seconds[later]
        return self._minutes[index] + self._seconds[0] if index < len(self._minutes) else None

    def _day_after(self, sim: CronSim, day: int) -> int | None:
        candidate = _date_of(day + 1)
        last_year = candidate.year + _RAREST_YEARS
        while candidate.year <= last_year:
            if self._runs_on(sim, candidate):
                return candidate.toordinal() - _EPOCH_ORDINAL
            if candidate.month in sim.months:
                candidate += _ONE_DAY
            else:
                candidate = (candidate.replace(day=1) + 31 * _ONE_DAY).replace(day=1)
        return None

    def _runs_on(self, sim: CronSim, day: date) -> bool:
        return day.month in sim.months and sim.match_day(day)

    @property
    def runs_every_hour(self) -> bool:
        return self._sim is not None and len(self._sim.hours) == 24

    @property
    def follows_real_time(self) -> bool:
        """True for `*`, `*/2` … in the hour field: such a line means "every so often", not "at this time of day"."""
        return self.runs_every_hour or self._field(-4).startswith("*")

    @property
    def days_are_alternatives(self) -> bool | None:
        """With day-of-month and weekday both set: True if either suffices, False if both must match; otherwise None."""
        days, weekdays = self._field(-3), self._field(-1)
        if "*" in (days, weekdays):
            return None
        return not (days.startswith("*") or weekdays.startswith("*"))

    def _field(self, index: int) -> str:
        return self.expression.split()[index]


def _date_of(day: int) -> date:
    return date.fromordinal(_EPOCH_ORDINAL + day)


def _simulator(expression: str) -> CronSim | None:
    """None for a valid expression that never fires, such as 30 February (cronsim calls it a bad day)."""
    try:
        return CronSim(expression, _ANY_WALL)
    except CronSimError as error:
        fields = expression.split()
        if str(error) == "Bad day-of-month" and _is_valid([*fields[:-2], "*", fields[-1]]):
            return None
        raise ValueError(_reason(str(error), fields)) from None


def _is_valid(fields: list[str]) -> bool:
    try:
        CronSim(" ".join(fields), _ANY_WALL)
    except CronSimError:
        return False
    return True


def _reason(error: str, fields: list[str]) -> str:
    names = list(_ALLOWED)[-len(fields) :]
    name = error.removeprefix("Bad ")
    if len(fields) not in (5, 6) or name not in names:
        return f"must have 5 fields (minute hour day month weekday) or 6 with seconds first, got {len(fields)}"
    field = fields[names.index(name)]
    advice = advice_for(name, field)
    return f"bad {name} field '{field}'{f': {advice}' if advice else f' (allowed: {_ALLOWED[name]})'}"
