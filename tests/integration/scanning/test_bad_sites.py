"""Sites that nobody wants to meet: nothing hangs, nothing grows, and what can be found is found."""

import gzip
import itertools
import threading
from collections.abc import Iterator

import pytest

from services.scanning.engines.http_engine import MAX_RESOURCES_PER_PAGE
from tests.support.scan_site import Answer, Request, ScanSite, WebServer
from tests.support.scanning import cookie, names, page, paths, scan

LINK = '<a href="/bad">bad</a><a href="/good">good</a>'


@pytest.fixture
def site() -> Iterator[WebServer]:
    """A start page that links to /bad and to /good, which has a cookie."""
    with WebServer() as site:
        site.answer("/", Answer(LINK))
        site.answer("/good", Answer("<p>good</p>", cookies=("found=1; Path=/",)))
        yield site


def test_a_redirect_loop_is_one_failed_page(site: WebServer) -> None:
    site.answer("/bad", Answer(status=302, headers={"Location": "/bad"}))
    outcome = scan(site.url, max_retries=3)
    assert (page(outcome, "/bad").error, page(outcome, "/bad").attempts) == ("more than 10 redirects", 1)
    assert "found" in names(outcome)


def test_a_redirect_to_nowhere_is_one_failed_page(site: WebServer) -> None:
    site.answer("/bad", Answer(status=302, headers={"Location": "http://[broken"}))
    outcome = scan(site.url)
    assert page(outcome, "/bad").error is not None
    assert "found" in names(outcome)


def test_a_redirect_to_a_long_address_is_kept_short_or_refused(site: WebServer) -> None:
    site.answer("/", Answer('<a href="/bad?8000"><a href="/bad?9000">'))
    site.answer("/bad", lambda request: Answer(status=302, headers={"Location": f"/{'x' * int(request.query)}"}))
    site.answer("/x*", Answer("<p>", cookies=("far=1",)))
    outcome = scan(site.url)
    assert page(outcome, "/bad?9000").error == "redirected to a URL that is longer than 8,192 characters"
    assert len(page(outcome, "/bad?8000").final_url or "") == len(cookie(outcome, "far").request_url) == 2_048


def test_embedded_addresses_beyond_any_length_are_told(site: WebServer) -> None:
    image = f"data:image/png;base64,{'x' * 9_000}"
    site.answer("/bad", Answer(f'<img src="/{"x" * 9_000}"><img src="{image}"><img src="/pixel">'))
    site.answer("/pixel", Answer(b"x", cookies=("pixel=1",)))
    outcome = scan(site.url)
    assert page(outcome, "/bad").notes == ("embedded addresses of more than 8,192 characters left out: 1",)
    assert "pixel" in names(outcome)


def test_a_page_that_never_ends_is_cut_and_its_beginning_is_read(site: WebServer) -> None:
    site.answer("/bad", lambda _: Answer(itertools.chain([b'<a href="/from-bad">'], itertools.repeat(b"x" * 65536))))
    outcome = scan(site.url)
    assert page(outcome, "/bad").notes == ("the page is longer than 2 MiB; the rest was not read",)
    assert {"/good", "/from-bad"} <= set(paths(outcome))


def test_a_page_of_50_megabytes_is_cut(site: WebServer) -> None:
    site.answer("/bad", Answer(b"<p>" + b"x" * 50_000_000, cookies=("large=1",)))
    outcome = scan(site.url)
    assert page(outcome, "/bad").notes == ("the page is longer than 2 MiB; the rest was not read",)
    assert "large" in names(outcome)


def test_a_gzip_bomb_is_cut(site: WebServer) -> None:
    bomb = gzip.compress(b'<a href="/from-bad">' + b"\0" * 100_000_000, compresslevel=1)
    site.answer("/bad", Answer(bomb, headers={"Content-Encoding": "gzip"}, cookies=("packed=1",)))
    outcome = scan(site.url)
    assert page(outcome, "/bad").notes == ("the page is longer than 2 MiB; the rest was not read",)
    assert "packed" in names(outcome)
    assert "/from-bad" in paths(outcome)


def test_a_page_that_drips_ends_with_its_time(site: WebServer) -> None:
    ended = threading.Event()

    def drip() -> Iterator[bytes]:
        while not ended.wait(0.05):
            yield b"x"

    site.answer("/bad", lambda _: Answer(drip()))
    outcome = scan(site.url, page_timeout_seconds=3)
    ended.set()
    assert page(outcome, "/bad").error == "no response in time"
    assert "found" in names(outcome)


def test_pages_that_link_to_the_next_one_for_ever_end_at_the_limits(site: WebServer) -> None:
    def endless(request: Request) -> Answer:
        number = int(request.path.removeprefix("/bad").strip("/") or 0)
        return Answer(f'<a href="/bad/{number + 1}">next</a>')

    site.answer("/bad*", endless)
    assert len(scan(site.url, scan_depth=5).pages) == 7  # /, /good, /bad and four more
    outcome = scan(site.url, scan_depth=100, max_pages=20)
    assert len(outcome.pages) == 13
    assert any(note.endswith("/bad/# left out: 1") for note in outcome.notes)


def test_a_calendar_takes_only_its_share(site: WebServer) -> None:
    def calendar(request: Request) -> Answer:
        month = int(request.query.partition("=")[2] or 0)
        return Answer("".join(f'<a href="/bad?month={month + step}">{step}</a>' for step in range(1, 30)))

    site.answer("/", Answer('<a href="/bad?month=0">calendar</a><a href="/good">good</a>'))
    site.answer("/bad", calendar)
    outcome = scan(site.url, max_pages=40, scan_depth=100)
    assert len([path for path in paths(outcome) if path.startswith("/bad")]) == 10
    assert "found" in names(outcome)
    assert any("/bad?month left out: " in note for note in outcome.notes)


def test_paths_that_grow_with_every_click_end(site: WebServer) -> None:
    site.answer("/bad*", Answer('<a href="bad/">deeper</a>'))
    outcome = scan(site.url, scan_depth=100)
    assert len([path for path in paths(outcome) if path.startswith("/bad")]) <= 4
    assert "addresses left out because they grow with every click: 1" in outcome.notes


def test_markup_that_takes_minutes_to_read_is_read_for_a_while(
    site: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.scanning.engines.http_engine.READ_SECONDS", 1.0)
    deep = '<a href="/from-bad">' + "<div>" * 60_000 + "</b>" * 60_000  # each looks for its beginning in all of them
    site.answer("/bad", Answer(deep, cookies=("deep=1",)))
    outcome = scan(site.url)
    assert page(outcome, "/bad").notes == ("not all of the page could be read",)
    assert "/from-bad" in paths(outcome)
    assert {"deep", "found"} <= names(outcome)


def test_a_page_full_of_links_costs_no_more_than_the_limits(site: WebServer) -> None:
    site.answer("/bad", Answer("".join(f'<a href="/{number}/x">' for number in range(100_000))))
    assert len(scan(site.url, max_pages=5).pages) == 5


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html; charset=klingon", '<a href="/from-bad">ü'.encode("latin-1")),
        ("text/html; charset=utf-8", b'\xfa\xfb<a href="/from-bad">\xc3\x28'),
        ("text/html; charset=utf-16", '<a href="/from-bad">ü'.encode("utf-16")),
        ("text/html; charset=utf-7; charset=", b'<a href="/from-bad">'),
        ('text/html; charset="', b'\x00\x01<a href="/from-bad">'),
        (None, b'<a href="/from-bad">'),
        ("TEXT/HTML", b'<meta charset="no-such-thing"><a href="/from-bad">'),
    ],
)
def test_broken_charsets_do_not_hide_links(site: WebServer, content_type: str | None, body: bytes) -> None:
    site.answer("/bad", Answer(body, content_type=content_type))
    assert "/from-bad" in paths(scan(site.url))


def test_what_is_not_html_is_not_read_for_links(site: WebServer) -> None:
    for content_type in ("application/pdf", "application/json", "image/png", "text/plain"):
        site.answer("/bad", Answer('<a href="/from-bad">', content_type=content_type))
        assert "/from-bad" not in paths(scan(site.url))


def test_of_ten_thousand_cookies_a_bounded_number_is_kept_and_the_rest_told(site: WebServer) -> None:
    site.answer("/bad", Answer("<p>", cookies=tuple(f"c{number}=1; Path=/" for number in range(10_000))))
    outcome = scan(site.url)
    assert len(outcome.cookies) == 1_001
    assert page(outcome, "/bad").notes == ("Set-Cookie headers left out because there are too many: 9000",)
    assert "found" in names(outcome)


def test_new_cookies_on_every_page_end_at_the_limit_of_a_scan(site: WebServer) -> None:
    def flood(request: Request) -> Answer:
        letter = request.path[-1]
        return Answer("<p>", cookies=tuple(f"{letter}{number}=1; Path=/" for number in range(1_000)))

    site.answer("/", Answer("".join(f'<a href="/bad-{letter}">' for letter in "abcdefg")))
    site.answer("/bad-*", flood)
    outcome = scan(site.url)
    assert len(outcome.cookies) == 5_000
    assert "there are more than 5000 different cookies; the rest was left out" in outcome.notes


def test_malformed_cookies_are_refused_with_the_reason_and_the_good_ones_found(site: WebServer) -> None:
    broken = (
        "",
        ";;;",
        "a\x01=1",
        "b=1; Domain=other.example",
        "__Host-c=1",
        "d=" + "x" * 5_000,
        "=",
        "gone=1; Max-Age=0",
    )
    odd = ("\xff\xfe=1", "nameless", "e=1; Expires=whenever; Max-Age=; SameSite=; Path")
    site.answer("/bad", Answer("<p>", cookies=(*broken, *odd, "fine=1")))
    outcome = scan(site.url)
    assert names(outcome) == {"\xff\xfe", "", "e", "fine", "found"}
    assert set(page(outcome, "/bad").notes) == {
        "Set-Cookie headers that browsers refuse: 3 (has neither name nor value)",
        "Set-Cookie headers that browsers refuse: 1 (contains control characters)",
        "Set-Cookie headers that browsers refuse: 1 (names a domain that is not the server's own)",
        "Set-Cookie headers that browsers refuse: 1 (breaks the rules of its name prefix, such as __Host-)",
        "Set-Cookie headers that browsers refuse: 1 (is larger than 4096 bytes)",
    }


def test_a_page_that_embeds_thousands_of_things_is_loaded_up_to_the_limit(site: WebServer) -> None:
    site.answer("/bad", Answer("".join(f'<img src="/pixel/{number}">' for number in range(1_500))))
    site.answer("/pixel/*", Answer(b"x", content_type="image/gif"))
    outcome = scan(site.url)
    assert len([request for request in site.requests() if request.path.startswith("/pixel")]) == MAX_RESOURCES_PER_PAGE
    assert page(outcome, "/bad").notes == ("embedded addresses left out (too many, or no time left): 900 of 1000",)


def test_a_large_embedded_file_is_not_downloaded(site: WebServer) -> None:
    sent = 0

    def film() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(1_000):
            sent += 1
            yield b"x" * 1024 * 1024

    site.answer("/bad", Answer('<video src="/film"></video>'))
    site.answer("/film", lambda _: Answer(film(), content_type="video/mp4", cookies=("watched=1",)))
    assert "watched" in names(scan(site.url))
    assert sent < 100


def test_embedded_things_that_never_answer_end_with_the_page(site: WebServer) -> None:
    ended = threading.Event()

    def never(_request: Request) -> Answer:
        ended.wait(30)
        return Answer()

    site.answer("/bad", Answer('<img src="/never/1"><img src="/never/2"><img src="/never/3">'))
    site.answer("/never/*", never)
    outcome = scan(site.url, page_timeout_seconds=3)
    ended.set()
    assert page(outcome, "/bad").error is None
    assert "found" in names(outcome)


@pytest.mark.parametrize(
    "answer",
    [
        Answer("no", status=503, cookies=("seen=1",)),
        Answer("no gzip", headers={"Content-Encoding": "gzip"}, cookies=("seen=1",)),
        Answer(status=302, headers={"Location": "http://10.0.0.1/"}, cookies=("seen=1",)),
        Answer(status=302, headers={"Location": "http://127.0.0.1:1/"}, cookies=("seen=1",)),
    ],
)
def test_cookies_of_a_page_that_fails_are_found(site: WebServer, answer: Answer) -> None:
    site.answer("/bad", answer)
    outcome = scan(site.url)
    assert page(outcome, "/bad").error is not None
    assert names(outcome) == {"seen", "found"}
    assert cookie(outcome, "seen").page_url == f"{site.url}/bad"


def test_cookies_of_embedded_addresses_that_lead_nowhere_are_found_all_of_them(site: WebServer) -> None:
    def pixel(request: Request) -> Answer:
        return Answer(
            status=302, headers={"Location": "http://127.0.0.1:1/"}, cookies=(f"pixel{request.path[-1]}=1; Path=/",)
        )

    site.answer("/bad", Answer("".join(f'<img src="/pixel/{number}">' for number in range(5))))
    site.answer("/pixel/*", pixel)
    outcome = scan(site.url)
    assert names(outcome) == {"found", *(f"pixel{number}" for number in range(5))}
    assert page(outcome, "/bad").notes == ("embedded addresses that could not be loaded: 5 of 5",)


def test_addresses_that_cannot_be_called_say_nothing_about_their_server(site: WebServer) -> None:
    """Each is short enough as it is written, and too long when it is percent-encoded."""
    odd = "".join(f'<img src="/{number}{"ü" * 4_000}">' for number in range(3))
    site.answer("/bad", Answer(f'{odd}<img src="/pixel">'))
    site.answer("/pixel", Answer(b"x", cookies=("pixel=1",)))
    assert "pixel" in names(scan(site.url))


def test_links_that_lead_nowhere_are_ignored(site: WebServer) -> None:
    odd = ["javascript:x()", "mailto:a@b", "http://", "http://[::1", "//", "https://a:b/", "x" * 100_000, "\ud83d", "%"]
    site.answer("/bad", Answer("".join(f"<a href='{address}'>" for address in odd).encode(errors="replace")))
    outcome = scan(site.url)
    assert page(outcome, "/bad").error is None
    assert "found" in names(outcome)


def test_the_shop_itself_is_a_good_site() -> None:
    with ScanSite() as site:
        assert [found for found in scan(site.url).pages if found.notes] == []
