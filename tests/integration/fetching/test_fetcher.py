"""The fetcher against a local server that behaves: what comes back, what is sent, and who may stop it."""

import errno
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from urllib3.util.connection import create_connection

from config import Settings
from services.fetching import Fetcher, FetchFailed, Limits, fetcher_from, guarded_session
from tests.support.bad_habits import page
from tests.support.bad_servers import BadServer
from tests.support.ledger import Ledger

CONNECT = "services.fetching.connecting.create_connection"


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger() as ledger:
        yield ledger


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    with Fetcher(guarded_session(False, "127.0.0.1")) as fetcher:
        yield fetcher


def test_an_answer_is_told_whole(ledger: Ledger, fetcher: Fetcher) -> None:
    ledger.answer("/x", body="grüße".encode("latin-1"), headers={"Content-Type": "Text/HTML; charset=latin-1"})
    fetched = fetcher.get(f"{ledger.url}/x?a=1")
    assert (fetched.url, fetched.status_code, fetched.truncated) == (f"{ledger.url}/x?a=1", 200, False)
    assert (fetched.text, fetched.content_type) == ("grüße", "text/html")
    assert fetched.headers["CONTENT-LENGTH"] == "5"
    assert fetched.elapsed_ms >= 0
    assert fetched.retry_after_seconds is None
    assert len(fetched.hops) == 1


@pytest.mark.parametrize("status", [204, 304, 404, 429, 500, 503])
def test_an_error_status_is_an_answer(ledger: Ledger, fetcher: Fetcher, status: int) -> None:
    ledger.answer("/", status=status, headers={"Retry-After": "120"}, body=b"")
    fetched = fetcher.get(f"{ledger.url}/")
    assert (fetched.status_code, fetched.retry_after_seconds) == (status, 120)


def test_every_answer_on_the_way_is_a_hop_with_its_cookies(bad: BadServer, fetcher: Fetcher) -> None:
    first, second = "a=1; Expires=Wed, 21 Oct 2037 07:28:00 GMT", "b=2"
    cookies = (f"Set-Cookie: {first}", f"set-cookie: {second}")
    bad.answer("/a", page(b"", "Location: /b", *cookies, status="301 Moved Permanently"))
    bad.answer("/b", page(b"here", "Set-Cookie: c=3"))
    fetched = fetcher.get(f"{bad.url}/a")
    assert [(hop.url, hop.status_code, hop.set_cookies) for hop in fetched.hops] == [
        (f"{bad.url}/a", 301, (first, second)),
        (f"{bad.url}/b", 200, ("c=3",)),
    ]
    assert (fetched.url, fetched.body) == (f"{bad.url}/b", b"here")


@pytest.mark.parametrize(
    ("there", "cause"),
    [
        ("http://10.0.0.1/", "is not a public address"),
        ("/broken-gzip", "cannot be decompressed"),
        ("/brotli-unasked", "not requested"),
    ],
)
def test_a_failure_tells_the_answers_on_the_way_to_it(bad: BadServer, fetcher: Fetcher, there: str, cause: str) -> None:
    bad.answer("/a", page(b"", f"Location: {there}", "Set-Cookie: a=1", status="302 Found"))
    with pytest.raises(FetchFailed, match=cause) as caught:
        fetcher.get(f"{bad.url}/a")
    first, *_ = caught.value.hops
    assert (first.url, first.status_code, first.set_cookies) == (f"{bad.url}/a", 302, ("a=1",))


def test_a_url_beyond_any_length_is_not_asked_for(ledger: Ledger, fetcher: Fetcher) -> None:
    longest = f"{ledger.url}/".ljust(8_192, "x")
    assert fetcher.get(longest).status_code == 200
    with pytest.raises(FetchFailed, match="the URL is longer than 8,192 characters") as caught:
        fetcher.get(f"{longest}x")
    assert (len(ledger.requests()), caught.value.retryable) == (1, False)


def test_cookies_are_sent_back_on_the_way_and_later(ledger: Ledger, fetcher: Fetcher) -> None:
    ledger.answer("/a", status=302, headers={"Location": "/b", "Set-Cookie": "seen=1"})
    fetcher.get(f"{ledger.url}/a")
    fetcher.get(f"{ledger.url}/c")
    assert [request.headers["Cookie"] for request in ledger.requests()] == [None, "seen=1", "seen=1"]


def test_a_redirect_can_be_the_answer(ledger: Ledger, fetcher: Fetcher) -> None:
    ledger.answer("/a", status=302, headers={"Location": "/b"})
    assert fetcher.get(f"{ledger.url}/a", limits=Limits(max_redirects=0)).status_code == 302
    ledger.answer("/b", status=302, headers={"Location": "/c"})
    with pytest.raises(FetchFailed, match="more than 1 redirects"):
        fetcher.get(f"{ledger.url}/a", limits=Limits(max_redirects=1))


def test_headers_are_sent(ledger: Ledger, fetcher: Fetcher) -> None:
    fetcher.get(ledger.url, headers={"If-None-Match": '"abc"'})
    [request] = ledger.requests()
    sent = {name: request.headers[name] for name in ("User-Agent", "If-None-Match", "Accept-Encoding")}
    assert sent == {"User-Agent": "enhanced-scheduler", "If-None-Match": '"abc"', "Accept-Encoding": "gzip, deflate"}


def test_the_fetcher_may_go_by_another_name(ledger: Ledger) -> None:
    with Fetcher(guarded_session(False, "127.0.0.1"), user_agent="scan/1.0") as fetcher:
        fetcher.get(ledger.url)
    assert ledger.requests()[0].headers["User-Agent"] == "scan/1.0"


def test_a_password_in_the_url_is_sent_to_its_host_and_never_shown(ledger: Ledger, fetcher: Fetcher) -> None:
    with Ledger() as other:
        ledger.answer("/", status=302, headers={"Location": f"{other.url.replace('//', '//x:hunter3@')}/b"})
        fetched = fetcher.get(f"{ledger.url.replace('//', '//anna:hunter2@')}/")
        assert ledger.requests()[0].headers["Authorization"] == "Basic YW5uYTpodW50ZXIy"
        assert other.requests()[0].headers["Authorization"] is None
    assert "hunter" not in repr((fetched.url, fetched.hops))


def test_the_body_can_be_left_unread(bad: BadServer, fetcher: Fetcher) -> None:
    fetched = fetcher.get(f"{bad.url}/endless", read_body=False)
    assert (fetched.status_code, fetched.body, fetched.truncated) == (200, b"", False)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "example.com",
            "http://",
            "http:///path",
            "http://[::1",
            "foo://[::1",
            "http://exa mple.com/",
            "http://*.a/",
        ),
        *("http://127.0.0.1:99999/", "http://127.0.0.1:port/", "http://a..b/", f"http://{'a' * 300}.example/"),
        *("file:///etc/passwd", "ftp://example.com/", "javascript:alert(1)", "mailto:anna@example.com", "http://\x00/"),
    ],
)
def test_what_is_no_url_fails_for_good(fetcher: Fetcher, url: str) -> None:
    with pytest.raises(FetchFailed) as caught:
        fetcher.get(url)
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "network is unreachable"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "the connection was refused"),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "the server closed the connection"),
        (TimeoutError("timed out"), "no response in time"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "the host name cannot be resolved"),
    ],
)
def test_no_connection_is_told_by_its_cause(
    fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch, error: OSError, cause: str
) -> None:
    def create(*_: Any) -> socket.socket:
        raise error

    monkeypatch.setattr(CONNECT, create)
    with pytest.raises(FetchFailed) as caught:
        fetcher.get("http://127.0.0.1/?token=hunter2")
    assert (str(caught.value), caught.value.retryable) == (f"GET http://127.0.0.1/?***: {cause}", True)


def test_tls_with_a_server_that_speaks_none_is_told(ledger: Ledger, fetcher: Fetcher) -> None:
    with pytest.raises(FetchFailed, match="no TLS connection: ") as caught:
        fetcher.get(ledger.url.replace("http:", "https:"))
    assert caught.value.retryable


def test_an_international_name_is_called_by_its_ascii_name(
    ledger: Ledger, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _resolving_to(monkeypatch, "127.0.0.1")
    port = ledger.url.rpartition(":")[2]
    fetched = fetcher.get(f"http://Bücher.example:{port}/straße")
    assert asked == ["xn--bcher-kva.example"]
    assert fetched.url == f"http://xn--bcher-kva.example:{port}/stra%C3%9Fe"
    assert ledger.requests()[0].headers["Host"] == f"xn--bcher-kva.example:{port}"


def test_a_dead_address_leaves_time_for_the_next_one(
    ledger: Ledger, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    def create(address: tuple[str, int], timeout: float, *rest: Any) -> socket.socket:
        given.append(timeout)
        if address[0] == "127.0.0.2":
            raise TimeoutError
        return create_connection(address, timeout, *rest)

    monkeypatch.setattr(CONNECT, create)
    _resolving_to(monkeypatch, "127.0.0.2", "127.0.0.1")
    with Fetcher(guarded_session(False, "127.0.0.0/8")) as fetcher:
        url = ledger.url.replace("127.0.0.1", "two.example")
        assert fetcher.get(url, limits=Limits(max_seconds=100)).status_code == 200
    assert given[0] <= 50 < given[1]


def test_a_connection_is_used_again(ledger: Ledger, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []

    def create(*given: Any) -> socket.socket:
        made.append(create_connection(*given))
        return made[-1]

    monkeypatch.setattr(CONNECT, create)
    for _ in range(3):
        assert fetcher.get(f"{ledger.url}/page").body == b"ok"
    assert len(made) == 1


def test_neither_proxy_nor_netrc_comes_from_the_environment(
    ledger: Ledger, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login anna password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert fetcher.get(ledger.url).status_code == 200
    assert ledger.requests()[0].headers["Authorization"] is None


def test_the_settings_decide_what_may_be_called(ledger: Ledger) -> None:
    closed, opened = Settings(_env_file=None), Settings(_env_file=None, fetch_allowed_networks="127.0.0.0/8")
    with fetcher_from(closed) as fetcher, pytest.raises(FetchFailed, match="is not a public address"):
        fetcher.get(ledger.url)
    with fetcher_from(opened, Limits(max_bytes=1)) as fetcher:
        assert fetcher.get(ledger.url).body == b"o"


# --- time, and who may stop it


class Stop(BaseException):
    """As context.check() raises it."""


def _stopping_after(calls: int) -> Callable[[], float]:
    left = iter([10.0] * calls)

    def remaining_seconds() -> float:
        for seconds in left:
            return seconds
        raise Stop

    return remaining_seconds


def test_the_caller_can_stop_before_the_first_request(ledger: Ledger, fetcher: Fetcher) -> None:
    with pytest.raises(Stop):
        fetcher.get(ledger.url, remaining_seconds=_stopping_after(0))
    assert ledger.requests() == []


def test_the_caller_can_stop_between_two_hops(bad: BadServer, fetcher: Fetcher) -> None:
    with pytest.raises(Stop):
        fetcher.get(f"{bad.url}/loop", remaining_seconds=_stopping_after(3))
    assert bad.hits("/loop") == 3


def test_the_caller_can_stop_between_two_pieces_of_a_body(bad: BadServer, fetcher: Fetcher) -> None:
    with pytest.raises(Stop):
        fetcher.get(f"{bad.url}/endless", limits=Limits(max_bytes=10**12), remaining_seconds=_stopping_after(20))


def test_the_end_of_the_callers_time_is_no_failure_of_the_other_side(bad: BadServer, fetcher: Fetcher) -> None:
    left = iter([0.2])

    def remaining_seconds() -> float:
        for seconds in left:
            return seconds
        raise Stop

    with pytest.raises(Stop):
        fetcher.get(f"{bad.url}/silent", remaining_seconds=remaining_seconds)


def test_what_is_left_of_the_callers_time_is_a_limit_too(bad: BadServer, fetcher: Fetcher) -> None:
    with pytest.raises(FetchFailed, match="no response in time"):
        fetcher.get(f"{bad.url}/dripping-head", remaining_seconds=lambda: 0.2)


def test_requests_to_one_host_keep_their_distance(ledger: Ledger) -> None:
    ledger.answer("/a", status=302, headers={"Location": "/b"})
    begun_at = time.monotonic()
    with Fetcher(guarded_session(False, "127.0.0.1"), delay_seconds=0.1) as fetcher:
        fetcher.get(f"{ledger.url}/a")
        fetcher.get(f"{ledger.url}/c")
    assert time.monotonic() - begun_at >= 0.2


def _resolving_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Every name leads there; returns the names that were asked for."""
    asked: list[str] = []

    def resolve(host: str, port: int, *_: Any) -> Any:
        if host not in addresses:
            asked.append(host)
        found = [host] if host in addresses else addresses
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return asked
