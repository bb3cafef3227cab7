"""Beat's schedules as ours: Celery itself says when a crontab fires, and our trigger has to say the same."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab, schedule

from services.job_types.celery_apps.timing import cron_expression, timing_of
from services.triggers import parse_trigger

APP = Celery("clock", set_as_current=False)
APP.conf.timezone = "UTC"


@pytest.mark.parametrize(
    ("fields", "expression"),
    [
        ({}, "* * * * *"),
        ({"minute": 0, "hour": "*/3"}, "0 */3 * * *"),
        ({"minute": 0, "hour": "0,3,6,9,12,15,18,21"}, "0 0,3,6,9,12,15,18,21 * * *"),  # in a DST night not the same
        ({"minute": "*/15,50", "hour": {8, 9, 10, 17}}, "0,15,30,45,50 8-10,17 * * *"),
        ({"minute": 5, "hour": 4, "day_of_week": "sun"}, "5 4 * * 0"),
        ({"minute": 5, "hour": 4, "day_of_week": "fri-sun"}, "5 4 * * 0,5,6"),
        ({"minute": 5, "hour": 4, "day_of_month": "29,31", "month_of_year": "2-12/2"}, "5 4 29,31 2,4,6,8,10,12 *"),
        ({"minute": 0, "hour": 6, "day_of_month": "8-14", "day_of_week": "tue,sat"}, "0 6 * * 2#2,6#2"),
        ({"minute": 0, "hour": 6, "day_of_month": "29-31", "day_of_week": "mon"}, "0 6 * * 1#5"),
        ({"minute": 0, "hour": 6, "day_of_month": "*/2", "day_of_week": "mon"}, "0 6 */2 * 1"),
        ({"minute": 0, "hour": 6, "day_of_month": "1,15", "day_of_week": "*/2"}, "0 6 1,15 * */2"),
    ],
)
def test_a_crontab_fires_when_celery_would_fire_it(fields: dict[str, Any], expression: str) -> None:
    theirs = crontab(**fields, app=APP)
    assert cron_expression(theirs) == expression
    ours = parse_trigger("cron", {"expression": expression}, "UTC")
    at = datetime(2026, 11, 18, 20, 3, tzinfo=UTC)
    for _ in range(60):
        last, delta, _now = theirs.remaining_delta(at)
        expected = (last + delta).astimezone(UTC)
        assert ours.next_after(at) == expected
        at = expected


@pytest.mark.parametrize(
    "fields",
    [
        {"day_of_month": "1,15", "day_of_week": "mon"},
        {"day_of_month": "1-8", "day_of_week": "mon-fri"},
        {"day_of_month": "1-31/2", "day_of_week": "mon"},
    ],
)
def test_days_that_must_match_both_are_refused_where_a_cron_line_would_take_either(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must both match in Celery"):
        timing_of(crontab(**fields, app=APP))


@pytest.mark.parametrize(("seconds", "works"), [(1, True), (86_400, True), (0.5, False), (90.5, False), (0, False)])
def test_an_interval_is_a_whole_number_of_seconds(seconds: float, works: bool) -> None:
    every = schedule(run_every=timedelta(seconds=seconds), app=APP)
    if works:
        assert timing_of(every) == ("interval", {"seconds": seconds})
    else:
        with pytest.raises(ValueError, match="whole number of seconds"):
            timing_of(every)
