"""robots.txt of any size and spelling: the rules for us and for everybody count, and nothing else costs anything."""

import pytest

from services.fetching import USER_AGENT
from services.fetching.sites.robots import read_robots
from tests.support.waiting import within_a_moment

PAGE = "https://example.com/a/page"


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("User-agent: *\nDisallow: /a/", False),
        ("User-agent: Enhanced-Scheduler\nDisallow: /a/\n\nUser-agent: *\nAllow: /", False),
        ("user agent enhanced*  # that is us\nDisallow: /a/", False),
        ("User-agent: other\nUser-agent: *\nDisallow: /a/", False),
        ("User-agent: other\nDisallow: /a/", True),
        ("Useragent: other\nUser-agent : another\nDisallow: /a/\nUser-agent: *\nDisallow: /b/", True),
        ("User-agent: *\nDisallow: /b/\nUSER AGENT other\nDisallow: /a/", True),
        ("User-agent:\nDisallow: /a/", True),
        ("User-agents: *\nDisallow: /a/", True),
        ("", True),
    ],
)
def test_the_rules_for_us_and_for_everybody_are_obeyed(text: str, is_allowed: bool) -> None:
    assert read_robots(text).can_fetch(PAGE, USER_AGENT) is is_allowed


@pytest.mark.parametrize(
    "form", ["User-agent: other{}", "useragent other{}", "User  agent:other{}", "User-agent: *o{}"]
)
def test_thousands_of_names_with_thousands_of_rules_are_read_in_a_moment(form: str) -> None:
    names = "\n".join(form.format(number) for number in range(2_500))
    rules = "\n".join(f"Disallow: /{number}" for number in range(2_500))
    text = f"{names}\n{rules}\nSitemap: https://example.com/map.xml\nUser-agent: *\nDisallow: /a/"
    with within_a_moment():
        robots = read_robots(text)
    assert list(robots.sitemaps) == ["https://example.com/map.xml"]
    assert not robots.can_fetch(PAGE, USER_AGENT)
