"""Set-Cookie headers, as browsers read them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scanning.cookies.dates import parse_cookie_date
from services.scanning.cookies.set_cookie import MAX_AGE_SECONDS, NoCookie, read_set_cookie
from services.scanning.findings import SeenCookie

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
URL = "https://www.example.com/shop/cart?x=1"


def read(raw: str, url: str = URL) -> SeenCookie | NoCookie:
    return read_set_cookie(raw, request_url=url, page_url="https://www.example.com/", now=NOW)


def cookie(raw: str, url: str = URL) -> SeenCookie:
    found = read(raw, url)
    assert isinstance(found, SeenCookie)
    return found


def test_a_bare_cookie_belongs_to_its_host_and_directory_and_ends_with_the_session() -> None:
    assert cookie("id=42") == SeenCookie(
        name="id", domain="www.example.com", path="/shop", page_url="https://www.example.com/", request_url=URL
    )


def test_all_attributes_are_read_in_any_case() -> None:
    found = cookie("id=42; DOMAIN=.Example.com; path=/; MAX-age=60; secure; HttpOnly; samesite=lAx; Priority=High")
    assert (found.domain, found.host_only, found.path) == ("example.com", False, "/")
    assert (found.secure, found.http_only, found.same_site) == (True, True, "Lax")
    assert found.expires_at == NOW + timedelta(seconds=60)


def test_the_value_is_not_kept() -> None:
    assert "s3cret" not in repr(cookie("id=s3cret; Path=/"))
    assert "s3cret" not in repr(cookie("s3cret"))  # without "=" all of it is the value


@pytest.mark.parametrize(
    ("raw", "changes"),
    [
        ("=x", {"name": ""}),
        ("x", {"name": ""}),
        ("  id  =  x  ;Path = /a ", {"name": "id", "path": "/a"}),
        ("id=a=b", {"name": "id"}),
        ("id=x; Path=relative", {"path": "/shop"}),
        ("id=x; Path=", {"path": "/shop"}),
        ("id=x; Path=/a; Path=/b", {"path": "/b"}),
        ("id=x; Domain=", {"domain": "www.example.com", "host_only": True}),
        ("id=x; Domain=www.example.com", {"domain": "www.example.com", "host_only": False}),
        ("id=x; SameSite=sometimes", {"same_site": None}),
        ("id=x; SameSite=None", {"same_site": "None"}),
        ("id=x; Max-Age=soon", {"expires_at": None}),
        ("id=x; Max-Age=+5", {"expires_at": None}),
        ("id=x; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT", {"expires_at": NOW + timedelta(seconds=60)}),
        ("id=x; Max-Age=soon; Expires=Wed, 01 Jul 2026 00:00:00 GMT", {"expires_at": datetime(2026, 7, 1, tzinfo=UTC)}),
        ("id=x; Expires=never", {"expires_at": None}),
        ("id=x; Max-Age=" + "9" * 300, {"expires_at": NOW + timedelta(seconds=MAX_AGE_SECONDS)}),
        ("id=x; Path=/" + "p" * 1024, {"path": "/shop"}),  # an attribute of this size is ignored
        ("größe=x".encode().decode("latin-1"), {"name": "größe"}),
        ("gr\xf6\xdfe=x", {"name": "größe"}),
        ("__Secure-id=x; Secure", {"name": "__Secure-id"}),
        ("__Host-id=x; Secure; Path=/", {"name": "__Host-id"}),
        ("__Http-id=x; Secure; HttpOnly", {"name": "__Http-id"}),
        ("__Host-Http-id=x; Secure; HttpOnly; Path=/", {"name": "__Host-Http-id"}),
    ],
)
def test_odd_cookies_are_read_as_browsers_do(raw: str, changes: dict[str, Any]) -> None:
    found = cookie(raw)
    assert {name: getattr(found, name) for name in changes} == changes


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("", NoCookie.EMPTY),
        (" = ; Path=/", NoCookie.EMPTY),
        ("id=a\x00b", NoCookie.CONTROL),
        ("id=x; Path=/\x1b", NoCookie.CONTROL),
        ("id=" + "x" * 4096, NoCookie.TOO_LARGE),
        ("id=x; Domain=other.example", NoCookie.FOREIGN_DOMAIN),
        ("id=x; Domain=shop.www.example.com", NoCookie.FOREIGN_DOMAIN),
        ("id=x; Domain=ample.com", NoCookie.FOREIGN_DOMAIN),
        ("id=x; Domain=com", NoCookie.FOREIGN_DOMAIN),
        ("id=x; Domain=.", NoCookie.FOREIGN_DOMAIN),
        ("id=x; Domain=..example.com", NoCookie.FOREIGN_DOMAIN),
        ("__Http-id=x; Secure", NoCookie.BAD_PREFIX),
        ("__http-id=x; HttpOnly", NoCookie.BAD_PREFIX),
        ("__Host-Http-id=x; Secure; Path=/", NoCookie.BAD_PREFIX),
        ("__Host-Http-id=x; Secure; HttpOnly", NoCookie.BAD_PREFIX),
        ("__Secure-id=x", NoCookie.BAD_PREFIX),
        ("__secure-id=x", NoCookie.BAD_PREFIX),
        ("__Host-id=x; Secure", NoCookie.BAD_PREFIX),
        ("__Host-id=x; Secure; Path=/; Domain=example.com", NoCookie.BAD_PREFIX),
        ("=__Host-id; Secure; Path=/", NoCookie.BAD_PREFIX),
        ("id=x; Max-Age=0", NoCookie.DELETED),
        ("id=x; Max-Age=-5", NoCookie.DELETED),
        ("id=; Expires=Thu, 01 Jan 1970 00:00:00 GMT", NoCookie.DELETED),
    ],
)
def test_what_browsers_refuse_is_no_cookie(raw: str, reason: NoCookie) -> None:
    assert read(raw) is reason


@pytest.mark.parametrize(
    ("url", "is_kept"),
    [
        ("https://example.com/", True),
        ("http://example.com/", False),
        ("http://localhost:8080/", True),
        ("http://127.0.0.1/", True),
        ("http://[::1]/", True),
        ("http://10.0.0.1/", False),
    ],
)
def test_a_secure_cookie_needs_https_or_this_machine(url: str, is_kept: bool) -> None:
    assert isinstance(read("id=x; Secure", url), SeenCookie) is is_kept


@pytest.mark.parametrize(
    ("domain", "url", "expected"),
    [
        ("github.io", "https://github.io/", ("github.io", True)),  # a public suffix may keep one to itself
        ("someone.github.io", "https://someone.github.io/", ("someone.github.io", False)),
        ("127.0.0.1", "http://127.0.0.1/", ("127.0.0.1", True)),
        ("localhost", "http://localhost/", ("localhost", True)),
    ],
)
def test_a_domain_attribute_widens_only_what_somebody_owns(domain: str, url: str, expected: tuple[str, bool]) -> None:
    found = cookie(f"id=x; Domain={domain}", url)
    assert (found.domain, found.host_only) == expected


def test_nobody_sets_cookies_for_a_public_suffix_above_it() -> None:
    assert read("id=x; Domain=github.io", "https://someone.github.io/") is NoCookie.FOREIGN_DOMAIN


@given(st.text(st.characters(max_codepoint=255)), st.text(st.characters(max_codepoint=255)))
def test_no_header_raises(pair: str, attributes: str) -> None:
    read(pair)
    read(f"{pair}; {attributes}; Expires={attributes}; Max-Age={pair}; Domain={attributes}; Path={pair}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Wed, 21 Oct 2037 07:28:00 GMT", datetime(2037, 10, 21, 7, 28, tzinfo=UTC)),
        ("Wednesday, 21-Oct-37 07:28:00 GMT", datetime(2037, 10, 21, 7, 28, tzinfo=UTC)),
        ("Wed Oct 21 7:28:0 2037", datetime(2037, 10, 21, 7, 28, tzinfo=UTC)),
        ("21 OCTOBER 1999 07:28:00 +0200", datetime(1999, 10, 21, 7, 28, tzinfo=UTC)),
        ("21 Oct 70 00:00:00", datetime(1970, 10, 21, tzinfo=UTC)),
        ("31 Feb 2037 00:00:00", None),
        ("21 Oct 2037 25:00:00", None),
        ("21 Oct 2037", None),
        ("21 Oct 20370 00:00:00", None),
        ("2037-10-21T07:28:00Z", None),
        ("", None),
    ],
)
def test_dates_are_read_by_their_parts(text: str, expected: datetime | None) -> None:
    assert parse_cookie_date(text) == expected
