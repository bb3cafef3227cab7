"""Fire times as ascending sequences of whole seconds: patterns, and the two rules that map them to a local clock.

Every sequence has one method, `after(t)`: the first member greater than t, or None. The members are a fixed set, so
the result never depends on earlier calls.
"""

from calendar import monthrange
from dataclasses import dataclass
from datetime import date
from typing import Protocol, assert_never

from services.triggers.cron import Cron
from services.triggers.definition import CronLine, Daily, Definition, Hourly, Interval, Monthly, Once, Timing, Weekly
from services.triggers.local_time import LocalClock, local_clock

_HOUR, _DAY, _WEEK = 3_600, 86_400, 7 * 86_400
_EPOCH_WEEKDAY = date(1970, 1, 1).weekday()
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()


class Times(Protocol):
    def after(self, seconds: int, /) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Every:
    period: int
    phase: int

    def after(self, seconds: int) -> int:
        return seconds + self.period - (seconds - self.phase) % self.period


@dataclass(frozen=True, slots=True)
class OnDayOfMonth:
    day: int  # 29 to 31 mean the last day of a month that is too short
    time_of_day: int

    def after(self, seconds: int) -> int:
        today = date.fromordinal(_EPOCH_ORDINAL + seconds // _DAY)
        this_month = self._in_month(today.year, today.month)
        if this_month > seconds:
            return this_month
        return self._in_month(today.year + today.month // 12, today.month % 12 + 1)

    def _in_month(self, year: int, month: int) -> int:
        day = min(self.day, monthrange(year, month)[1])
        return (date(year, month, day).toordinal() - _EPOCH_ORDINAL) * _DAY + self.time_of_day


@dataclass(frozen=True, slots=True)
class At:
    at: int

    def after(self, seconds: int) -> int | None:
        return self.at if self.at > seconds else None


@dataclass(frozen=True, slots=True)
class OncePerReading:
    """Time of day: each wall time fires once, when the clock first reaches it. Several in one gap fire once."""

    walls: Times
    clock: LocalClock

    def after(self, seconds: int) -> int | None:
        wall = self.walls.after(seconds + self.clock.offset_at(seconds))
        while wall is not None:
            at = self.clock.first_reaches(wall)
            if at > seconds:
                return at
            wall = self.walls.after(wall)  # second pass of a repeated hour: this wall has already fired
        return None


@dataclass(frozen=True, slots=True)
class WheneverTheClockReads:
    """Real time: fires at every instant at which the clock shows a wall time, so twice in a repeated hour."""

    walls: Times
    clock: LocalClock

    def after(self, seconds: int) -> int | None:
        offset = self.clock.offset_at(seconds)
        wall = self.walls.after(seconds + offset)
        while wall is not None:
            at = wall - offset
            change = self.clock.next_change(seconds, at)
            if change is None:
                return at
            seconds, offset = change, self.clock.offset_at(change)
            wall = self.walls.after(seconds + offset - 1)  # the instant of the change itself may be a fire
        return None


@dataclass(frozen=True, slots=True)
class HourlyByTheClock:
    """Real time, but a minute that repeats within an hour (Lord Howe turns back 30 minutes) fires once."""

    readings: WheneverTheClockReads

    def after(self, seconds: int) -> int | None:
        at = self.readings.after(seconds)
        while at is not None and self._is_a_repetition(at):
            at = self.readings.after(at)
        return at

    def _is_a_repetition(self, at: int) -> bool:
        clock = self.readings.clock
        earlier_offset = clock.offset_at(at - _HOUR + 1)
        turned_back = earlier_offset - clock.offset_at(at)
        return 0 < turned_back < _HOUR and clock.offset_at(at - turned_back) == earlier_offset


def fire_times(definition: Definition) -> Times:
    """The fires of a definition, before `start` and `end` cut them."""
    walls, clock = pattern(definition.timing, definition.start), local_clock(definition.timezone)
    if clock.is_utc or isinstance(definition.timing, Interval | Once):
        return walls
    if isinstance(definition.timing, Hourly):
        return HourlyByTheClock(WheneverTheClockReads(walls, clock))
    if isinstance(walls, Cron) and walls.follows_real_time:
        return WheneverTheClockReads(walls, clock)
    return OncePerReading(walls, clock)


def pattern(timing: Timing, start: int | None = None) -> Times:
    """The times on a wall clock; in UTC for intervals and single moments, which do not depend on one."""
    match timing:
        case Hourly(minute):
            return Every(_HOUR, minute * 60)
        case Daily(hour, minute):
            return Every(_DAY, hour * _HOUR + minute * 60)
        case Weekly(day, hour, minute):
            return Every(_WEEK, (day - _EPOCH_WEEKDAY) * _DAY + hour * _HOUR + minute * 60)
        case Monthly(day, hour, minute):
            return OnDayOfMonth(day, hour * _HOUR + minute * 60)
        case Interval(seconds):
            return Every(seconds, start or 0)  # anchored, never at process start: all replicas agree
        case CronLine(expression):
            return Cron(expression)
        case Once(at):
            return At(at)
        case _:
            assert_never(timing)
