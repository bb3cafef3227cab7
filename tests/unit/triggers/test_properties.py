"""What holds for every trigger, whoever asks and from where; compared with clocks that are read minute by minute."""

import json
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from services.errors import InvalidSchedule
from services.triggers import FREQUENCIES, Trigger, parse_trigger
from services.triggers.cron import Cron
from services.triggers.local_time import (
    instant_of,
    local_clock,
    seconds_of,
    wall_datetime_of,
    wall_seconds_of,
    zone_names,
)

CLOSEST_CHANGES = ("Asia/Gaza", "America/Recife")  # two within seven days
ZONES = (
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kolkata", "Africa/Casablanca",
    "America/St_Johns", "UTC", "Asia/Tehran", "Antarctica/Troll", "America/Havana", "Pacific/Kwajalein",
    *CLOSEST_CHANGES,
)  # fmt: skip
FIRST, LAST = datetime(1980, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)

checked = settings(derandomize=True, deadline=None, max_examples=100)
checked_slowly = settings(derandomize=True, deadline=None, max_examples=50)


def reading(at: datetime, zone: str) -> datetime:
    return at.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)


def minutes_between(start: datetime, end: datetime) -> Iterator[datetime]:
    at = start.replace(second=0, microsecond=0)
    while (at := at + MINUTE) <= end:
        yield at


@cache
def clock_changes() -> list[tuple[str, datetime]]:
    """Every (zone, instant of a change), found without the code under test."""
    days = range((LAST - FIRST).days)
    return [
        (zone, FIRST + day * DAY + _minutes_until_change(zone, FIRST + day * DAY) * MINUTE)
        for zone in ZONES
        for day in days
        if _offset(zone, FIRST + day * DAY) != _offset(zone, FIRST + (day + 1) * DAY)
    ]


def _offset(zone: str, at: datetime) -> timedelta | None:
    return at.astimezone(ZoneInfo(zone)).utcoffset()


def _minutes_until_change(zone: str, midnight: datetime) -> int:
    before = _offset(zone, midnight)
    return bisect_left(range(1440), True, key=lambda minute: _offset(zone, midnight + minute * MINUTE) != before)


@dataclass(frozen=True)
class Case:
    """A definition, a starting instant, and the definition's meaning said a second time, as a predicate on readings."""

    frequency: str
    time_config: dict[str, Any]
    zone: str
    start: datetime
    matches: Callable[[datetime], bool]

    @property
    def trigger(self) -> Trigger:
        return parse_trigger(self.frequency, self.time_config, self.zone)


def moments() -> st.SearchStrategy[datetime]:
    return st.integers(0, int((LAST - FIRST).total_seconds()) * 10).map(lambda n: FIRST + n * timedelta(seconds=0.1))


@dataclass(frozen=True)
class Situation:
    zone: str
    start: datetime
    wall: datetime  # a time on the local clock that lies close ahead, or that a change of the clock may touch


@st.composite
def situations(draw: st.DrawFn, zones: tuple[str, ...] = ZONES) -> Situation:
    """Mostly around a change of the clock: there the bugs live, and random instants never meet it."""
    if draw(st.integers(0, 3)) == 0:
        zone, start = draw(st.sampled_from(zones)), draw(moments())
        return Situation(zone, start, reading(start, zone) + draw(st.integers(0, 1440)) * MINUTE)
    zone, change = draw(st.sampled_from([change for change in clock_changes() if change[0] in zones]))
    start = change + draw(st.integers(-120, 120) | st.integers(-1440, 1440)) * MINUTE
    return Situation(zone, start, reading(change, zone) + draw(st.integers(-120, 120)) * MINUTE)


def case_at(frequency: str, time_config: dict[str, Any], at: Situation, matches: Callable[[datetime], bool]) -> Case:
    return Case(frequency, time_config, at.zone, at.start, matches)


def same_time(t: datetime, wall: datetime) -> bool:
    return (t.hour, t.minute) == (wall.hour, wall.minute)


@st.composite
def daily(draw: st.DrawFn) -> Case:
    at = draw(situations())
    config = {"hour": at.wall.hour, "minute": at.wall.minute}
    return case_at("daily", config, at, lambda t: same_time(t, at.wall))


@st.composite
def weekly(draw: st.DrawFn) -> Case:
    at = draw(situations())
    day = at.wall.weekday()
    config = {"day": day, "hour": at.wall.hour, "minute": at.wall.minute}
    return case_at("weekly", config, at, lambda t: t.weekday() == day and same_time(t, at.wall))


@st.composite
def monthly(draw: st.DrawFn) -> Case:
    at = draw(situations())
    day = draw(st.sampled_from([at.wall.day, 31]))

    def matches(t: datetime) -> bool:
        return t.day == min(day, monthrange(t.year, t.month)[1]) and same_time(t, at.wall)

    return case_at("monthly", {"day": day, "hour": at.wall.hour, "minute": at.wall.minute}, at, matches)


@st.composite
def hourly(draw: st.DrawFn) -> Case:
    at = draw(situations() | situations(("Australia/Lord_Howe",)))  # it turns back half an hour every year
    return case_at("hourly", {"minute": at.wall.minute}, at, lambda t: t.minute == at.wall.minute)


@st.composite
def fixed_cron(draw: st.DrawFn) -> Case:
    at = draw(situations())
    hours = {at.wall.hour} | draw(st.sets(st.integers(0, 23), max_size=3))
    minutes = {at.wall.minute} | draw(st.sets(st.integers(0, 59), max_size=3))
    expression = f"{','.join(map(str, minutes))} {','.join(map(str, hours))} * * *"
    return case_at("cron", {"expression": expression}, at, lambda t: t.hour in hours and t.minute in minutes)


@st.composite
def wildcard_cron(draw: st.DrawFn) -> Case:
    at, step = draw(situations()), draw(st.integers(1, 5))
    days = {at.wall.isoweekday() % 7} | draw(st.sets(st.integers(0, 6)))
    expression = f"{at.wall.minute} */{step} * * {','.join(map(str, days))}"

    def matches(t: datetime) -> bool:
        return t.hour % step == 0 and t.minute == at.wall.minute and t.isoweekday() % 7 in days

    return case_at("cron", {"expression": expression}, at, matches)


@st.composite
def interval(draw: st.DrawFn) -> Case:
    units = st.dictionaries(st.sampled_from(["seconds", "minutes", "hours"]), st.integers(1, 5000), min_size=1)
    return case_at("interval", draw(units), draw(situations()), lambda t: False)


def day_rule_cases() -> st.SearchStrategy[Case]:
    return daily() | weekly() | monthly() | fixed_cron()


def all_cases() -> st.SearchStrategy[Case]:
    return day_rule_cases() | hourly() | wildcard_cron() | interval()


def walk(trigger: Trigger, start: datetime) -> Iterator[datetime]:
    fire = trigger.next_after(start)
    while fire is not None:
        yield fire
        fire = trigger.next_after(fire)


@checked
@given(all_cases())
def test_every_answer_is_later_than_the_question_in_utc_and_a_whole_second(case: Case) -> None:
    asked = case.start
    for fire in islice(walk(case.trigger, asked), 20):
        assert fire > asked
        assert fire.tzinfo is UTC
        assert fire.microsecond == 0
        asked = fire


@checked
@given(all_cases(), st.integers(0, 3 * 86_400))
def test_the_fires_do_not_depend_on_where_the_walk_began(case: Case, ahead: int) -> None:
    later = case.start + timedelta(seconds=ahead)
    horizon = later + 3 * DAY
    from_here = [fire for fire in case.trigger.between(case.start, horizon) if fire > later]
    assert from_here == list(case.trigger.between(later, horizon))


@checked
@given(all_cases(), st.lists(st.integers(-100_000, 100_000), max_size=20))
def test_a_remembered_answer_is_the_answer_of_a_fresh_trigger(case: Case, detours: list[int]) -> None:
    trigger = case.trigger
    for detour in detours:
        asked = case.start + timedelta(seconds=detour)
        at = trigger._fire_after(seconds_of(asked))
        assert trigger.next_after(asked) == (None if at is None else instant_of(at))


@checked
@given(all_cases())
def test_between_is_repeated_next_after(case: Case) -> None:
    found = list(islice(walk(case.trigger, case.start), 10))
    assume(found)
    assert list(case.trigger.between(case.start, found[-1])) == found


@checked
@given(all_cases())
def test_a_definition_survives_json(case: Case) -> None:
    assert parse_trigger(case.frequency, json.loads(json.dumps(case.time_config)), case.zone) is case.trigger


@checked_slowly
@given(day_rule_cases())
def test_a_time_of_day_fires_when_the_clock_first_reaches_it(case: Case) -> None:
    start, end = case.start, case.start + 2 * DAY
    expected = []
    reached = max(reading(at, case.zone) for at in minutes_between(start - 4 * HOUR, start))
    for at in minutes_between(start, end):
        now = reading(at, case.zone)
        if any(case.matches(passed) for passed in minutes_between(reached, now)):
            expected.append(at)
        reached = max(reached, now)
    assert list(case.trigger.between(start.replace(second=0, microsecond=0), end)) == expected


@checked_slowly
@given(wildcard_cron())
def test_a_wildcard_cron_fires_whenever_the_clock_reads_its_time(case: Case) -> None:
    end = case.start + 2 * DAY
    expected = [at for at in minutes_between(case.start, end) if case.matches(reading(at, case.zone))]
    assert list(case.trigger.between(case.start.replace(second=0, microsecond=0), end)) == expected


@checked_slowly
@given(hourly())
def test_an_hourly_minute_fires_once_per_reading_within_an_hour(case: Case) -> None:
    end = case.start + 2 * DAY
    seen: dict[datetime, datetime] = {}
    expected = []
    for at in minutes_between(case.start - 4 * HOUR, end):
        now = reading(at, case.zone)
        if case.matches(now) and at - seen.get(now, FIRST - DAY) >= HOUR:
            expected.append(at)
            seen[now] = at
    start = case.start.replace(second=0, microsecond=0)
    assert list(case.trigger.between(start, end)) == [at for at in expected if at > start]


@checked
@given(hourly())
def test_hourly_fires_lie_between_a_quarter_of_an_hour_and_two_hours_apart(case: Case) -> None:
    for one, next_one in pairwise(islice(walk(case.trigger, case.start), 60)):
        assert timedelta(minutes=15) <= next_one - one < timedelta(hours=2)


@checked
@given(daily())
def test_a_daily_trigger_fires_once_on_every_day_that_exists(case: Case) -> None:
    assume(case.zone not in ("Pacific/Apia", "Pacific/Kwajalein"))  # they skipped a day; see test_triggers.py
    fires = islice(walk(case.trigger, case.start), 40)
    days = [reading(fire, case.zone).date() for fire in fires]
    assert all(next_day - day == DAY for day, next_day in pairwise(days))


@checked
@given(monthly())
def test_a_monthly_trigger_fires_once_in_every_month(case: Case) -> None:
    assume(case.zone not in ("Pacific/Apia", "Pacific/Kwajalein"))
    days = [reading(fire, case.zone) for fire in islice(walk(case.trigger, case.start), 15)]
    months = [day.year * 12 + day.month for day in days]
    assert all(next_month - month == 1 for month, next_month in pairwise(months))


@checked
@given(interval(), moments() | st.none())
def test_an_interval_is_constant_and_anchored(case: Case, start_at: datetime | None) -> None:
    trigger = parse_trigger("interval", case.time_config, case.zone, start_at)
    step = timedelta(**case.time_config)
    fires = list(islice(walk(trigger, case.start), 10))
    assert all(next_fire - fire == step for fire, next_fire in pairwise(fires))
    if start_at is None:
        assert seconds_of(fires[0]) % step.total_seconds() == 0
    else:
        assert trigger.next_after(start_at - 2 * step) == trigger.next_after(start_at - timedelta(seconds=1))


@checked
@given(all_cases(), moments(), moments())
def test_no_fire_leaves_the_bounds(case: Case, start_at: datetime, end_at: datetime) -> None:
    assume(end_at - start_at > timedelta(seconds=1))
    trigger = parse_trigger(case.frequency, case.time_config, case.zone, start_at, end_at)
    first = trigger.next_after(FIRST - DAY)
    assert first is None or start_at <= first < end_at
    assert all(start_at <= fire < end_at for fire in trigger.between(end_at - HOUR, end_at + DAY))


@checked_slowly
@given(st.sampled_from(sorted(zone_names())), st.lists(moments(), min_size=1, max_size=50))
def test_a_clock_reads_what_zoneinfo_says(zone: str, instants: list[datetime]) -> None:
    clock = local_clock(zone)
    for instant in instants:
        at = seconds_of(instant)
        assert wall_datetime_of(at + clock.offset_at(at)) == reading(instant_of(at), zone)


@pytest.mark.parametrize("zone", ZONES)
def test_a_clock_knows_every_change(zone: str) -> None:
    found, at = [], seconds_of(FIRST)
    while (change := local_clock(zone).next_change(at, seconds_of(LAST))) is not None:
        found.append((zone, instant_of(change)))
        at = change
    assert found == [change for change in clock_changes() if change[0] == zone]


cron_numbers = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 7)}


@st.composite
def cron_field(draw: st.DrawFn, low: int, high: int, extra: tuple[str, ...] = ()) -> str:
    number = st.integers(low, high)
    spans = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.builds("{}/{}".format, st.just("*") | spans, st.integers(1, high))
    lists = st.lists(number, min_size=1, max_size=4).map(lambda some: ",".join(map(str, some)))
    return draw(st.just("*") | lists | spans | steps | st.sampled_from(extra or ("*",)))


@st.composite
def cron_expressions(draw: st.DrawFn) -> str:
    extras = {"day": ("L", "LW"), "weekday": ("mon", "5#2", "3L", "sun#5")}
    fields = [draw(cron_field(*bounds, extras.get(name, ()))) for name, bounds in cron_numbers.items()]
    seconds = draw(st.none() | cron_field(0, 59))
    return " ".join(fields if seconds is None else [seconds, *fields])


@checked
@given(cron_expressions(), moments())
def test_cron_on_a_wall_clock_gives_what_cronsim_gives(expression: str, moment: datetime) -> None:
    cron = Cron(expression)
    wall = moment.replace(tzinfo=None, microsecond=0)
    assume(cron.after(wall_seconds_of(wall)) is not None)
    expected = list(islice(CronSim(expression, wall), 5))
    found = [wall_seconds_of(wall)]
    for _ in expected:
        following = cron.after(found[-1])
        assert following is not None
        found.append(following)
    assert [wall_datetime_of(at) for at in found[1:]] == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | cron_expressions(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from(["hour", "minute", "day", "seconds", "days", "expression", "at"]) | st.text(max_size=8)


def read_or_refuse(frequency: str, time_config: Any, timezone: str) -> Trigger | InvalidSchedule:
    try:
        return parse_trigger(frequency, time_config, timezone)
    except InvalidSchedule as refusal:
        return refusal


@checked
@given(st.sampled_from(FREQUENCIES) | st.text(max_size=8), st.dictionaries(keys, json_values, max_size=4) | json_values)
def test_whatever_is_sent_is_read_or_refused(frequency: str, time_config: Any) -> None:
    answer = read_or_refuse(frequency, time_config, "UTC")
    if isinstance(answer, InvalidSchedule):
        assert answer.problems
    else:
        assert (answer.next_after(FIRST) or LAST) > FIRST


@checked
@given(st.text(alphabet="0123456789*/,-#L W@MONFRIJAN", max_size=30) | cron_expressions())
def test_any_text_as_cron_is_read_or_refused(expression: str) -> None:
    answer = read_or_refuse("cron", {"expression": expression}, "Europe/Berlin")
    if isinstance(answer, InvalidSchedule):
        assert [problem.field for problem in answer.problems] == ["time_config.expression"]
    else:
        assert (answer.next_after(FIRST) or LAST) > FIRST
