"""Local clocks: what a wall clock in a time zone reads at an instant, and when it first reads a given time.

All arithmetic is on whole seconds in plain integers: instants count from 1970 in UTC, walls count from 1970 on the
wall clock (02:00 on 1970-01-01 is 7200 in every zone). Start at LocalClock.first_reaches, the daylight-saving rule.
"""

import zoneinfo
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import metadata

# Two machines with different system tzdata would disagree about fire times, so only the pinned wheel is read.
# Zones that were loaded earlier came from the system and must not be served from the cache.
zoneinfo.reset_tzpath(to=())
zoneinfo.ZoneInfo.clear_cache()

FIRST_YEAR, LAST_YEAR = 1970, 2199  # the years that have fires; a bound lets a clock know all its changes beforehand
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WALL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  a wall clock has no zone
_DAY = 86_400

# No zone has changed its offset twice within 6.9 days since 1970 (tzdata 2026.6), so steps of 6 days miss no change.
_SCAN_STEP = timedelta(days=6)


@cache  # every heartbeat tells it: the heart must not read files
def tzdata_version() -> str:
    """The version of the time zone rules in use, to be compared between replicas."""
    return metadata.version("tzdata")


@cache
def zone_names() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def seconds_of(instant: datetime) -> int:
    """The whole second that contains `instant`; a naive datetime is not an instant and is refused."""
    if instant.tzinfo is not UTC and instant.utcoffset() is None:
        raise ValueError(f"a datetime without a time zone is not an instant: {instant!r}")
    elapsed = instant - _EPOCH
    return elapsed.days * _DAY + elapsed.seconds  # three times as fast as // timedelta(seconds=1)


def ceil_seconds_of(instant: datetime) -> int:
    """The first whole second that is not before `instant`."""
    return seconds_of(instant) + (instant.microsecond > 0)


def instant_of(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def wall_seconds_of(reading: datetime) -> int:
    elapsed = reading.replace(tzinfo=None) - _WALL_EPOCH
    return elapsed.days * _DAY + elapsed.seconds


def wall_datetime_of(wall: int) -> datetime:
    return _WALL_EPOCH + timedelta(seconds=wall)


END_OF_TIME = seconds_of(datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC))


class LocalClock:
    """The wall clock of one time zone; immutable, shared through `local_clock`.

    Between two changes the offset is constant: period i has `_offsets[i]` and ends at `_changes[i]`.
    """

    __slots__ = ("_changes", "_offsets", "_wall_ends", "_zone", "is_utc", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._zone = zoneinfo.ZoneInfo(name)
        self._changes = list(_changes(self._zone))
        self._offsets = [_offset(self._zone, at - 1) for at in [*self._changes, END_OF_TIME]]
        self._wall_ends = [at + offset for at, offset in zip(self._changes, self._offsets, strict=False)]
        self.is_utc = self._offsets == [0]

    def local(self, at: int) -> datetime:
        return datetime.fromtimestamp(at, self._zone)

    def offset_at(self, at: int) -> int:
        return self._offsets[bisect_right(self._changes, at)]

    def first_reaches(self, wall: int) -> int:
        """The first instant at which the clock reads `wall` or later.

        A skipped time (spring) therefore fires at the end of the gap, a repeated time (autumn) at its first occurrence.
        The result never decreases as `wall` grows, so the order of walls is preserved.
        """
        period = bisect_right(self._wall_ends, wall)
        at = wall - self._offsets[period]
        return max(at, self._changes[period - 1]) if period else at

    def next_change(self, after: int, until: int) -> int | None:
        """The first change of the offset in (after, until]."""
        index = bisect_right(self._changes, after)
        if index < len(self._changes) and self._changes[index] <= until:
            return self._changes[index]
        return None


@cache  # bounded by the number of zones: names are checked before they come here
def local_clock(name: str) -> LocalClock:
    return LocalClock(name)


def _changes(zone: zoneinfo.ZoneInfo) -> Iterator[int]:
    """Every instant at which the zone's offset changes; zoneinfo does not expose its own list."""
    if zone.utcoffset(None) is not None:  # a zone that never changed
        return
    probe, end = _EPOCH, instant_of(END_OF_TIME)
    offset = probe.astimezone(zone).utcoffset()
    while probe < end:
        probe += _SCAN_STEP
        if (new_offset := probe.astimezone(zone).utcoffset()) != offset:
            yield _change_within(zone, seconds_of(probe - _SCAN_STEP), seconds_of(probe))
            offset = new_offset


def _change_within(zone: zoneinfo.ZoneInfo, before: int, after: int) -> int:
    offset = _offset(zone, before)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(zone, middle) == offset:
            before = middle
        else:
            after = middle
    return after


def _offset(zone: zoneinfo.ZoneInfo, at: int) -> int:
    return wall_seconds_of(datetime.fromtimestamp(at, zone)) - at
