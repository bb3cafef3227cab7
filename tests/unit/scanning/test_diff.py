"""From sightings to cookies, and from two scans to their difference."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.fetching.sites.urls import Site
from services.scanning.cookies.categories import CategoryRules
from services.scanning.cookies.diff import compare
from services.scanning.cookies.inventory import MAX_COOKIES, Inventory
from services.scanning.findings import (
    Category,
    ChangeKind,
    Consent,
    Cookie,
    CookieChange,
    Party,
    SeenCookie,
    Storage,
)

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
SITE = Site.of("https://example.com/")
RULES = CategoryRules.load()
DAY = 86_400


def seen(name: str = "_ga", **changes: Any) -> SeenCookie:
    facts: dict[str, Any] = {"page_url": "https://example.com/", "request_url": "https://example.com/"}
    return SeenCookie(**({"name": name, "domain": "example.com", "path": "/"} | facts | changes))


def cookies(*sightings: SeenCookie) -> tuple[Cookie, ...]:
    inventory = Inventory()
    inventory.add(sightings, NOW)
    return inventory.cookies(SITE, RULES)


def test_a_cookie_is_told_with_what_we_make_of_it() -> None:
    [cookie] = cookies(seen(expires_at=NOW + timedelta(days=1), secure=True, same_site="Lax"))
    assert (cookie.party, cookie.category, cookie.category_rule) == (
        Party.FIRST,
        Category.ANALYTICS,
        "_ga (Google Analytics)",
    )
    assert (cookie.lifetime_seconds, cookie.secure, cookie.same_site) == (DAY, True, "Lax")


def test_sightings_on_several_pages_are_one_cookie() -> None:
    pages = [f"https://example.com/{number}" for number in (1, 2, 2)]
    [cookie] = cookies(*(seen(page_url=page, request_url=f"{page}/r") for page in pages))
    assert (cookie.pages_seen, cookie.page_url, cookie.request_url) == (2, pages[0], f"{pages[0]}/r")


def test_name_domain_path_and_storage_tell_cookies_apart() -> None:
    different = [seen(), seen("b"), seen(domain="www.example.com"), seen(path="/a"), seen(storage=Storage.LOCAL)]
    assert len(cookies(*different, *different)) == 5


def test_the_longest_lifetime_counts() -> None:
    short, long = NOW + timedelta(hours=1), NOW + timedelta(days=30)
    [cookie] = cookies(seen(), seen(expires_at=short), seen(expires_at=long), seen(expires_at=short))
    assert (cookie.expires_at, cookie.lifetime_seconds) == (long, 30 * DAY)


def test_once_seen_before_consent_is_before_consent() -> None:
    [cookie] = cookies(seen(consent=Consent.AFTER), seen(consent=Consent.BEFORE))
    assert cookie.consent is Consent.BEFORE
    [cookie] = cookies(seen(consent=Consent.BEFORE), seen(consent=Consent.AFTER))
    assert cookie.consent is Consent.BEFORE
    [cookie] = cookies(seen(consent=Consent.AFTER))
    assert cookie.consent is Consent.AFTER


def test_what_has_expired_is_no_finding() -> None:
    assert cookies(seen(expires_at=NOW), seen("b", expires_at=NOW - timedelta(days=1))) == ()


def test_the_number_of_cookies_is_limited_and_the_rest_counted() -> None:
    inventory = Inventory()
    inventory.add((seen(f"c{number}") for number in range(MAX_COOKIES + 7)), NOW)
    inventory.add([seen("c0")], NOW)
    assert (len(inventory), inventory.left_out) == (MAX_COOKIES, 7)


# --- the difference ---

[BEFORE] = cookies(seen(expires_at=NOW + timedelta(days=100)))


def test_two_equal_scans_differ_in_nothing() -> None:
    assert compare([BEFORE], [BEFORE]) == ()


def test_new_and_gone_cookies_are_told() -> None:
    [other] = cookies(seen("PHPSESSID"))
    assert compare([BEFORE], [other]) == (
        CookieChange(
            kind=ChangeKind.NEW,
            name="PHPSESSID",
            domain="example.com",
            path="/",
            storage=Storage.COOKIE,
            category=Category.NECESSARY,
        ),
        CookieChange(
            kind=ChangeKind.GONE,
            name="_ga",
            domain="example.com",
            path="/",
            storage=Storage.COOKIE,
            category=Category.ANALYTICS,
        ),
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("secure", True),
        ("http_only", True),
        ("host_only", False),
        ("same_site", "None"),
        ("party", Party.THIRD),
        ("consent", Consent.AFTER),
        ("category", Category.MARKETING),
        ("lifetime_seconds", None),
        ("lifetime_seconds", 200 * DAY),
    ],
)
def test_what_changed_is_told_with_both_values(field: str, value: Any) -> None:
    [change] = compare([BEFORE], [replace(BEFORE, **{field: value})])
    assert (change.kind, change.fields) == (ChangeKind.CHANGED, {field: (getattr(BEFORE, field), value)})


@pytest.mark.parametrize(
    "same",
    [
        {"expires_at": NOW + timedelta(days=101)},
        {"lifetime_seconds": 100 * DAY - 3},
        {"lifetime_seconds": 93 * DAY},  # everything ends on one day, and the last scan was a week ago
        {"pages_seen": 9},
        {"page_url": "https://example.com/other", "request_url": "https://example.com/x"},
        {"category_rule": "mine"},
    ],
)
def test_what_every_scan_moves_is_no_change(same: dict[str, Any]) -> None:
    assert compare([BEFORE], [replace(BEFORE, **same)]) == ()
