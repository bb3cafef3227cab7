"""Quiet hours and digests on local clocks, also when these are changed."""

from datetime import UTC, datetime

import pytest

from services.notifications.hours import digest_due, quiet_until
from services.notifications.rule_fields import RuleSpec


def rule(**more: str) -> RuleSpec:
    return RuleSpec(name="r", channels=["c"], **more)  # type: ignore[arg-type]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NIGHT = {"quiet_from": "22:00", "quiet_to": "07:00", "quiet_timezone": "Europe/Berlin"}


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-11-19T20:59", None),  # 21:59 in Berlin
        ("2026-11-19T21:00", "2026-11-20T06:00"),
        ("2026-11-20T05:59:59", "2026-11-20T06:00"),
        ("2026-11-20T06:00", None),
        ("2026-07-01T19:59", None),
        ("2026-07-01T20:00", "2026-07-02T05:00"),
        ("2026-10-24T21:00", "2026-10-25T06:00"),  # the night in which an hour is repeated is an hour longer
        ("2026-03-28T22:00", "2026-03-29T05:00"),  # and this one an hour shorter
    ],
)
def test_quiet_hours_over_midnight_end_in_the_morning_whatever_the_clock_does(now: str, until: str | None) -> None:
    assert quiet_until(rule(**NIGHT), at(now)) == (until and at(until))


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-03-29T00:59", None),  # 01:59; the clock jumps to 03:00
        ("2026-03-29T01:00", "2026-03-29T02:30"),  # 03:00 to 04:30
        ("2026-10-25T00:15", None),  # 02:15, for the first time
        ("2026-10-25T00:30", "2026-10-25T03:30"),  # 02:30, for the first time, to 04:30
        ("2026-10-25T01:15", "2026-10-25T03:30"),  # 02:15 again: it has been 02:30 already
    ],
)
def test_a_begin_that_is_skipped_or_repeated_is_the_first_instant_at_which_the_clock_reads_it(
    now: str, until: str | None
) -> None:
    found = quiet_until(rule(quiet_from="02:30", quiet_to="04:30", quiet_timezone="Europe/Berlin"), at(now))
    assert found == (until and at(until))


def test_quiet_hours_within_a_day_begin_and_end_on_it() -> None:
    noon = rule(quiet_from="12:00", quiet_to="13:30")
    assert quiet_until(noon, at("2026-11-19T13:29:59")) == at("2026-11-19T13:30")
    assert quiet_until(noon, at("2026-11-19T11:59:59")) is None
    assert quiet_until(rule(), at("2026-11-19T12:00")) is None


@pytest.mark.parametrize(
    ("more", "now", "due"),
    [
        ({"digest": "daily"}, "2026-11-19T07:59", "2026-11-19T08:00"),
        ({"digest": "daily"}, "2026-11-19T08:00", "2026-11-19T08:00"),
        ({"digest": "daily"}, "2026-11-19T08:00:01", "2026-11-20T08:00"),
        ({"digest": "weekly", "digest_day": "thursday"}, "2026-11-19T09:00", "2026-11-26T08:00"),  # a Thursday
        ({"digest": "weekly", "digest_day": "friday"}, "2026-11-19T09:00", "2026-11-20T08:00"),
        ({"digest": "weekly"}, "2026-11-19T09:00", "2026-11-23T08:00"),
        (
            {"digest": "daily", "digest_at": "02:30", "digest_timezone": "Europe/Berlin"},
            "2026-03-28T22:00",
            "2026-03-29T01:00",
        ),
    ],
)
def test_a_digest_is_due_at_its_time_of_day(more: dict[str, str], now: str, due: str) -> None:
    assert digest_due(rule(**more), at(now)) == at(due)


def test_a_rule_without_digests_has_none() -> None:
    assert digest_due(rule(), at("2026-11-19T08:00")) is None
