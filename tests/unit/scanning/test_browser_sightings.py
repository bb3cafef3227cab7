"""What a browser holds -> sightings: attributes, attribution, and answers of pages that lie."""

from datetime import UTC, datetime
from typing import Any

import pytest

from services.scanning.engines.browser.sightings import (
    MAX_CHARACTERS,
    FrameFacts,
    Setter,
    attributed,
    belongs_to,
    cookies_seen,
    storage_seen,
)
from services.scanning.findings import SeenCookie, Storage

PAGE = "https://shop.example/start"


def seen(**more: Any) -> SeenCookie:
    told = {"name": "id", "value": "secret", "domain": "shop.example", "path": "/", "expires": -1, "session": True}
    (cookie,) = cookies_seen([{**told, "httpOnly": False, "secure": False, **more}], PAGE)
    return cookie


def test_a_cookie_is_told_without_its_value() -> None:
    cookie = seen(domain=".Shop.Example", httpOnly=True, secure=True, sameSite="Strict")
    assert "secret" not in repr(cookie)
    assert (cookie.domain, cookie.host_only, cookie.http_only, cookie.secure) == ("shop.example", False, True, True)
    assert (cookie.same_site, cookie.expires_at, cookie.page_url) == ("Strict", None, PAGE)


@pytest.mark.parametrize(
    ("expires", "expected"),
    [
        (1_800_000_000.5, datetime.fromtimestamp(1_800_000_000.5, UTC)),
        (1e18, datetime(9999, 1, 1, tzinfo=UTC)),
        (-1, None),
    ],
)
def test_an_expiry_is_an_instant_however_far_away(expires: float, expected: datetime | None) -> None:
    assert seen(session=False, expires=expires).expires_at == expected


@pytest.mark.parametrize(
    ("domain", "host", "expected"),
    [
        ("shop.example", "shop.example", True),
        ("shop.example", "www.shop.example", False),
        (".shop.example", "www.shop.example", True),
        (".shop.example", "workshop.example", False),
    ],
)
def test_a_cookie_belongs_to_the_hosts_that_would_get_it(domain: str, host: str, expected: bool) -> None:
    assert belongs_to(seen(domain=domain), {host}) is expected


def test_the_first_setter_of_that_name_and_host_has_set_it() -> None:
    setters = [
        Setter("other", "shop.example", "https://shop.example/other"),
        Setter("id", "cdn.example", "https://cdn.example/x"),
        Setter("id", "shop.example", "https://shop.example/login"),
        Setter("id", "shop.example", "https://shop.example/late"),
    ]
    found = attributed(seen(), setters)
    assert found is not None
    assert found.request_url == "https://shop.example/login"
    assert attributed(seen(name="unknown"), setters) is None


def test_a_key_in_two_frames_of_one_origin_is_one_sighting() -> None:
    told = {"origin": "https://ads.example", "local_storage": ["uid"], "session_storage": ["uid"], "writes": []}
    frames = [FrameFacts.read({**told, "url": f"https://ads.example/{number}"}) for number in (1, 2)]
    found = storage_seen(frames, PAGE)
    assert [(cookie.storage, cookie.name, cookie.domain, cookie.request_url) for cookie in found] == [
        (Storage.LOCAL, "uid", "ads.example", "https://ads.example/1"),
        (Storage.SESSION, "uid", "ads.example", "https://ads.example/1"),
    ]


@pytest.mark.parametrize(
    "told",
    [
        None,
        7,
        {},
        {"url": 1, "origin": "null", "local_storage": ["x"]},
        {"url": "http://[x", "origin": "http://[x", "local_storage": ["x"]},
        {"url": PAGE, "origin": None, "local_storage": {"a": 1}, "writes": [1, ["only one"], [{}, []]]},
    ],
)
def test_a_frame_that_answers_nonsense_has_nothing(told: object) -> None:
    assert storage_seen([FrameFacts.read(told)], PAGE) == []


def test_long_names_are_cut_and_stay_different() -> None:
    names = ["x" * 10**6, "x" * 10**6 + "\ud800", 5, None, "x" * MAX_CHARACTERS]
    found = storage_seen(
        [FrameFacts.read({"url": PAGE, "origin": "https://shop.example", "local_storage": names})], PAGE
    )
    assert [len(cookie.name) for cookie in found] == [MAX_CHARACTERS] * 3
    assert found[2].name == "x" * MAX_CHARACTERS


def test_a_script_that_wrote_a_cookie_is_its_setter() -> None:
    facts = FrameFacts.read(
        {"url": PAGE, "origin": "https://shop.example", "writes": [["id", "https://cdn.example/a.js"]]}
    )
    assert facts.writes == (Setter("id", "shop.example", "https://cdn.example/a.js"),)
