"""A TCP door in front of the test Redis: delays, forges or cuts off what Redis says, counts what it is asked."""

import socket
import threading
from collections import Counter
from contextlib import suppress
from typing import BinaryIO, Self
from urllib.parse import unquote, urlsplit


class RedisProxy:
    """Listens on `url` and forwards to the unix socket of `target_url`.

    `refusing`         connections are closed as soon as they are accepted
    `delay_seconds`    replies come that much later
    `lost_replies`     command -> how many replies to it are lost: applied by Redis, then the connection is cut
    `gates`            command -> the next one is forwarded when this event is set
    `forged_replies`   command -> what is answered instead of asking Redis
    `connections`      how many were tried
    `requests`         command -> how many arrived
    """

    def __init__(self, target_url: str) -> None:
        self._target = unquote(urlsplit(target_url).path)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[_Pair] = []
        self.closing = threading.Event()
        self._thread = threading.Thread(target=self._accept)
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self.refusing = False
        self.delay_seconds = 0.0
        self.lost_replies: Counter[str] = Counter()
        self.gates: dict[str, threading.Event] = {}
        self.forged_replies: dict[str, bytes] = {}
        self.connections = 0
        self.requests: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self.cut()
        for pair in self._pairs:
            pair.join()

    def cut(self) -> None:
        """Cut all connections."""
        for pair in self._pairs:
            pair.cut()

    def _accept(self) -> None:
        with suppress(OSError):  # shut down
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                if self.refusing:
                    client.close()
                else:
                    self._pairs.append(_Pair(self, client, self._target))


class _Pair:
    """A client's connection and its counterpart at Redis."""

    def __init__(self, proxy: RedisProxy, client: socket.socket, target: str) -> None:
        self._proxy, self._client = proxy, client
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(target)
        self._loses_reply = False
        self._threads = [threading.Thread(target=run) for run in (self._forward_requests, self._forward_replies)]
        for thread in self._threads:
            thread.start()

    def cut(self) -> None:
        for end in (self._client, self._server):
            with suppress(OSError):  # already cut
                end.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        self._client.close()
        self._server.close()

    def _forward_requests(self) -> None:
        with suppress(OSError), self._client.makefile("rb") as requests:
            while request := _read_request(requests):
                self._handle(_command(request), request)
        self.cut()

    def _handle(self, command: str, request: bytes) -> None:
        self._proxy.requests[command] += 1
        if forged := self._proxy.forged_replies.get(command):
            self._client.sendall(forged)
            return
        if self._proxy.lost_replies[command] > 0:
            self._proxy.lost_replies[command] -= 1
            self._loses_reply = True
        if gate := self._proxy.gates.pop(command, None):
            gate.wait(10)
        self._server.sendall(request)

    def _forward_replies(self) -> None:
        with suppress(OSError):
            while (reply := self._server.recv(65536)) and not self._loses_reply:
                self._proxy.closing.wait(self._proxy.delay_seconds)
                self._client.sendall(reply)
        self.cut()


def _read_request(stream: BinaryIO) -> bytes:
    """One whole request: `*<n>`, then n times `$<length>` and the bytes; empty at the end of the connection."""
    head = stream.readline()
    parts = [head]
    for _ in range(int(head[1:] or 0)):
        size = stream.readline()
        parts += [size, stream.read(int(size[1:] or 0) + 2)]
    return b"".join(parts)


def _command(request: bytes) -> str:
    return request.split(b"\r\n", 3)[2].decode().upper()
