"""The browser's only way out: what it lets through, and what it never connects to."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest
import requests

from services.fetching import Guard
from services.fetching.detours import Detours
from services.scanning.engines.guarded_proxy import GuardedProxy, ProxyLimits
from tests.support.ledger import Ledger
from tests.support.waiting import eventually

T = TypeVar("T")
PLENTY = 10_000_000


class Running:
    """A proxy in an event loop of its own, and calls through it as a browser makes them."""

    def __init__(self, allowed: str, limits: ProxyLimits = ProxyLimits(), connect_to: str = "") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.proxy = GuardedProxy(Guard.parse(False, allowed), limits, Detours.parse(connect_to))
        self.address = self._do(self.proxy.start())
        self.begin_page()

    def begin_page(self, max_bytes: int = PLENTY) -> None:
        self.call(lambda: self.proxy.begin_page(max_bytes))

    def call(self, function: Callable[[], T]) -> T:
        async def inside() -> T:
            return function()

        return self._do(inside())

    def get(self, url: str, **options: Any) -> requests.Response:
        with requests.Session() as session:
            session.trust_env = False
            return session.request(options.pop("method", "GET"), url, proxies={"http": self.address}, **options)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", int(self.address.rpartition(":")[2])), 5)

    def say(self, text: str) -> bytes:
        """Everything that comes back until the proxy hangs up."""
        with self.connect() as connection:
            connection.sendall(text.encode())
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def close(self) -> None:
        self._do(self.proxy.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


@pytest.fixture
def running() -> Iterator[Callable[..., Running]]:
    made: list[Running] = []

    def make(allowed: str = "127.0.0.0/8", connect_to: str = "", **limits: Any) -> Running:
        made.append(Running(allowed, ProxyLimits(**limits), connect_to))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger() as ledger:
        yield ledger


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """Host names of the test: the addresses of each answer, one answer after the other; none: unknown."""
    known: dict[str, list[list[str]]] = {}
    native = socket.getaddrinfo

    def answer(host: str, *more: Any) -> list[Any]:
        if host not in known:
            return native(host, *more)
        addresses = known[host].pop(0)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [found for address in addresses for found in native(address, *more)]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    return known


Make = Callable[..., Running]
Names = dict[str, list[list[str]]]


def test_a_request_arrives_as_if_it_came_without_a_proxy(running: Make, ledger: Ledger) -> None:
    answer = running().get(f"{ledger.url}/a//b?c=d", method="POST", data=b"x" * 100_000, headers={"X-Own": "1"})
    (request,) = ledger.requests()
    assert (answer.status_code, answer.text) == (200, "ok")
    assert (request.method, request.target, len(request.body)) == ("POST", "/a//b?c=d", 100_000)
    assert (request.headers["X-Own"], request.headers["Connection"]) == ("1", "close")
    assert request.headers["Proxy-Connection"] is None


def test_a_host_may_be_reached_elsewhere_if_that_is_allowed(running: Make, ledger: Ledger) -> None:
    elsewhere = f"*.example={ledger.url.removeprefix('http://')}"
    assert running(connect_to=elsewhere).get("http://shop.example/a").text == "ok"
    assert ledger.requests()[0].headers["Host"] == "shop.example"
    with pytest.raises(requests.ConnectionError):
        running(allowed="127.0.0.2/32", connect_to=elsewhere).get("http://shop.example/b")
    assert len(ledger.requests()) == 1


def test_a_tunnel_carries_both_directions(running: Make, ledger: Ledger) -> None:
    host = ledger.url.removeprefix("http://")
    said = running().say(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\nGET /in HTTP/1.0\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200")
    assert [request.path for request in ledger.requests()] == ["/in"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/", "http://localhost:{port}/", "http://127.1:{port}/"])
def test_what_is_not_allowed_is_never_connected_to(running: Make, ledger: Ledger, url: str) -> None:
    run = running(allowed="127.0.0.2/32")
    with pytest.raises(requests.ConnectionError):
        run.get(url.format(port=ledger.url.rpartition(":")[2]))
    (host,) = run.call(lambda: run.proxy.refused_hosts)
    failure = run.call(lambda: run.proxy.failure(host))
    assert failure is not None
    assert not failure.retryable
    assert "FETCH_ALLOWED_NETWORKS" in str(failure)
    assert ledger.requests() == []


def test_a_refused_tunnel_is_told_so(running: Make, ledger: Ledger) -> None:
    host = ledger.url.removeprefix("http://")
    assert running(allowed="").say(f"CONNECT {host} HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 502")
    assert ledger.requests() == []


def test_a_name_is_resolved_once_and_that_answer_is_connected_to(running: Make, ledger: Ledger, names: Names) -> None:
    names["rebinding.example"] = [["127.0.0.1"], ["127.0.0.9"]]
    run = running(allowed="127.0.0.1/32")
    url = f"http://rebinding.example:{ledger.url.rpartition(':')[2]}/"
    assert run.get(url).status_code == 200
    with pytest.raises(requests.ConnectionError):
        run.get(url)
    assert run.call(lambda: run.proxy.refused_hosts) == ["rebinding.example"]


def test_an_address_that_does_not_answer_leaves_the_next_one_its_chance(
    running: Make, ledger: Ledger, names: Names
) -> None:
    names["two.example"] = [["127.0.0.7", "127.0.0.1"]]
    assert running().get(f"http://two.example:{ledger.url.rpartition(':')[2]}/").status_code == 200


def test_a_name_that_does_not_exist_is_a_reason(running: Make, names: Names) -> None:
    names["nobody.example"] = [[]]
    run = running()
    assert run.say("CONNECT nobody.example:443 HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 502")
    failure = run.call(lambda: run.proxy.failure("nobody.example"))
    assert failure is not None
    assert (str(failure), failure.retryable) == ("nobody.example: the host name cannot be resolved", True)
    assert run.call(lambda: run.proxy.refused_hosts) == []


def test_nothing_goes_through_before_a_page_begins(ledger: Ledger, running: Make) -> None:
    run = running()
    run.call(run.proxy.shut)
    with pytest.raises(requests.ConnectionError):
        run.get(ledger.url)
    assert ledger.requests() == []
    run.begin_page()
    assert run.get(ledger.url).status_code == 200


def test_a_page_gets_its_share_of_bytes_and_no_more(running: Make, ledger: Ledger) -> None:
    ledger.answer("/large", body=b"x" * 5_000_000)
    run = running()
    run.begin_page(1_000_000)
    with pytest.raises(requests.RequestException):
        run.get(f"{ledger.url}/large")
    with pytest.raises(requests.ConnectionError):
        run.get(f"{ledger.url}/next")
    assert run.call(lambda: run.proxy.is_shut)
    assert [request.path for request in ledger.requests()] == ["/large"]


class Stubborn:
    """A server that never hangs up by itself, and keeps what it was told; its answer comes in pieces."""

    def __init__(self, *pieces: bytes, pause_seconds: float = 0.0) -> None:
        self._pieces, self._pause_seconds = pieces, pause_seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.heard = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, self._listener:
            self.heard += connection.recv(65536)
            for piece in self._pieces:
                connection.sendall(piece)
                time.sleep(self._pause_seconds)
            while more := connection.recv(65536):
                self.heard += more

    def join(self) -> None:
        self._thread.join(10)


def test_a_second_request_on_a_connection_does_not_reach_the_first_ones_server(running: Make) -> None:
    server = Stubborn(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    run = running(idle_seconds=0.5)
    first = f"GET {server.url}/first HTTP/1.1\r\nHost: x\r\n\r\n"
    said = run.say(f"{first}GET http://127.0.0.1:9/second HTTP/1.1\r\nHost: x\r\n\r\n")
    server.join()
    assert said.endswith(b"\r\n\r\nok")
    assert server.heard == b"GET /first HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def test_a_slow_answer_is_not_an_idle_connection(running: Make) -> None:
    server = Stubborn(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", *[b"x"] * 10, pause_seconds=0.3)
    assert running(idle_seconds=2.0).get(server.url).text == "x" * 10
    server.join()


@pytest.mark.parametrize(
    "head",
    [
        "GET / HTTP/1.1",
        "GET ftp://127.0.0.1/ HTTP/1.1",
        "CONNECT 127.0.0.1 HTTP/1.1",
        "CONNECT :x HTTP/1.1",
        "nonsense",
    ],
)
def test_what_no_browser_says_is_refused(running: Make, head: str) -> None:
    assert running().say(f"{head}\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_a_head_without_an_end_is_hung_up_on(running: Make) -> None:
    with running().connect() as connection, pytest.raises(ConnectionError):
        connection.sendall(b"x" * 50_000_000)


def test_other_users_of_the_machine_are_not_served(
    running: Make, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = running()
    nobody = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: nobody)
    with pytest.raises(requests.ConnectionError):
        run.get(ledger.url)
    assert ledger.requests() == []


def test_a_connection_on_which_nobody_speaks_is_closed(running: Make, ledger: Ledger) -> None:
    host = ledger.url.removeprefix("http://")
    assert running(idle_seconds=0.2).say(f"CONNECT {host} HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")


def test_connections_beyond_the_limit_are_closed_and_the_others_are_not(running: Make, ledger: Ledger) -> None:
    run = running(max_connections=2)
    with run.connect(), run.connect():
        eventually(lambda: len(run.proxy._connections) == 2)
        assert run.say("") == b""
    eventually(lambda: run.get(ledger.url).status_code == 200)
