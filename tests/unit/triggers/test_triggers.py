"""What each frequency means, what is refused and with which words, and what two processes agree on."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from services.errors import InvalidSchedule
from services.triggers import Trigger, parse_trigger, spread_offset, stored_trigger, trigger_of, tzdata_version

ROOT = Path(__file__).parents[3]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(trigger: Trigger, after: str, count: int) -> list[str]:
    """The next `count` fires as readable UTC times."""
    found: list[str] = []
    fire = trigger.next_after(utc(after))
    while fire is not None and len(found) < count:
        found.append(f"{fire:%Y-%m-%d %H:%M:%S}".removesuffix(":00"))
        fire = trigger.next_after(fire)
    return found


@pytest.mark.parametrize(
    ("frequency", "time_config", "timezone", "after", "expected"),
    [
        ("hourly", {}, "UTC", "2026-01-01 10:00", ["2026-01-01 11:00", "2026-01-01 12:00"]),
        ("hourly", {"minute": 15}, "Asia/Kolkata", "2026-01-01 10:00", ["2026-01-01 10:45", "2026-01-01 11:45"]),
        ("daily", {"hour": 2, "minute": 0}, "UTC", "2026-01-01 02:00", ["2026-01-02 02:00", "2026-01-03 02:00"]),
        ("daily", {"hour": 2}, "America/New_York", "2026-01-01 02:00", ["2026-01-01 07:00", "2026-01-02 07:00"]),
        ("weekly", {"day": "monday", "hour": 2}, "UTC", "2026-01-01", ["2026-01-05 02:00", "2026-01-12 02:00"]),
        ("weekly", {"day": 6, "hour": 0}, "UTC", "2026-01-01", ["2026-01-04 00:00", "2026-01-11 00:00"]),
        ("monthly", {"day": 31, "hour": 2}, "UTC", "2027-01-31 02:00", ["2027-02-28 02:00", "2027-03-31 02:00"]),
        ("monthly", {"day": 29, "hour": 2}, "UTC", "2028-02-01", ["2028-02-29 02:00", "2028-03-29 02:00"]),
        ("monthly", {"day": 1, "hour": 0}, "UTC", "2026-12-15", ["2027-01-01 00:00", "2027-02-01 00:00"]),
        ("interval", {"minutes": 15}, "UTC", "2026-01-01 10:07", ["2026-01-01 10:15", "2026-01-01 10:30"]),
        ("interval", {"hours": 1, "minutes": 30}, "UTC", "2026-01-01", ["2026-01-01 01:30", "2026-01-01 03:00"]),
        ("interval", {"seconds": 1}, "UTC", "2026-01-01", ["2026-01-01 00:00:01", "2026-01-01 00:00:02"]),
        ("cron", {"expression": "0 2 * * 1"}, "UTC", "2026-01-01", ["2026-01-05 02:00", "2026-01-12 02:00"]),
        ("cron", {"expression": "0 2 * * sun"}, "UTC", "2026-01-01", ["2026-01-04 02:00", "2026-01-11 02:00"]),
        ("cron", {"expression": "30 59 23 L * *"}, "UTC", "2026-02-01", ["2026-02-28 23:59:30", "2026-03-31 23:59:30"]),
        ("cron", {"expression": "0 0 13 * 5"}, "UTC", "2026-02-07", ["2026-02-13 00:00", "2026-02-20 00:00"]),
        ("once", {"at": "2026-03-01T02:00:00+01:00"}, "UTC", "2026-01-01", ["2026-03-01 01:00"]),
        ("once", {"at": "2026-03-01T02:00"}, "Europe/Berlin", "2026-01-01", ["2026-03-01 01:00"]),
        ("once", {"at": "2026-03-01T02:00:00.999Z"}, "UTC", "2026-01-01", ["2026-03-01 02:00"]),
        ("once", {"at": utc("2026-03-01 02:00")}, "Europe/Berlin", "2026-01-01", ["2026-03-01 02:00"]),
    ],
)
def test_each_frequency_fires_when_its_words_say(
    frequency: str, time_config: dict[str, Any], timezone: str, after: str, expected: list[str]
) -> None:
    assert fires(parse_trigger(frequency, time_config, timezone), after, 2) == expected


@pytest.mark.parametrize(
    ("frequency", "time_config", "after", "expected"),
    [
        # spring: 02:00 -> 03:00 on 2027-03-28, at 01:00 UTC
        ("daily", {"hour": 2, "minute": 30}, "2027-03-27 12:00", ["2027-03-28 01:00", "2027-03-29 00:30"]),
        ("daily", {"hour": 2, "minute": 0}, "2027-03-27 12:00", ["2027-03-28 01:00", "2027-03-29 00:00"]),
        ("weekly", {"day": "sun", "hour": 2}, "2027-03-27 12:00", ["2027-03-28 01:00", "2027-04-04 00:00"]),
        ("monthly", {"day": 28, "hour": 2}, "2027-03-27 12:00", ["2027-03-28 01:00", "2027-04-28 00:00"]),
        ("cron", {"expression": "*/15 2 * * *"}, "2027-03-27 12:00", ["2027-03-28 01:00", "2027-03-29 00:00"]),
        ("cron", {"expression": "0 2,3 * * *"}, "2027-03-27 12:00", ["2027-03-28 01:00", "2027-03-29 00:00"]),
        ("cron", {"expression": "0 */2 * * *"}, "2027-03-27 23:00", ["2027-03-28 02:00", "2027-03-28 04:00"]),
        ("hourly", {"minute": 30}, "2027-03-28 00:00", ["2027-03-28 00:30", "2027-03-28 01:30"]),
        # autumn: 03:00 -> 02:00 on 2026-10-25, at 01:00 UTC
        ("daily", {"hour": 2, "minute": 30}, "2026-10-24 12:00", ["2026-10-25 00:30", "2026-10-26 01:30"]),
        ("daily", {"hour": 2, "minute": 45}, "2026-10-25 01:10", ["2026-10-26 01:45", "2026-10-27 01:45"]),
        ("cron", {"expression": "*/30 2 * * *"}, "2026-10-25 00:30", ["2026-10-26 01:00", "2026-10-26 01:30"]),
        ("cron", {"expression": "0 0-23 * * *"}, "2026-10-25 00:00", ["2026-10-25 01:00", "2026-10-25 02:00"]),
        ("cron", {"expression": "*/30 * * * *"}, "2026-10-25 00:30", ["2026-10-25 01:00", "2026-10-25 01:30"]),
        ("hourly", {"minute": 30}, "2026-10-25 00:00", ["2026-10-25 00:30", "2026-10-25 01:30"]),
        ("once", {"at": "2027-03-28T02:30"}, "2026-01-01", ["2027-03-28 01:00"]),
        ("once", {"at": "2026-10-25T02:30"}, "2026-01-01", ["2026-10-25 00:30"]),
    ],
)  # fmt: skip
def test_a_clock_change_in_berlin_is_met_by_one_rule(
    frequency: str, time_config: dict[str, Any], after: str, expected: list[str]
) -> None:
    assert fires(parse_trigger(frequency, time_config, "Europe/Berlin"), after, 2) == expected


@pytest.mark.parametrize(
    ("timezone", "frequency", "time_config", "after", "expected"),
    [
        # the gap begins at 00:01 and has two hours
        ("America/St_Johns", "daily", {"hour": 1}, "1988-04-02 12:00", ["1988-04-03 03:31", "1988-04-04 02:30"]),
        # half an hour forward, half an hour back
        ("Australia/Lord_Howe", "hourly", {"minute": 15}, "2026-10-03 14:40", ["2026-10-03 14:45", "2026-10-03 16:15"]),
        ("Australia/Lord_Howe", "hourly", {"minute": 45}, "2026-10-03 15:00", ["2026-10-03 15:15", "2026-10-03 15:45"]),
        ("Australia/Lord_Howe", "hourly", {"minute": 45}, "2027-04-03 14:00", ["2027-04-03 14:45", "2027-04-03 16:15"]),
        # a day that the island skipped
        ("Pacific/Apia", "daily", {"hour": 2}, "2011-12-29 12:00", ["2011-12-30 10:00", "2011-12-30 12:00"]),
        ("Pacific/Apia", "daily", {"hour": 0}, "2011-12-29 10:00", ["2011-12-30 10:00", "2011-12-31 10:00"]),
        ("Pacific/Apia", "weekly", {"day": "fri", "hour": 9}, "2011-12-29", ["2011-12-30 10:00", "2012-01-05 19:00"]),
        ("Pacific/Kwajalein", "daily", {"hour": 2}, "1993-08-20 14:00", ["1993-08-21 12:00", "1993-08-21 14:00"]),
    ],
)
def test_stranger_clock_changes_are_met_by_the_same_rule(
    timezone: str, frequency: str, time_config: dict[str, Any], after: str, expected: list[str]
) -> None:
    assert fires(parse_trigger(frequency, time_config, timezone), after, 2) == expected


def test_the_29th_of_february_is_found_across_2100() -> None:
    trigger = parse_trigger("cron", {"expression": "0 0 29 2 *"})
    assert fires(trigger, "2096-02-29", 2) == ["2104-02-29 00:00", "2108-02-29 00:00"]


def test_the_rarest_day_is_found_after_forty_years() -> None:
    fifth_monday_of_february = parse_trigger("cron", {"expression": "0 0 * 2 mon#5"})
    assert fires(fifth_monday_of_february, "2072-03-01", 2) == ["2112-02-29 00:00", "2140-02-29 00:00"]


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4,6 *", "* * * 31 2 *", "0 0 */15 2 mon#5"])
@pytest.mark.parametrize("timezone", ["UTC", "Europe/Berlin"])
def test_a_cron_that_never_comes_answers_none_and_says_so(expression: str, timezone: str) -> None:
    trigger = parse_trigger("cron", {"expression": expression}, timezone)
    assert trigger.next_after(utc("2026-01-01")) is None
    assert trigger.warnings() == ["never fires"]


def test_once_in_the_past_has_no_further_fire() -> None:
    trigger = parse_trigger("once", {"at": "2026-01-01T00:00:00Z"})
    assert trigger.next_after(utc("2026-01-01 00:00")) is None
    assert trigger.warnings(utc("2026-01-01 00:00")) == ["has no fire after 2026-01-01 00:00:00+00:00"]


@pytest.mark.parametrize("frequency", ["daily", "once"])
def test_a_naive_datetime_is_no_instant(frequency: str) -> None:
    trigger = parse_trigger(frequency, {"hour": 2} if frequency == "daily" else {"at": "2026-01-01T00:00Z"})
    naive = datetime(2026, 1, 1)  # noqa: DTZ001
    with pytest.raises(ValueError, match="without a time zone"):
        trigger.next_after(naive)
    with pytest.raises(ValueError, match="without a time zone"):
        trigger.between(utc("2025-01-01"), naive)


def test_microseconds_are_part_of_the_question_and_never_of_the_answer() -> None:
    trigger = parse_trigger("interval", {"seconds": 10})
    just_before = utc("2026-01-01 00:00:09.999999")
    assert trigger.next_after(just_before) == utc("2026-01-01 00:00:10")
    assert trigger.next_after(just_before + timedelta(microseconds=2)) == utc("2026-01-01 00:00:20")


def test_an_instant_in_another_zone_is_the_same_question() -> None:
    trigger = parse_trigger("daily", {"hour": 2, "minute": 30}, "Europe/Berlin")
    second_pass = datetime(2026, 10, 25, 2, 15, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    answer = trigger.next_after(second_pass)
    assert answer == trigger.next_after(utc("2026-10-25 01:15")) == utc("2026-10-26 01:30")
    assert answer is not None
    assert answer.tzinfo is UTC


def test_the_ends_of_the_calendar_are_answers() -> None:
    trigger = parse_trigger("daily", {"hour": 2}, "Europe/Berlin")
    assert trigger.next_after(datetime.min.replace(tzinfo=UTC)) == utc("1970-01-01 01:00")
    assert trigger.next_after(datetime.max.replace(tzinfo=UTC)) is None
    assert trigger.next_after(utc("2199-12-31 23:00")) is None


def test_start_at_is_included_and_end_at_is_not() -> None:
    start_at, end_at = utc("2026-01-05 02:00"), utc("2026-01-07 02:00")
    trigger = parse_trigger("daily", {"hour": 2}, "UTC", start_at, end_at)
    assert fires(trigger, "2025-01-01", 9) == ["2026-01-05 02:00", "2026-01-06 02:00"]


def test_a_start_between_two_seconds_begins_with_the_later_one() -> None:
    trigger = parse_trigger("interval", {"seconds": 10}, "UTC", utc("2026-01-01 00:00:00.000001"))
    assert fires(trigger, "2025-01-01", 2) == ["2026-01-01 00:00:01", "2026-01-01 00:00:11"]


def test_an_interval_is_anchored_at_its_start_or_at_the_epoch() -> None:
    every_week = {"days": 7}
    assert fires(parse_trigger("interval", every_week), "2026-01-01", 1) == ["2026-01-08 00:00"]
    anchored = parse_trigger("interval", every_week, start_at=utc("2025-12-30 09:30"))
    assert fires(anchored, "2026-01-01", 1) == ["2026-01-06 09:30"]


def test_an_end_in_the_year_9999_means_no_end() -> None:
    assert parse_trigger("daily", {"hour": 2}, end_at=utc("9999-12-31")) is parse_trigger("daily", {"hour": 2})


def test_between_excludes_its_beginning_and_includes_its_end() -> None:
    trigger = parse_trigger("hourly", {})
    found = list(trigger.between(utc("2026-01-01 10:00"), utc("2026-01-01 12:00")))
    assert found == [utc("2026-01-01 11:00"), utc("2026-01-01 12:00")]


def test_between_is_lazy() -> None:
    every_second = parse_trigger("interval", {"seconds": 1})
    assert next(every_second.between(utc("1990-01-01"), utc("2190-01-01"))) == utc("1990-01-01 00:00:01")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("daily", {"hour": 2, "minute": 0}), ("daily", {"minute": 0, "hour": 2})),
        (("daily", {"hour": 2, "minute": 0}), ("daily", {"hour": 2})),
        (("weekly", {"day": "Monday", "hour": 2}), ("weekly", {"day": 0, "hour": 2})),
        (("weekly", {"day": "SUN", "hour": 2}), ("weekly", {"day": "sunday", "hour": 2})),
        (("interval", {"minutes": 15}), ("interval", {"seconds": 900})),
        (("cron", {"expression": "0  2 * * mon"}), ("cron", {"expression": " 0 2 * * MON"})),
        (("once", {"at": "2026-01-01T02:00+01:00"}), ("once", {"at": utc("2026-01-01 01:00")})),
    ],
)
def test_two_spellings_of_one_definition_share_one_trigger(
    one: tuple[str, Mapping[str, Any]], other: tuple[str, Mapping[str, Any]]
) -> None:
    assert parse_trigger(*one) is parse_trigger(*other)


def test_different_definitions_share_nothing() -> None:
    triggers = [
        parse_trigger("daily", {"hour": 2}),
        parse_trigger("daily", {"hour": 2}, "Europe/Berlin"),
        parse_trigger("daily", {"hour": 2}, start_at=utc("2026-01-01")),
        parse_trigger("daily", {"hour": 2}, end_at=utc("2026-01-01")),
        parse_trigger("cron", {"expression": "0 2 * * *"}),
    ]
    assert len(set(triggers)) == len(triggers)


def test_threads_that_parse_and_ask_at_once_get_one_trigger_and_right_answers() -> None:
    expected = fires(parse_trigger("cron", {"expression": "7 3 * * *"}, "Asia/Tehran"), "2026-01-01", 300)
    triggers: list[Trigger] = []
    answers: list[list[str]] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        trigger = parse_trigger("cron", {"expression": "7 3 * * *"}, "Asia/Tehran")
        triggers.append(trigger)
        answers.append(fires(trigger, "2026-01-01", 300))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(trigger) for trigger in triggers}) == 1
    assert answers == [expected] * 8


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("hourly", {"minute": 5}, "Asia/Kolkata"), "every hour at minute 5 (Asia/Kolkata)"),
        (("daily", {"hour": 2}), "daily at 02:00 UTC"),
        (("weekly", {"day": 0, "hour": 2}, "Europe/Berlin"), "every Monday at 02:00 Europe/Berlin"),
        (("monthly", {"day": 1, "hour": 2}), "monthly on day 1 at 02:00 UTC"),
        (("monthly", {"day": 31, "hour": 2}), "monthly on day 31 (or the month's last day) at 02:00 UTC"),
        (("interval", {"minutes": 15}), "every 15 minutes"),
        (("interval", {"seconds": 3600}), "every hour"),
        (("interval", {"minutes": 90, "seconds": 1}), "every 1 hour 30 minutes 1 second"),
        (("cron", {"expression": "0 2 * * mon"}), "cron 0 2 * * MON (UTC)"),
        (("once", {"at": "2026-03-01T02:00"}, "Europe/Berlin"), "once at 2026-03-01 02:00+01:00 (Europe/Berlin)"),
        (
            ("interval", {"days": 1}, "Europe/Berlin", utc("2026-01-01"), utc("2026-07-01 00:00:05")),
            "every day from 2026-01-01 01:00+01:00 until 2026-07-01 02:00:05+02:00",
        ),
    ],
)
def test_a_trigger_describes_itself(arguments: tuple[Any, ...], expected: str) -> None:
    assert parse_trigger(*arguments).describe() == expected


@pytest.mark.parametrize(
    ("arguments", "since", "expected"),
    [
        (("daily", {"hour": 2, "minute": 30}), "2026-11-01", []),
        (("daily", {"hour": 4}, "Europe/Berlin"), "2026-11-01", []),
        (
            ("daily", {"hour": 2, "minute": 30}, "Europe/Berlin"),
            "2026-11-01",
            [
                "02:30 does not exist on 2027-03-28 in Europe/Berlin: runs at 03:00 that day",
                "02:30 occurs twice on 2027-10-31 in Europe/Berlin: runs once, at the first occurrence",
            ],
        ),
        (
            ("daily", {"hour": 2, "minute": 30}, "Europe/Berlin", None, utc("2027-05-01")),
            "2026-11-01",
            ["02:30 does not exist on 2027-03-28 in Europe/Berlin: runs at 03:00 that day"],
        ),
        (
            ("daily", {"hour": 2}, "Pacific/Apia"),
            "2011-12-01",
            ["02:00 does not exist on 2011-12-30 in Pacific/Apia: runs at 00:00 on 2011-12-31"],
        ),
        (
            ("cron", {"expression": "*/15 2 * 3 *"}, "Europe/Berlin"),
            "2026-11-01",
            ["02:00 (and 3 more) does not exist on 2027-03-28 in Europe/Berlin: runs at 03:00 that day"],
        ),
        (
            ("cron", {"expression": "0 */2 * * *"}, "Europe/Berlin"),
            "2026-11-01",
            [
                "02:00 does not exist on 2027-03-28 in Europe/Berlin: is skipped",
                "02:00 occurs twice on 2027-10-31 in Europe/Berlin: runs both times",
            ],
        ),
        (("cron", {"expression": "*/5 * * * *"}, "Europe/Berlin"), "2026-11-01", []),
        (("interval", {"hours": 1}, "Europe/Berlin"), "2026-11-01", []),
        (
            ("cron", {"expression": "0 0 13 * 5"}),
            None,
            ["day-of-month and weekday are both set: it runs when either matches"],
        ),
        (
            ("cron", {"expression": "0 0 */2 * 5"}),
            None,
            ["day-of-month and weekday are both set: it runs only when both match, because one begins with *"],
        ),
        (
            ("monthly", {"day": 31, "hour": 2}),
            None,
            ["day 31 does not exist in every month: in shorter months it runs on the last day"],
        ),
        (("once", {"at": "2026-01-01T00:00Z"}, "UTC", utc("2026-02-01")), None, ["never fires"]),
    ],
)
def test_warnings_name_what_may_surprise(arguments: tuple[Any, ...], since: str | None, expected: list[str]) -> None:
    assert parse_trigger(*arguments).warnings(None if since is None else utc(since)) == expected


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001
WEEKDAY = "must be the name of a weekday or 0 (Monday) to 6 (Sunday), got"
DATE_AND_TIME = "must be a date and time such as '2027-03-01T02:00:00+01:00', got"
FIVE_FIELDS = "must have 5 fields (minute hour day month weekday) or 6 with seconds first, got"


@pytest.mark.parametrize(
    ("frequency", "time_config", "message"),
    [
        ("Daily", {}, "frequency: unknown frequency 'Daily': did you mean 'daily'?"),
        (
            "never",
            {},
            "frequency: unknown frequency 'never'"
            " (known: hourly, daily, weekly, monthly, interval, cron, once)",
        ),
        (None, {}, "frequency: unknown frequency null (known: hourly, daily, weekly, monthly, interval, cron, once)"),
        ("daily", None, "time_config: must be an object with keys and values, got null"),
        ("daily", [2, 0], "time_config: must be an object with keys and values, got [2, 0]"),
        ("daily", {}, "time_config.hour: is required"),
        ("daily", {"hour": 25}, "time_config.hour: must be between 0 and 23, got 25"),
        ("daily", {"hour": -1}, "time_config.hour: must be between 0 and 23, got -1"),
        ("daily", {"hour": 10**5000}, "time_config.hour: must be between 0 and 23, got a huge number"),
        ("daily", {"hour": "2"}, "time_config.hour: must be a whole number, got '2'"),
        ("daily", {"hour": 2.0}, "time_config.hour: must be a whole number, got 2.0"),
        ("daily", {"hour": float("nan")}, "time_config.hour: must be a whole number, got nan"),
        ("daily", {"hour": True}, "time_config.hour: must be a whole number, got true"),
        ("daily", {"hour": None}, "time_config.hour: must be a whole number, got null"),
        ("daily", {"hour": 2, "minute": 60}, "time_config.minute: must be between 0 and 59, got 60"),
        ("daily", {"hour": 2, "minuet": 5}, "time_config.minuet: unknown key: did you mean 'minute'?"),
        ("daily", {"hour": 2, "zzz": 5}, "time_config.zzz: unknown key (known: hour, minute)"),
        ("daily", {"hour": 2, 7: 5}, "time_config.7: unknown key (known: hour, minute)"),
        ("hourly", {"hour": 2}, "time_config.hour: unknown key (known: minute)"),
        ("weekly", {"hour": 2}, "time_config.day: is required"),
        ("weekly", {"day": "mondey", "hour": 2}, "time_config.day: unknown weekday 'mondey': did you mean 'monday'?"),
        ("weekly", {"day": 7, "hour": 2}, f"time_config.day: {WEEKDAY} 7"),
        ("weekly", {"day": "1", "hour": 2}, f"time_config.day: {WEEKDAY} '1'"),
        ("weekly", {"day": False, "hour": 2}, f"time_config.day: {WEEKDAY} false"),
        ("weekly", {"day": ["mon"], "hour": 2}, f"time_config.day: {WEEKDAY} ['mon']"),
        ("monthly", {"day": 0, "hour": 2}, "time_config.day: must be between 1 and 31, got 0"),
        ("monthly", {"day": 32, "hour": 2}, "time_config.day: must be between 1 and 31, got 32"),
        ("interval", {}, "time_config: needs at least one of days, hours, minutes, seconds"),
        ("interval", {"seconds": 0}, "time_config.seconds: must be between 1 and 31622400, got 0"),
        ("interval", {"minutes": -5}, "time_config.minutes: must be between 1 and 527040, got -5"),
        ("interval", {"minutes": 0.5}, "time_config.minutes: must be a whole number, got 0.5"),
        ("interval", {"days": 366, "seconds": 1}, "time_config: must add up to at most 366 days, got 31622401 seconds"),
        ("interval", {"minute": 5}, "time_config.minute: unknown key: did you mean 'minutes'?; "
                                    "time_config: needs at least one of days, hours, minutes, seconds"),
        ("cron", {}, "time_config.expression: is required"),
        ("cron", {"expression": 5}, "time_config.expression: must be text such as '0 2 * * 1', got 5"),
        ("cron", {"expression": ""}, f"time_config.expression: {FIVE_FIELDS} 0"),
        ("cron", {"expression": "0 2 * *"}, f"time_config.expression: {FIVE_FIELDS} 4"),
        ("cron", {"expression": "0 0 0 1 1 * 2027"}, f"time_config.expression: {FIVE_FIELDS} 7"),
        ("cron", {"expression": "0 25 * * *"}, "time_config.expression: bad hour field '25' (allowed: 0-23)"),
        ("cron", {"expression": "0 0 32 2 *"},
         "time_config.expression: bad day-of-month field '32' (allowed: 1-31 or L)"),
        ("cron", {"expression": "99 * * * * *"}, "time_config.expression: bad second field '99' (allowed: 0-59)"),
        ("cron", {"expression": "0 2 * * MON-SUN"}, "time_config.expression: bad day-of-week field 'MON-SUN':"
                                                    " a range that ends on Sunday must end in 7: write '1-7'"),
        ("cron", {"expression": "0 2 * * fri-mon"}, "time_config.expression: bad day-of-week field 'FRI-MON':"
                                                    " a range cannot wrap around: write '5-6,0-1'"),
        ("cron", {"expression": "0 2 ? * 1"},
         "time_config.expression: bad day-of-month field '?': write '*' instead of '?'"),
        ("cron", {"expression": "*/5 8,22-2 * * *"}, "time_config.expression: bad hour field '8,22-2':"
                                                     " a range cannot wrap around: write '8,22-23,0-2'"),
        ("cron", {"expression": "0 22-2/2 * * *"}, "time_config.expression: bad hour field '22-2/2':"
                                                   " a range cannot wrap around: write '22,0,2'"),
        ("cron", {"expression": "0 0 15W * *"},
         "time_config.expression: bad day-of-month field '15W': the nearest weekday (W) is not supported:"
         " write '15' for that day or 'LW' for the month's last weekday"),
        ("cron", {"expression": "0 0 * * FRIL"}, "time_config.expression: bad day-of-week field 'FRIL': write '5L'"
                                                 " for the last one of the month"),
        ("cron", {"expression": "0 30-99 * * *"}, "time_config.expression: bad hour field '30-99' (allowed: 0-23)"),
        ("cron", {"expression": "@daily"}, "time_config.expression: macros are not supported: write '0 0 * * *'"),
        ("cron", {"expression": "0," * 150}, "time_config.expression: must have at most 200 characters, got 300"),
        ("once", {}, "time_config.at: is required"),
        ("once", {"at": "soon"}, f"time_config.at: {DATE_AND_TIME} 'soon'"),
        ("once", {"at": "2026-01-01"}, f"time_config.at: {DATE_AND_TIME} '2026-01-01'"),
        ("once", {"at": "2026-02-30T10:00"}, f"time_config.at: {DATE_AND_TIME} '2026-02-30T10:00'"),
        ("once", {"at": date(2026, 1, 1)}, f"time_config.at: {DATE_AND_TIME} datetime.date(2026, 1, 1)"),
        ("once", {"at": 1767225600}, f"time_config.at: {DATE_AND_TIME} 1767225600"),
        ("once", {"at": "0001-01-01T00:00"}, "time_config.at: must be between the years 1970 and 2199, got 1"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_its_field_and_reason(frequency: Any, time_config: Any, message: str) -> None:
    with pytest.raises(InvalidSchedule) as refusal:
        parse_trigger(frequency, time_config)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("timezone", "message"),
    [
        ("Berlin", "timezone: unknown time zone 'Berlin': did you mean 'Europe/Berlin'?"),
        ("europe/berlin", "timezone: unknown time zone 'europe/berlin': did you mean 'Europe/Berlin'?"),
        ("Europe/Berln", "timezone: unknown time zone 'Europe/Berln': did you mean 'Europe/Berlin'?"),
        ("+02:00", "timezone: unknown time zone '+02:00'; use a name such as 'Europe/Berlin' or 'UTC'"),
        ("../etc/hosts", "timezone: unknown time zone '../etc/hosts'; use a name such as 'Europe/Berlin' or 'UTC'"),
        (None, "timezone: must be a name such as 'Europe/Berlin' or 'UTC', got null"),
    ],
)  # fmt: skip
def test_a_bad_time_zone_is_refused_with_a_suggestion(timezone: Any, message: str) -> None:
    with pytest.raises(InvalidSchedule) as refusal:
        parse_trigger("daily", {"hour": 2}, timezone)
    assert str(refusal.value) == message


def test_a_row_of_the_table_is_refused_without_the_search_for_what_was_meant() -> None:
    with pytest.raises(InvalidSchedule) as refusal:
        stored_trigger("weekly", '{"day": "mondey", "huor": 1}', "Europe/Berln", None, None)
    assert "did you mean" not in str(refusal.value)
    assert str(refusal.value).endswith("unknown time zone 'Europe/Berln'; use a name such as 'Europe/Berlin' or 'UTC'")


@pytest.mark.parametrize(
    ("start_at", "end_at", "message"),
    [
        (NAIVE, None, "start_at: must be a datetime with a time zone, got '2026-01-01T00:00:00'"),
        (None, NAIVE, "end_at: must be a datetime with a time zone, got '2026-01-01T00:00:00'"),
        ("2026-01-01", None, "start_at: must be a datetime with a time zone, got '2026-01-01'"),
        (utc("1900-01-01"), None, "start_at: must be between the years 1970 and 2199, got 1900"),
        (utc("2026-01-02"), utc("2026-01-01"), "end_at: must be later than start_at"),
        (utc("2026-01-02"), utc("2026-01-02"), "end_at: must be later than start_at"),
    ],
)
def test_bad_bounds_are_refused(start_at: Any, end_at: Any, message: str) -> None:
    with pytest.raises(InvalidSchedule) as refusal:
        parse_trigger("daily", {"hour": 2}, "UTC", start_at, end_at)
    assert str(refusal.value) == message


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(InvalidSchedule) as refusal:
        parse_trigger("weekly", {"day": "mondey", "hour": 25, "minute": "0", "x": 1}, "Mars", NAIVE, NAIVE)
    fields = [problem.field for problem in refusal.value.problems]
    assert fields == [
        "time_config.x", "time_config.day", "time_config.hour", "time_config.minute", "timezone", "start_at", "end_at",
    ]  # fmt: skip


def test_the_spread_of_a_schedule_depends_on_its_id_alone() -> None:
    offset = spread_offset(UUID("12345678-1234-5678-1234-567812345678"), 300)
    assert offset == timedelta(seconds=2, milliseconds=31)


def test_the_spread_is_even_and_stays_below_its_bound() -> None:
    offsets = [spread_offset(UUID(int=number), 60) for number in range(6000)]
    assert min(offsets) >= timedelta(0)
    assert max(offsets) < timedelta(seconds=60)
    per_second = [sum(offset.seconds == second for offset in offsets) for second in range(60)]
    assert all(60 < count < 150 for count in per_second)


def test_no_spread_means_no_delay() -> None:
    assert spread_offset(UUID(int=1), 0) == timedelta(0)


QUESTION = """
import uuid
from datetime import UTC, datetime
from services.triggers import parse_trigger, spread_offset, stored_trigger, tzdata_version
cases = [
    ("hourly", {"minute": 5}, "Australia/Lord_Howe"), ("daily", {"hour": 2, "minute": 30}, "Europe/Berlin"),
    ("weekly", {"day": "sun", "hour": 1}, "America/New_York"), ("monthly", {"day": 31, "hour": 2}, "Asia/Tehran"),
    ("interval", {"minutes": 7}, "UTC"), ("cron", {"expression": "0 */2 * * *"}, "Europe/Berlin"),
    ("once", {"at": "2026-10-25T02:30"}, "Europe/Berlin"),
]
for case in cases:
    trigger = parse_trigger(*case)
    fires = trigger.between(datetime(2026, 10, 20, tzinfo=UTC), datetime(2027, 4, 5, tzinfo=UTC))
    print(trigger.describe(), [fire.isoformat() for fire, _ in zip(fires, range(500))])
print(spread_offset(uuid.UUID(int=7), 3600), tzdata_version())
"""


def answers_of_another_process(**environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", QUESTION], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_processes_with_other_clocks_hashes_and_system_zones_give_the_same_answers(tmp_path: Path) -> None:
    new_york = resources.files("tzdata").joinpath("zoneinfo/America/New_York")
    (tmp_path / "Europe").mkdir()
    with resources.as_file(new_york) as source:
        shutil.copy(source, tmp_path / "Europe" / "Berlin")  # a system whose idea of Berlin is wrong
    one = answers_of_another_process(TZ="Asia/Tokyo", PYTHONHASHSEED="1", LC_ALL="C")
    other = answers_of_another_process(TZ="America/St_Johns", PYTHONHASHSEED="2", PYTHONTZPATH=str(tmp_path))
    assert one == other
    assert "2026-10-25T00:30:00+00:00" in one


def test_the_version_of_the_time_zone_rules_is_the_pinned_one() -> None:
    assert f"tzdata=={tzdata_version()}" in (ROOT / "requirements.txt").read_text().splitlines()


def test_a_trigger_says_whether_it_fires_at_an_instant() -> None:
    trigger = parse_trigger("daily", {"hour": 2, "minute": 30}, "Europe/Berlin", start_at=utc("2027-01-04 01:30"))
    at = utc("2027-01-04 01:30")
    assert trigger.fires_at(at)
    assert trigger.fires_at(at.astimezone(ZoneInfo("Asia/Tokyo")))
    for other in (timedelta(seconds=1), timedelta(microseconds=1), -timedelta(days=1)):
        assert not trigger.fires_at(at + other)
    assert parse_trigger("interval", {"seconds": 1}).fires_at(at)


@pytest.mark.parametrize("time_config", [{"hour": 2}, '{"hour": 2}'], ids=["JSON", "its text"])
def test_the_trigger_of_a_row_is_that_of_its_five_columns(time_config: Any) -> None:
    start_at, end_at = utc("2027-01-01 00:00"), utc("2028-01-01 00:00")
    row = SimpleNamespace(
        frequency="daily", time_config=time_config, timezone="Asia/Tokyo", start_at=start_at, end_at=end_at
    )
    assert trigger_of(row) is parse_trigger("daily", {"hour": 2}, "Asia/Tokyo", start_at, end_at)


def test_the_trigger_of_a_row_suggests_only_on_request() -> None:
    row = SimpleNamespace(frequency="dayly", time_config={"hour": 2}, timezone="UTC", start_at=None, end_at=None)
    with pytest.raises(InvalidSchedule) as plain:
        trigger_of(row)
    with pytest.raises(InvalidSchedule, match=r"daily.*\?") as helpful:
        trigger_of(row, suggest=True)
    assert str(plain.value) != str(helpful.value)
