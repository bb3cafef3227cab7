"""Quiet hours and digests: when a message is due, on local clocks. Pure.

A time of day is the first instant at which the clock reads it or later, as for schedules: one that is skipped in spring
comes at the end of the gap, one that is repeated in autumn at its first occurrence.
"""

from datetime import datetime

from services.notifications.rule_fields import DAYS, RuleSpec
from services.triggers.local_time import LocalClock, ceil_seconds_of, instant_of, local_clock, seconds_of

DAY, WEEK = 86_400, 7 * 86_400
DAY_OF_THE_EPOCH = 3  # 1970-01-01 was a Thursday


def quiet_until(rule: RuleSpec, at: datetime) -> datetime | None:
    """The end of the quiet hours that `at` is in."""
    if rule.quiet_from is None or rule.quiet_to is None:
        return None
    clock, seconds = local_clock(rule.quiet_timezone), seconds_of(at)
    begin, end = _of_day(rule.quiet_from), _of_day(rule.quiet_to)
    today = (seconds + clock.offset_at(seconds)) // DAY * DAY
    for day in (today - DAY, today):
        begins = clock.first_reaches(day + begin)
        ends = clock.first_reaches(day + end + (DAY if end < begin else 0))
        if begins <= seconds < ends:
            return instant_of(ends)
    return None


def digest_due(rule: RuleSpec, at: datetime) -> datetime | None:
    """The next digest at or after `at`; None for a rule without digests."""
    if rule.digest == "none":
        return None
    clock, seconds, period = local_clock(rule.digest_timezone), ceil_seconds_of(at), DAY
    wall = seconds + clock.offset_at(seconds)
    first = wall // DAY * DAY - DAY + _of_day(rule.digest_at)
    if rule.digest == "weekly":
        period = WEEK
        first -= ((first // DAY + DAY_OF_THE_EPOCH - DAYS.index(rule.digest_day)) % 7) * DAY
    return instant_of(_first_at_or_after(clock, first, period, seconds))


def _first_at_or_after(clock: LocalClock, wall: int, period: int, seconds: int) -> int:
    while (found := clock.first_reaches(wall)) < seconds:
        wall += period
    return found


def _of_day(time: str) -> int:
    hour, _, minute = time.partition(":")
    return int(hour) * 3600 + int(minute) * 60
