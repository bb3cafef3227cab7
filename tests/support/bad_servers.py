"""A misbehaving web server, one bad habit per path.

with BadServer() as bad:
    fetcher.get(f"{bad.url}/gzip-bomb")

The habits are in bad_habits.py. An endless response ends when the client disconnects or the server is closed.
"""

import socket
import socketserver
import ssl
import threading
from typing import Self, cast

from tests.support.bad_habits import HABITS, Peer, not_found


class BadServer:
    """Listens on a free port of 127.0.0.1 until it is closed."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._closed = threading.Event()
        self._answers: dict[str, bytes] = {}
        self._paths: list[str] = []
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, path: str, raw: bytes) -> None:
        self._answers[path] = raw

    def hits(self, path: str) -> int:
        return self._paths.count(path)

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, connection: socket.socket) -> None:
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True)
        with connection:
            head = connection.recv(65536)
            path = head.split(b" ")[1].decode("ascii").partition("?")[0] if b" " in head else ""
            self._paths.append(path)
            peer = Peer(connection, self._closed)
            if path in self._answers:
                peer.send(self._answers[path])
            else:
                HABITS.get(path, not_found)(peer)

    def _handler(self) -> type[socketserver.BaseRequestHandler]:
        serve = self._serve

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                serve(cast("socket.socket", self.request))

        return Handler


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent: these habits make clients disconnect."""

    def shutdown_request(self, request: object) -> None:
        """Does nothing: every habit closes its connection in its own way."""
