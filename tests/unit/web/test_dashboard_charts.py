"""What a chart is told to show, and how an instant reads."""

import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4
from zoneinfo import ZoneInfo

from services.insight.overview import Bar
from services.web.dashboard import charts
from services.web.dashboard.look import fire_words

NOW = datetime(2027, 1, 31, 2, tzinfo=UTC)


def bar(label: str) -> Bar:
    return Bar(uuid4(), uuid4(), label, "replica-1", "success", 1, NOW - timedelta(minutes=5), NOW)


def test_a_name_with_markup_is_text_in_the_tooltip_of_the_timeline() -> None:
    options = charts.timeline([bar("<img src=x onerror=alert(1)> & co")], lambda at: at, NOW, 60)
    assert "<img" not in json.dumps(options["series"][0]["data"])
    assert options["series"][0]["data"][0]["name"] == "&lt;img src=x onerror=alert(1)&gt; &amp; co"


def test_a_fire_is_told_in_its_zone_and_also_in_the_visitors_when_the_clocks_differ() -> None:
    berlin, oslo = ZoneInfo("Europe/Berlin"), ZoneInfo("Europe/Oslo")
    assert fire_words(NOW, berlin, oslo) == "Sun 2027-01-31 03:00:00 CET"
    assert fire_words(NOW, UTC, berlin) == "Sun 2027-01-31 02:00:00 UTC (03:00:00 your time)"
    new_york = ZoneInfo("America/New_York")
    assert fire_words(NOW, UTC, new_york) == "Sun 2027-01-31 02:00:00 UTC (2027-01-30 21:00:00 your time)"
