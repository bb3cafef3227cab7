"""Addresses of pages: one spelling, which site they belong to, and which of them lead nowhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.fetching.sites.urls import Site, looks_endless, normal_url, registrable_domain, shape_of
from services.scanning.crawl.frontier import Frontier, Target
from tests.support.waiting import within_a_moment

BASE = "https://example.com/dir/page"
SITE = Site.of("https://example.com/")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("", BASE),
        ("other", "https://example.com/dir/other"),
        ("?p=2", "https://example.com/dir/page?p=2"),
        ("#part", BASE),
        ("//cdn.example/x", "https://cdn.example/x"),
        ("HTTP://Example.COM:80", "http://example.com/"),
        ("https://example.com:443/a", "https://example.com/a"),
        ("https://example.com:8443/a", "https://example.com:8443/a"),
        ("https://example.com./a", "https://example.com/a"),
        ("https://example.com/a/./b/../c", "https://example.com/a/c"),
        ("/a b/ü?q=ö", "https://example.com/a%20b/%C3%BC?q=%C3%B6"),
        ("/a%20b", "https://example.com/a%20b"),
        ("  /a\n\tb ", "https://example.com/ab"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("http://[::1]:8080/", "http://[::1]:8080/"),
        ("/a?utm_source=mail&gclid=1&id=7&fbclid=2", "https://example.com/a?id=7"),
        ("/a;jsessionid=9F?x=1", "https://example.com/a?x=1"),
        ("/a?b=%zz", "https://example.com/a?b=%zz"),
    ],
)
def test_a_page_has_one_spelling(address: str, expected: str) -> None:
    assert normal_url(address, BASE) == expected


@pytest.mark.parametrize(
    "address",
    [
        *(
            "mailto:a@example.com",
            "javascript:void(0)",
            "tel:+49",
            "data:text/html,x",
            "ftp://example.com/",
            "about:blank",
        ),
        *("http://", "http://:80/", "http://exam ple.com/", "http://example.com:99999/", "http://[::1/", "http://a:b/"),
        *("https://anna:secret@example.com/", "https://example.com/" + "x" * 2048, "x" * 100_000, "http://\udc80/"),
    ],
)
def test_what_is_no_page_has_none(address: str) -> None:
    assert normal_url(address, BASE) is None


@given(st.text())
def test_no_address_raises_and_a_second_look_changes_nothing(address: str) -> None:
    url = normal_url(address, BASE)
    assert url is None or normal_url(url) == url


@pytest.mark.parametrize(
    ("start", "url", "belongs"),
    [
        ("https://example.com/", "http://example.com/a", True),
        ("https://example.com/", "https://www.example.com/", True),
        ("https://www.example.com/", "https://example.com/", True),
        ("https://example.com/", "https://shop.example.com/", True),
        ("https://shop.example.com/", "https://example.com/", False),
        ("https://example.com/", "https://badexample.com/", False),
        ("https://example.com/", "https://example.com.evil.example/", False),
        ("https://example.com/", "https://example.com:8443/", False),
        ("https://example.com:8443/", "https://example.com:8443/a", True),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/a", True),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:9090/a", False),
        ("http://127.0.0.1:8080/", "http://1.127.0.0.1:8080/a", False),
    ],
)
def test_a_site_is_its_host_its_twin_and_what_is_below(start: str, url: str, belongs: bool) -> None:
    assert Site.of(start).has(url) is belongs


@pytest.mark.parametrize(
    ("start", "domain", "owned"),
    [
        ("https://www.example.co.uk/", "example.co.uk", True),
        ("https://www.example.co.uk/", "cdn.example.co.uk", True),
        ("https://shop.example.com/", "example.com", True),
        ("https://www.example.co.uk/", "other.co.uk", False),
        ("https://anna.github.io/", "ben.github.io", False),
        ("http://127.0.0.1:80/", "127.0.0.1", True),
        ("http://127.0.0.1:80/", "127.0.0.2", False),
        ("http://127.0.0.1:80/", "localhost", False),
    ],
)
def test_a_site_owns_the_domains_of_its_registrable_domain(start: str, domain: str, owned: bool) -> None:
    assert Site.of(start).owns(domain) is owned


def test_a_public_suffix_is_its_own_owner() -> None:
    assert registrable_domain("co.uk") == "co.uk"
    assert registrable_domain("a.b.example.co.uk") == "example.co.uk"


def test_pages_of_one_kind_have_one_shape() -> None:
    assert shape_of("https://h/news/2024/17?page=3") == shape_of("https://h/news/1999/2?page=4") == "h/news/#/#?page"
    assert shape_of("https://h/a?x=1&y=2") == shape_of("https://h/a?y=5&x=1")
    assert shape_of("https://h/i/0f8fad5b-d9cb-469f-a165-70867728950e") == "h/i/#"
    assert shape_of("https://h/report-3f2a90c1d4e5f678.pdf") == "h/report-#.pdf"
    assert shape_of("https://h/about") != shape_of("https://h/imprint")
    assert shape_of("https://h/decade-of-facades") == "h/decade-of-facades"


def test_an_address_made_of_hyphens_has_its_shape_in_a_moment() -> None:
    with within_a_moment():
        for number in range(200):
            shape_of(f"https://h/{'-' * 1_900}z{number}")


@pytest.mark.parametrize(
    ("path", "is_endless"),
    [
        ("/", False),
        ("/de/de/shop", False),
        ("/a/b/a/b/a/b/a/b", True),
        ("/" + "/".join(map(str, range(20))), True),
        ("/" + "/".join(map(str, range(10))), False),
    ],
)
def test_paths_that_grow_for_ever_are_recognised(path: str, is_endless: bool) -> None:
    assert looks_endless(f"https://h{path}") is is_endless


# --- the frontier ---


def visited(frontier: Frontier) -> list[str]:
    found = []
    while target := frontier.next():
        found.append(target.url.removeprefix("https://example.com"))
    return found


def pages(*paths: str) -> list[str]:
    return [f"https://example.com{path}" for path in paths]


def test_pages_are_taken_breadth_first_and_once() -> None:
    frontier = Frontier(SITE, 50, 3)
    frontier.ask("https://example.com/")
    assert frontier.next() == Target("https://example.com/", 0)
    frontier.add(pages("/a", "/b", "/a"), 1)
    assert frontier.next() == Target("https://example.com/a", 1)
    frontier.add(pages("/deep", "/b", "/"), 2)
    assert visited(frontier) == ["/b", "/deep"]


def test_other_sites_and_deeper_pages_are_not_taken() -> None:
    frontier = Frontier(SITE, 50, 2)
    frontier.add([*pages("/in"), "https://other.example/", "https://example.com:8443/"], 2)
    frontier.add(pages("/too-deep"), 3)
    assert visited(frontier) == ["/in"]


def test_a_page_that_a_redirect_led_to_is_not_taken_again() -> None:
    frontier = Frontier(SITE, 50, 2)
    frontier.add(pages("/old", "/new"), 1)
    assert frontier.next() == Target("https://example.com/old", 1)
    frontier.reached("https://example.com/new")
    assert visited(frontier) == []


def test_one_shape_gets_a_quarter_of_the_scan_and_the_rest_is_told() -> None:
    frontier = Frontier(SITE, 80, 3)
    frontier.add(pages(*(f"/calendar?month={number}" for number in range(100))), 1)
    frontier.add(pages("/about"), 1)
    assert visited(frontier) == [*(f"/calendar?month={number}" for number in range(20)), "/about"]
    assert frontier.notes() == ["pages like example.com/calendar?month left out: 80"]


def test_endless_paths_are_left_out_and_counted() -> None:
    frontier = Frontier(SITE, 50, 3)
    frontier.add(pages("/a/a/a/a/a", "/b"), 1)
    assert visited(frontier) == ["/b"]
    assert frontier.notes() == ["addresses left out because they grow with every click: 1"]


def test_what_is_asked_for_is_taken_whatever_it_looks_like() -> None:
    frontier = Frontier(SITE, 50, 0)
    assert frontier.ask("https://example.com/a/a/a/a/a")
    assert not frontier.ask("https://example.com/a/a/a/a/a")
    assert visited(frontier) == ["/a/a/a/a/a"]


def test_the_number_of_known_addresses_is_limited() -> None:
    frontier = Frontier(SITE, 1, 3)
    frontier.add((f"https://example.com/{name}" for name in _words(5_000)), 1)
    assert len(visited(frontier)) == 1_000


def _words(count: int) -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [letters[n % 26] + letters[n // 26 % 26] + letters[n // 676 % 26] for n in range(count)]
