"""The schedule of one beat entry as our frequency and time_config; ValueError says why it has none.

Celery requires a day to match day_of_month and day_of_week, a cron line with both runs when either matches. Where
the two cannot be made to mean the same, the entry is refused: a schedule that fires on other days is worse than none.
"""

from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Any

ALL_DAYS, ALL_WEEKDAYS = frozenset(range(1, 32)), frozenset(range(7))
DAYS_OF_A_WEEK = 7
Timing = tuple[str, dict[str, Any]]


def timing_of(schedule: Any) -> Timing:
    from celery import schedules

    if getattr(schedule, "nowfun", None) is not None:
        raise ValueError("its nowfun replaces the clock, which no schedule of ours can do")
    if type(schedule) is schedules.crontab:
        return "cron", {"expression": cron_expression(schedule)}
    if type(schedule) is schedules.schedule:
        return "interval", {"seconds": _whole_seconds(schedule.run_every)}
    if isinstance(schedule, schedules.solar):
        raise ValueError(f"solar schedules ({schedule.event}) depend on a place; there is nothing like it here")
    raise ValueError(f"{type(schedule).__module__}.{type(schedule).__qualname__} is a class of its own making")


def cron_expression(crontab: Any) -> str:
    days, weekdays = _days(crontab)
    return " ".join(
        (
            field(crontab.minute, 0, 59, crontab._orig_minute),
            field(crontab.hour, 0, 23, crontab._orig_hour),
            days,
            field(crontab.month_of_year, 1, 12, crontab._orig_month_of_year),
            weekdays,
        )
    )


def _days(crontab: Any) -> tuple[str, str]:
    days = field(crontab.day_of_month, 1, 31, crontab._orig_day_of_month)
    weekdays = field(crontab.day_of_week, 0, 6, crontab._orig_day_of_week)
    if days.startswith("*") or weekdays.startswith("*"):  # then our cron requires both, too
        return days, weekdays
    for week in range(5):
        first = week * DAYS_OF_A_WEEK + 1
        if crontab.day_of_month == ALL_DAYS & set(range(first, first + DAYS_OF_A_WEEK)):
            return "*", ",".join(f"{day}#{week + 1}" for day in sorted(crontab.day_of_week))
    raise ValueError(
        f"day_of_month={days} and day_of_week={weekdays} must both match in Celery; a cron line with both runs when "
        "either matches"
    )


def field(values: Collection[int], low: int, high: int, written: object) -> str:
    """As short as possible. `*/n` only where the user wrote it: for hours it decides what a DST night means."""
    numbers = sorted(values)
    if len(numbers) == high - low + 1:
        return "*"
    if isinstance(written, str) and written.startswith("*") and len(numbers) > 1:
        step = numbers[1] - numbers[0]
        if numbers == list(range(low, high + 1, step)):
            return f"*/{step}"
    return ",".join(_ranges(numbers))


def _ranges(numbers: list[int]) -> Iterator[str]:
    start = 0
    for place in range(1, len(numbers) + 1):
        if place < len(numbers) and numbers[place] == numbers[place - 1] + 1:
            continue
        run = numbers[start:place]
        yield from [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
        start = place


def _whole_seconds(every: timedelta) -> int:
    seconds = every.total_seconds()
    if seconds < 1 or not seconds.is_integer():
        raise ValueError(f"every {seconds:g} s: an interval here is a whole number of seconds")
    return int(seconds)
