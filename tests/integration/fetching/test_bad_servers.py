"""Fetching from servers with bad habits: every one gives a bounded answer or one clear failure, and soon."""

import socket
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from services.fetching import Fetcher, FetchFailed, Limits, guarded_session
from services.fetching.answers import MAX_COOKIES
from services.fetching.session import MAX_COOKIES as MAX_COOKIES_KEPT
from services.fetching.session import MAX_COOKIES_PER_DOMAIN
from tests.support.bad_habits import MANY_COOKIES, PAGE, page
from tests.support.bad_servers import BadServer
from tests.support.certificate import certificate_file, server_tls
from tests.support.waiting import within_a_moment

SMALL = Limits(max_bytes=100_000)
WHOLE = Limits(max_bytes=100_000, cut=False)
SHORT = Limits(max_seconds=0.4)


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    with Fetcher(guarded_session(False, "127.0.0.1/32")) as fetcher:
        yield fetcher


def failure(fetcher: Fetcher, url: str, limits: Limits = Limits()) -> FetchFailed:
    with pytest.raises(FetchFailed) as caught:
        fetcher.get(url, limits=limits)
    return caught.value


@pytest.mark.parametrize(
    "path",
    [
        *("/silent", "/stalled", "/dripping-status", "/dripping-head", "/dripping-body"),
        *("/dripping-chunks", "/dripping-gzip"),
    ],
)
def test_an_answer_that_takes_for_ever_ends_with_the_time(bad: BadServer, fetcher: Fetcher, path: str) -> None:
    failed = failure(fetcher, f"{bad.url}{path}?token=hunter2", SHORT)
    assert (str(failed), failed.retryable) == (f"GET {bad.url}{path}?***: no response in time", True)


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("/reset", "the server closed the connection"),
        ("/reset-in-body", "the server closed the connection"),
        ("/hung-up", "the server closed the connection"),
        ("/length-too-long", "the response was cut off"),
        ("/broken-chunks", "the response was cut off"),
        ("/not-http", "the response is not HTTP"),
        ("/endless-line", "the response is not valid HTTP: got more than 65536 bytes when reading header line"),
        ("/endless-chunk-size", "the response is not valid HTTP: got more than 65536 bytes when reading chunk size"),
        ("/many-headers", "the response is not valid HTTP: got more than 100 headers"),
        ("/endless-headers", "the response is not valid HTTP: the headers are larger than 4 MiB"),
        ("/endless-interim-answers", "the response is not valid HTTP: the headers are larger than 4 MiB"),
        ("/broken-gzip", "the body cannot be decompressed"),
        ("/gzip-that-is-none", "the body cannot be decompressed"),
        ("/many-encodings", "the body cannot be decompressed"),
    ],
)
def test_a_broken_answer_is_a_failure_that_may_pass(bad: BadServer, fetcher: Fetcher, path: str, cause: str) -> None:
    failed = failure(fetcher, f"{bad.url}{path}")
    assert (str(failed), failed.retryable) == (f"GET {bad.url}{path}: {cause}", True)


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("/loop", "more than 10 redirects"),
        ("/loop-of-two", "more than 10 redirects"),
        ("/to-file", "only http and https are supported"),
        ("/to-ftp", "only http and https are supported"),
        ("/to-gopher", "only http and https are supported"),
        ("/to-no-url", "redirected to something that is not a URL"),
        ("/to-broken-bytes", "redirected to something that is not a URL"),
        ("/to-huge-port", "redirected to something that is not a URL"),
        ("/to-long-url", "redirected to a URL that is longer than 8,192 characters"),
        ("/brotli-unasked", "the body is compressed as br, which was not requested"),
        ("/zstd-unasked", "the body is compressed as zstd, which was not requested"),
    ],
)
def test_what_no_attempt_can_change_fails_for_good(bad: BadServer, fetcher: Fetcher, path: str, cause: str) -> None:
    failed = failure(fetcher, f"{bad.url}{path}")
    assert (str(failed), failed.retryable) == (f"GET {bad.url}{path}: {cause}", False)


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/to-metadata", "169.254.169.254"),
        ("/to-metadata-as-number", "2852039166 (169.254.169.254)"),
        ("/to-metadata-in-ipv6", "::ffff:169.254.169.254"),
        ("/to-private-address", "10.0.0.1"),
        ("/to-userinfo", "10.0.0.1"),
    ],
)
def test_a_redirect_to_the_inside_is_refused(bad: BadServer, fetcher: Fetcher, path: str, address: str) -> None:
    failed = failure(fetcher, f"{bad.url}{path}")
    assert str(failed).startswith(f"{address} is not a public address; ")
    assert not failed.retryable
    assert "hunter2" not in str(failed)


def test_a_redirect_to_a_name_of_the_inside_is_refused(
    bad: BadServer, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo

    def resolve(host: str, *rest: Any) -> Any:
        return real("192.168.7.7" if host == "intranet.example" else host, *rest)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert "intranet.example (192.168.7.7) is not a public address" in str(
        failure(fetcher, f"{bad.url}/to-private-name")
    )


@pytest.mark.parametrize("path", ["/endless", "/endless-chunks", "/two-gigabytes", "/gzip-bomb", "/deflate-bomb"])
def test_a_body_without_end_is_cut_or_refused(bad: BadServer, fetcher: Fetcher, path: str) -> None:
    cut = fetcher.get(f"{bad.url}{path}", limits=SMALL)
    assert (len(cut.body), cut.truncated) == (100_000, True)
    refused = failure(fetcher, f"{bad.url}{path}", WHOLE)
    assert (str(refused), refused.retryable) == (f"GET {bad.url}{path}: the body is larger than 100,000 bytes", False)


@pytest.mark.parametrize("path", ["/gzip-bomb", "/double-gzip-bomb", "/deflate-bomb", "/endless"])
def test_a_bomb_does_not_go_off_in_memory(bad: BadServer, fetcher: Fetcher, path: str) -> None:
    fetcher.get(f"{bad.url}{path}", limits=SMALL)  # now the server has made its bomb
    tracemalloc.start()
    try:
        fetched = fetcher.get(f"{bad.url}{path}", limits=Limits(max_bytes=1_000_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(fetched.body), fetched.truncated) == (1_000_000, True)
    assert peak < 10_000_000


@pytest.mark.parametrize("cut", [True, False])
def test_a_large_body_is_held_once(bad: BadServer, fetcher: Fetcher, cut: bool) -> None:
    tracemalloc.start()
    try:
        with suppress(FetchFailed):
            fetcher.get(f"{bad.url}/endless", limits=Limits(max_bytes=8_000_000, cut=cut))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 8_000_000 < peak < 12_000_000


def test_a_body_that_is_announced_as_too_large_is_refused_unread(bad: BadServer, fetcher: Fetcher) -> None:
    bad.answer("/", b"HTTP/1.1 200 OK\r\nContent-Length: 2147483648\r\n\r\n")  # and none of it follows
    assert "the body is larger than 100,000 bytes" in str(failure(fetcher, f"{bad.url}/", WHOLE))


def test_a_body_of_exactly_the_limit_is_whole(bad: BadServer, fetcher: Fetcher) -> None:
    fetched = fetcher.get(f"{bad.url}/page", limits=Limits(max_bytes=len(PAGE), cut=False))
    assert (fetched.body, fetched.truncated) == (PAGE, False)


@pytest.mark.parametrize("path", ["/broken-header", "/early-hints", "/encoding-made-up", "/malformed-cookies"])
def test_small_faults_of_a_head_do_not_spoil_the_page(bad: BadServer, fetcher: Fetcher, path: str) -> None:
    fetched = fetcher.get(f"{bad.url}{path}")
    assert (fetched.status_code, fetched.body, fetched.truncated) == (200, PAGE, False)


def test_headers_after_a_line_that_is_none_are_seen(bad: BadServer, fetcher: Fetcher) -> None:
    fetched = fetcher.get(f"{bad.url}/broken-header")
    assert fetched.headers["X-After"] == "yes"
    assert fetched.hops[0].set_cookies == ("after=1",)


def test_malformed_cookies_are_handed_over_as_they_are(bad: BadServer, fetcher: Fetcher) -> None:
    cookies = fetcher.get(f"{bad.url}/malformed-cookies").hops[0].set_cookies
    assert cookies[:6] == ("", "", "=", ";;;", "novalue", "=x")
    assert len(cookies) == 12
    assert cookies[-1] == "f=1"
    assert fetcher.get(f"{bad.url}/page").status_code == 200  # and can be sent back, or not


def test_of_ten_thousand_cookies_the_first_are_seen_and_the_rest_is_counted(bad: BadServer, fetcher: Fetcher) -> None:
    fetched = fetcher.get(f"{bad.url}/many-cookies")
    [hop] = fetched.hops
    assert hop.set_cookies == tuple(f"c{number}=1; Path=/" for number in range(MAX_COOKIES))
    assert hop.cookies_left_out == MANY_COOKIES - MAX_COOKIES
    assert fetched.body == PAGE


@pytest.mark.parametrize(
    ("name", "number", "value"),
    [
        ("Set-Cookie2", 60, "a " * 30_000),
        ("Set-Cookie", 60, "a=1" + ";" * 60_000),
        ("Set-Cookie", 900, "a=1" + "; b=1" * 800),
        ("Set-Cookie", 900, "a=1; Path=/" + "%41" * 1_300),
    ],
)
def test_the_largest_cookies_are_read_in_a_moment(
    bad: BadServer, fetcher: Fetcher, name: str, number: int, value: str
) -> None:
    bad.answer("/", page(PAGE, "Set-Cookie: c=1", *[f"{name}: {value}"] * number))
    with within_a_moment():
        for _ in range(3):
            assert fetcher.get(f"{bad.url}/").body == PAGE


def test_of_a_cookie_only_attributes_beyond_reason_are_lost(bad: BadServer, fetcher: Fetcher) -> None:
    path = f"Path=/{'x' * 1_023}"
    bad.answer("/", page(PAGE, f"Set-Cookie: a=1; Comment={'x' * 2_000}; {path}; Secure" + "; x" * 100 + "; HttpOnly"))
    [cookie] = fetcher.get(f"{bad.url}/").hops[0].set_cookies
    assert cookie == f"a=1; {path}; Secure" + "; x" * 47


def test_not_all_of_ten_thousand_cookies_are_sent_back(bad: BadServer) -> None:
    session = guarded_session(False, "127.0.0.1")
    with Fetcher(session) as fetcher:
        fetcher.get(f"{bad.url}/many-cookies")
        assert len(session.cookies) == MAX_COOKIES_PER_DOMAIN


def test_one_name_on_many_paths_is_many_cookies(bad: BadServer) -> None:
    cookies = "".join(f"Set-Cookie: same=1; Path=/{number}\r\n" for number in range(1_000))
    bad.answer("/", f"HTTP/1.1 200 OK\r\n{cookies}Connection: close\r\n\r\n".encode())
    session = guarded_session(False, "127.0.0.1")
    with Fetcher(session) as fetcher:
        fetcher.get(f"{bad.url}/")
    assert len(session.cookies) == MAX_COOKIES_PER_DOMAIN


def test_cookies_of_any_number_of_hosts_are_kept_in_a_moment_and_in_bounds() -> None:
    cookies = guarded_session(False, "").cookies
    with within_a_moment():
        for number in range(100):
            for name in range(MAX_COOKIES_PER_DOMAIN):
                cookies.set(f"c{name}", "1", domain=f"host{number}.example")
    assert MAX_COOKIES_KEPT - MAX_COOKIES_PER_DOMAIN <= len(cookies) <= MAX_COOKIES_KEPT
    domains = cookies.list_domains()
    assert ("host0.example" in domains, "host99.example" in domains) == (False, True)


def test_cookies_can_be_read_while_another_thread_brings_more() -> None:
    cookies = guarded_session(False, "").cookies
    cookies.set("a", "1")
    reading = iter(cookies)
    cookies.set("b", "2", domain="example.com")
    assert len(list(reading)) == 1


def test_the_body_of_a_redirect_is_not_read(bad: BadServer, fetcher: Fetcher) -> None:
    assert fetcher.get(f"{bad.url}/endless-redirect", limits=Limits(max_seconds=5)).body == PAGE


def test_a_name_server_that_takes_for_ever_ends_with_the_time(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    def slow(*_: object) -> list[object]:
        released.wait(20)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    assert str(failure(fetcher, "http://slow.example/", SHORT)).endswith(": no response in time")
    released.set()


def test_a_tls_handshake_that_takes_for_ever_ends_with_the_time(fetcher: Fetcher) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        failed = failure(fetcher, f"https://127.0.0.1:{silent.getsockname()[1]}/", SHORT)
    assert str(failed).endswith(": no response in time")


@pytest.mark.parametrize("path", ["/dripping-head", "/dripping-body"])
def test_tls_changes_nothing_about_the_time(tmp_path: Path, path: str) -> None:
    session = guarded_session(False, "127.0.0.1")
    session.verify = str(certificate_file(tmp_path))
    with BadServer(server_tls(tmp_path)) as bad, Fetcher(session) as fetcher:
        assert fetcher.get(f"{bad.url}/page").body == PAGE
        assert str(failure(fetcher, f"{bad.url}{path}", SHORT)).endswith(": no response in time")


def test_a_certificate_that_is_not_trusted_fails_for_good(tmp_path: Path, fetcher: Fetcher) -> None:
    with BadServer(server_tls(tmp_path)) as bad:
        failed = failure(fetcher, f"{bad.url}/page")
    assert "the certificate is not trusted: self-signed certificate" in str(failed)
    assert not failed.retryable
