"""A trigger in words: a description, and warnings about behaviour that may surprise its author."""

from collections.abc import Iterator
from typing import assert_never

from services.triggers.cron import Cron
from services.triggers.definition import (
    UNIT_SECONDS,
    WEEKDAYS,
    CronLine,
    Daily,
    Definition,
    Hourly,
    Interval,
    Monthly,
    Once,
    Timing,
    Weekly,
)
from services.triggers.local_time import LocalClock, local_clock, wall_datetime_of
from services.triggers.times import Times, pattern


def describe(definition: Definition) -> str:
    clock = local_clock(definition.timezone)
    words = _describe_timing(definition.timing, clock)
    if definition.start is not None:
        words += f" from {_moment(clock, definition.start)}"
    if definition.end is not None:
        words += f" until {_moment(clock, definition.end)}"
    return words


def _describe_timing(timing: Timing, clock: LocalClock) -> str:
    match timing:
        case Hourly(minute):
            return f"every hour at minute {minute} ({clock.name})"
        case Daily(hour, minute):
            return f"daily at {hour:02}:{minute:02} {clock.name}"
        case Weekly(day, hour, minute):
            return f"every {WEEKDAYS[day].title()} at {hour:02}:{minute:02} {clock.name}"
        case Monthly(day, hour, minute):
            fallback = " (or the month's last day)" if day > 28 else ""
            return f"monthly on day {day}{fallback} at {hour:02}:{minute:02} {clock.name}"
        case Interval(seconds):
            return f"every {_duration(seconds)}"
        case CronLine(expression):
            return f"cron {expression} ({clock.name})"
        case Once(at):
            return f"once at {_moment(clock, at)} ({clock.name})"
        case _:
            assert_never(timing)


def _duration(seconds: int) -> str:
    """`day`, `15 minutes`, `1 hour 30 minutes`."""
    parts: list[tuple[int, str]] = []
    for unit, size in UNIT_SECONDS.items():
        count, seconds = divmod(seconds, size)
        if count:
            parts.append((count, unit if count > 1 else unit.removesuffix("s")))
    if len(parts) == 1 and parts[0][0] == 1:
        return parts[0][1]
    return " ".join(f"{count} {unit}" for count, unit in parts)


def _moment(clock: LocalClock, at: int) -> str:
    moment = clock.local(at)
    return moment.isoformat(sep=" ", timespec="seconds" if moment.second else "minutes")


def lasting_warnings(definition: Definition) -> list[str]:
    """Warnings about the definition itself, independent of the date."""
    match definition.timing:
        case Monthly(day=day) if day > 28:
            return [f"day {day} does not exist in every month: in shorter months it runs on the last day"]
        case CronLine(expression):
            alternatives = Cron(expression).days_are_alternatives
            if alternatives is None:
                return []
            rule = "when either matches" if alternatives else "only when both match, because one begins with *"
            return [f"day-of-month and weekday are both set: it runs {rule}"]
        case _:
            return []


def clock_change_warnings(definition: Definition, since: int, until: int) -> Iterator[str]:
    """One line per clock change in (since, until] that skips or repeats a time of the definition."""
    clock = local_clock(definition.timezone)
    since, until = max(since, definition.first), min(until, definition.limit)
    consequences = _consequences(definition.timing)
    if consequences is None:
        return
    walls = pattern(definition.timing)
    while (change := clock.next_change(since, until)) is not None:
        yield from _effect(walls, clock, change, consequences)
        since = change


def _consequences(timing: Timing) -> tuple[str, str] | None:
    """The effect on a skipped and on a repeated time; None where a clock change is no surprise."""
    if isinstance(timing, Hourly | Interval | Once):
        return None
    if isinstance(timing, CronLine) and (cron := Cron(timing.expression)).follows_real_time:
        return None if cron.runs_every_hour else ("is skipped", "runs both times")
    return "runs at {}", "runs once, at the first occurrence"


def _effect(walls: Times, clock: LocalClock, change: int, consequences: tuple[str, str]) -> Iterator[str]:
    before, after = change + clock.offset_at(change - 1), change + clock.offset_at(change)
    affected = list(_members(walls, min(before, after), max(before, after)))
    if not affected:
        return
    first, resumed = wall_datetime_of(affected[0]), wall_datetime_of(after)
    times = f"{first:%H:%M}" + (f" (and {len(affected) - 1} more)" if len(affected) > 1 else "")
    when = f"{resumed:%H:%M} that day" if resumed.date() == first.date() else f"{resumed:%H:%M on %Y-%m-%d}"
    if after > before:
        yield f"{times} does not exist on {first:%Y-%m-%d} in {clock.name}: {consequences[0].format(when)}"
    else:
        yield f"{times} occurs twice on {first:%Y-%m-%d} in {clock.name}: {consequences[1]}"


def _members(walls: Times, start: int, end: int) -> Iterator[int]:
    wall = walls.after(start - 1)
    while wall is not None and wall < end:
        yield wall
        wall = walls.after(wall)
