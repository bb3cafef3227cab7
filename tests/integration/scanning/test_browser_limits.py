"""What a page cannot make the browser engine do: hang, grow, ask for ever, or reach something private."""

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.scanning.engines.browser.limits import MEBIBYTE
from services.scanning.engines.browser_engine import BrowserEngine
from services.scanning.findings import PageFailed
from tests.support.bad_servers import BadServer
from tests.support.browsers import html, plenty, setters
from tests.support.certificate import server_tls
from tests.support.ledger import Ledger
from tests.support.scan_site import Answer, WebServer

Make = Callable[..., BrowserEngine]


def test_dialogs_popups_and_leave_taking_do_not_hold_it_up(web: WebServer, any_browser: BrowserEngine) -> None:
    web.answer("/popup", html("<script>alert('popup')</script>"))
    web.answer(
        "/",
        html("""<script>
            onbeforeunload = (event) => { event.preventDefault(); return 'stay'; };
            alert('one'); confirm('two'); prompt('three'); print();
            open('/popup'); open('/popup', '_blank', 'noopener');
            document.cookie = 'survived=' + confirm('four');
            </script><a href='/next'>next</a>"""),
    )
    seen = any_browser.visit(f"{web.url}/", plenty)
    assert seen.links == (f"{web.url}/next",)
    assert ("cookie", "survived") in setters(seen)


def test_a_login_that_only_a_dialog_could_answer_is_an_answer(web: WebServer, any_browser: BrowserEngine) -> None:
    web.answer("/", Answer("who?", status=401, headers={"WWW-Authenticate": 'Basic realm="shop"'}))
    assert any_browser.visit(f"{web.url}/", plenty).status_code == 401


def test_a_download_is_no_page(web: WebServer, any_browser: BrowserEngine) -> None:
    web.answer("/file", Answer(b"x" * 1000, content_type="application/octet-stream"))
    with pytest.raises(PageFailed, match="this is a download, not a page") as failure:
        any_browser.visit(f"{web.url}/file", plenty)
    assert not failure.value.retryable


def test_what_is_no_http_is_said_so(any_browser: BrowserEngine) -> None:
    with BadServer() as bad, pytest.raises(PageFailed, match="the response is not HTTP"):
        any_browser.visit(f"{bad.url}/not-http", plenty)


def test_a_service_worker_is_not_installed(web: WebServer, any_browser: BrowserEngine) -> None:
    web.answer("/worker.js", Answer("", content_type="text/javascript"))
    web.answer("/", html("<script>navigator.serviceWorker.register('/worker.js').catch(() => {})</script>"))
    any_browser.visit(f"{web.url}/", plenty)
    assert web.requests("/worker.js") == []


def test_redirects_that_never_end_are_given_up_for_good(web: WebServer, any_browser: BrowserEngine) -> None:
    web.answer("/", Answer("", status=302, headers={"Location": "/"}))
    with pytest.raises(PageFailed, match="too many redirects") as failure:
        any_browser.visit(f"{web.url}/", plenty)
    assert not failure.value.retryable


def test_a_page_that_never_ends_is_seen_as_far_as_it_came(web: WebServer, browser: Make) -> None:
    def drip() -> Iterator[bytes]:
        yield b"<!DOCTYPE html><body><a href='/first'>first</a>" + b" " * 100_000  # more than the server holds back
        while True:
            time.sleep(0.1)
            yield b"<p>more</p>"

    web.answer("/", lambda _: Answer(drip(), cookies=("early=1",)))
    seen = browser(page_seconds=4.0).visit(f"{web.url}/", plenty)
    assert seen.notes == ("did not finish loading within 4 s; the findings cover what had loaded by then",)
    assert seen.links == (f"{web.url}/first",)
    assert setters(seen) == {("cookie", "early"): ""}


def test_a_page_that_loads_itself_for_ever_is_seen_and_left(web: WebServer, browser: Make) -> None:
    again = "<meta http-equiv=refresh content=0>"
    web.answer("/", Answer(again, cookies=("again=1",)))
    web.answer("/next", html("<a href='/x'>x</a>"))
    engine = browser()
    assert ("cookie", "again") in setters(engine.visit(f"{web.url}/", plenty))
    assert engine.visit(f"{web.url}/next", plenty).links == (f"{web.url}/x",)


def test_a_server_that_never_answers_is_tried_again(browser: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(PageFailed, match="no response within 2 s") as failure:
            browser(page_seconds=2.0).visit(f"http://127.0.0.1:{silent.getsockname()[1]}/", plenty)
        assert failure.value.retryable


def test_nobody_there_is_a_reason(any_browser: BrowserEngine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(PageFailed, match="the connection was refused") as failure:
        any_browser.visit(f"http://127.0.0.1:{port}/", plenty)
    assert failure.value.retryable


def test_a_script_that_never_ends_costs_its_page_only(web: WebServer, browser: Make) -> None:
    web.answer("/", Answer("<script>document.cookie = 'busy=1'; for (;;) {}</script>", cookies=("early=1",)))
    web.answer("/next", html("<a href='/x'>x</a>"))
    engine = browser(page_seconds=4.0, settle_seconds=0.5, collect_seconds=1.0)
    seen = engine.visit(f"{web.url}/", plenty)
    assert "did not finish loading" in seen.notes[0]
    assert ("cookie", "early") in setters(seen)
    assert engine.visit(f"{web.url}/next", plenty).links == (f"{web.url}/x",)


def test_a_page_that_loads_too_much_is_cut(web: WebServer, browser: Make) -> None:
    web.answer("/large.css", Answer(b"/*" + b"x" * 3 * MEBIBYTE, content_type="text/css"))
    web.answer("/", html("<link rel=stylesheet href=/large.css><a href=/x>x</a>"))
    seen = browser(max_bytes=MEBIBYTE).visit(f"{web.url}/", plenty)
    assert seen.notes == ("loaded more than 1 MB; the rest was cut",)
    assert seen.status_code == 200


def test_a_page_that_asks_too_often_is_cut(web: WebServer, browser: Make) -> None:
    web.answer("/", html("<script>for (let i = 0; i < 2000; i++) new Image().src = '/i' + i</script>"))
    seen = browser(max_requests=20).visit(f"{web.url}/", plenty)
    assert "made more than 20 requests; the rest was not loaded" in seen.notes
    assert len(web.requests()) < 1000  # some were under way


def test_a_page_that_eats_memory_is_ended_and_the_next_one_is_seen(web: WebServer, browser: Make) -> None:
    web.answer("/", html("<script>const kept = []; for (;;) kept.push(new Uint8Array(64 << 20).fill(1))</script>"))
    web.answer("/next", html("<a href='/x'>x</a>"))
    engine = browser(max_memory_bytes=1200 * MEBIBYTE, page_seconds=120.0)
    with pytest.raises(PageFailed, match="needs more than 1200 MB of memory") as failure:
        engine.visit(f"{web.url}/", plenty)
    assert not failure.value.retryable
    assert engine.visit(f"{web.url}/next", plenty).links == (f"{web.url}/x",)


def test_a_certificate_that_nobody_vouches_for_is_not_trusted(tmp_path: Path, any_browser: BrowserEngine) -> None:
    with WebServer() as server:
        server._server.socket = server_tls(tmp_path).wrap_socket(server._server.socket, server_side=True)
        with pytest.raises(PageFailed, match="the certificate is not trusted") as failure:
            any_browser.visit(server.url.replace("http:", "https:"), plenty)
        assert not failure.value.retryable
        assert server.requests() == []


def test_a_page_that_lies_about_itself_is_seen_all_the_same(web: WebServer, any_browser: BrowserEngine) -> None:
    lie = "Object.keys = () => [1, {}, null]; Array.from = () => ({ filter: () => ({ slice: () => 7 }) })"
    web.answer("/", Answer(f"<script>{lie}</script><a href=/x>x</a>", cookies=("honest=1",)))
    seen = any_browser.visit(f"{web.url}/", plenty)
    assert seen.links == ()
    assert ("cookie", "honest") in setters(seen)


# --- nothing private is reached -------------------------------------------------------------------------------------


@pytest.fixture
def inside() -> Iterator[Ledger]:
    """Something private at 127.0.0.1; the browser of these tests may go to the name localhost only."""
    with Ledger() as ledger:
        yield ledger


@pytest.fixture
def outside() -> Iterator[WebServer]:
    with WebServer("localhost") as server:
        yield server


PRIVATE_PAGE = """
<img src="PRIVATE/image"><img src="/jump"><iframe src="PRIVATE/frame"></iframe><link rel="preconnect" href="PRIVATE">
<img src="http://169.254.169.254/latest/meta-data/"><img src="http://[::ffff:127.0.0.1]:PORT/six">
<script>
  fetch("PRIVATE/fetch", { mode: "no-cors" }).catch(() => {});
  new WebSocket("ws://127.0.0.1:PORT/socket");
  const peer = new RTCPeerConnection({ iceServers: [{ urls: "stun:127.0.0.1:STUN" }] });
  peer.createDataChannel("x");
  peer.createOffer().then((offer) => peer.setLocalDescription(offer));
  navigator.sendBeacon("PRIVATE/beacon");
  open("PRIVATE/popup");
</script>"""


def private_page(private: Ledger, stun_port: int) -> str:
    page = PRIVATE_PAGE
    for word, value in (("PRIVATE", private.url), ("PORT", private.url.split(":")[2]), ("STUN", str(stun_port))):
        page = page.replace(word, value)
    return page


def test_a_page_cannot_reach_what_is_not_allowed(inside: Ledger, outside: WebServer, browser: Make) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stun:
        stun.bind(("127.0.0.1", 0))
        stun.settimeout(0.5)
        outside.answer("/jump", Answer("", status=302, headers={"Location": f"{inside.url}/jumped"}))
        outside.answer("/", html(private_page(inside, stun.getsockname()[1])))
        seen = browser(allowed="localhost").visit(f"{outside.url}/", plenty)
        (note,) = seen.notes
        refused = note.removeprefix("requests to addresses that are not public were refused: ")
        assert set(refused.split(", ")) == {"127.0.0.1", "169.254.169.254", "::ffff:7f00:1"}
        assert inside.requests() == []
        with pytest.raises(TimeoutError):
            stun.recv(1)


def test_the_same_page_reaches_what_is_allowed(inside: Ledger, outside: WebServer, browser: Make) -> None:
    page = private_page(inside, 9).replace("http://169.254.169.254", "")
    outside.answer("/jump", Answer("", status=302, headers={"Location": f"{inside.url}/jumped"}))
    outside.answer("/", html(page))
    browser(allowed="localhost, 127.0.0.1").visit(f"{outside.url}/", plenty)
    reached = {request.path for request in inside.requests()}
    assert reached >= {"/image", "/jumped", "/frame", "/six", "/fetch", "/socket", "/beacon"}


def test_a_page_behind_a_private_address_is_refused_with_the_way_out(
    inside: Ledger, outside: WebServer, browser: Make
) -> None:
    engine = browser(allowed="localhost")
    outside.answer("/", Answer("", status=302, headers={"Location": inside.url}))
    for url in (inside.url, outside.url):
        with pytest.raises(PageFailed, match=r"127\.0\.0\.1 is not a public address.*FETCH_ALLOWED") as failure:
            engine.visit(url, plenty)
        assert not failure.value.retryable
    assert inside.requests() == []
