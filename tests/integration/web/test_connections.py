"""The limits of a connection, with a real server and raw sockets."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
import requests
import uvicorn

from services.web.connections import Connections
from tests.support.waiting import eventually

Serve = Callable[..., tuple[str, int]]
GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
SLOW_GET = b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def released() -> threading.Event:
    return threading.Event()


@pytest.fixture
def serve(released: threading.Event) -> Iterator[Serve]:
    """A server whose only page answers its path; /slow waits until it is released."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while scope["path"] == "/slow" and not released.is_set():
            await asyncio.sleep(0.01)
        body = scope["path"].encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    with ExitStack() as running:

        def start(**limits: Any) -> tuple[str, int]:
            listener = socket.create_server(("127.0.0.1", 0))
            config = uvicorn.Config(app, http=Connections(**limits).protocol(), log_config=None, lifespan="off")
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
            thread.start()

            def stop() -> None:
                released.set()
                server.should_exit = True
                thread.join(30)

            running.callback(stop)
            eventually(lambda: server.started, 30)
            address: tuple[str, int] = listener.getsockname()
            return address

        yield start


@pytest.fixture
def connect() -> Iterator[Callable[..., socket.socket]]:
    with ExitStack() as opened:
        yield lambda address, *sent: opened.enter_context(closing(_connected(address, *sent)))


def _connected(address: tuple[str, int], *sent: bytes) -> socket.socket:
    connection = socket.create_connection(address, timeout=30)
    for piece in sent:
        connection.sendall(piece)
    return connection


def _rest(connection: socket.socket) -> bytes:
    """Until the other side closes it."""
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def _is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


Connect = Callable[..., socket.socket]


def ask(address: tuple[str, int], path: str = "/") -> int:
    return requests.get(f"http://{address[0]}:{address[1]}{path}", timeout=30).status_code


@pytest.mark.parametrize(
    "head",
    [
        GET + b"X: " + b"x" * 2000,
        GET + b"X: x\r\n" * 300,
        b"GET /" + b"x" * 2000,
        GET + b"X: %s\r\n\r\n" % (b"x" * 1000),
    ],
    ids=["one line", "many lines", "path", "complete"],
)
def test_a_head_that_is_too_large_is_refused(serve: Serve, connect: Connect, head: bytes) -> None:
    address = serve(head_bytes=1000)
    assert _rest(connect(address, head)).startswith(b"HTTP/1.1 431")
    assert ask(address) == 200


def test_the_rest_of_a_head_that_is_too_large_is_not_even_read(serve: Serve, connect: Connect) -> None:
    connection = connect(serve(), GET + b"X: ")
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        connection.sendall(b"x" * 50_000_000)


def test_a_head_just_below_the_limit_is_read(serve: Serve) -> None:
    host, port = serve(head_bytes=65_536)
    assert requests.get(f"http://{host}:{port}/", headers={"X": "x" * 65_000}, timeout=30).status_code == 200


@pytest.mark.parametrize(
    ("sent", "said"),
    [(b"", b""), (b"\r\n", b"HTTP/1.1 408"), (GET, b"HTTP/1.1 408")],
    ids=["silent", "blank", "half"],
)
def test_a_connection_that_sends_no_head_is_closed(serve: Serve, connect: Connect, sent: bytes, said: bytes) -> None:
    address = serve(head_seconds=0.2)
    assert _rest(connect(address, sent))[:12] == said


def test_also_the_second_head_of_a_connection_has_its_time(serve: Serve, connect: Connect) -> None:
    address = serve(head_seconds=0.2)
    connection = connect(address, GET + b"\r\n")
    assert connection.recv(12) == b"HTTP/1.1 200"
    connection.sendall(GET)
    assert b"HTTP/1.1 408" in _rest(connection)


def test_a_body_that_nobody_reads_does_not_keep_its_connection(serve: Serve, connect: Connect) -> None:
    address = serve(head_seconds=0.2)
    connection = connect(address, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
    assert _rest(connection).startswith(b"HTTP/1.1 200")


def test_a_crowd_of_silent_connections_costs_only_itself(serve: Serve, connect: Connect) -> None:
    address = serve(most_of_one=5)
    crowd = [connect(address) for _ in range(30)]
    assert [ask(address) for _ in range(3)] == [200] * 3
    eventually(lambda: sum(_is_open(one) for one in crowd) <= 5, 30)


def test_one_address_does_not_get_the_places_of_others(serve: Serve, connect: Connect) -> None:
    address = serve(most=5, most_of_one=100)
    crowd = [connect(address) for _ in range(20)]
    assert ask(address) == 200
    eventually(lambda: sum(_is_open(one) for one in crowd) <= 5, 30)


def test_who_has_too_many_requests_at_once_is_told_so_and_probes_are_answered(
    serve: Serve, connect: Connect, released: threading.Event
) -> None:
    address = serve(most_of_one=3)
    busy = [connect(address, SLOW_GET) for _ in range(3)]
    eventually(lambda: ask(address) == 503, 30)
    assert [ask(address, path) for path in ("/healthz", "/readyz?x=1", "/metrics")] == [200, 200, 200]
    assert ask(address, "/schedules") == 503
    released.set()
    assert all(one.recv(12) == b"HTTP/1.1 200" for one in busy)
    for one in busy:
        one.close()
    eventually(lambda: ask(address) == 200, 30)


def test_a_trusted_proxy_speaks_for_many(serve: Serve, connect: Connect) -> None:
    address = serve(most_of_one=2, is_proxy=lambda host: host == "127.0.0.1")
    for _ in range(5):
        connect(address, SLOW_GET)
    assert ask(address) == 200
