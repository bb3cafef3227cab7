"""Guarded forward proxy: the browser's only route to the network; it connects to allowed addresses only.

It resolves a name, checks the address and connects to exactly that address. Neither a second DNS response nor a
redirect leads to a private one. It serves only processes of this user and runs in the event loop that started it.
"""

import asyncio
import os
import re
import socket
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from services.errors import BlockedAddress
from services.fetching import FetchFailed, Guard, failure_of
from services.fetching.addresses import parse_address
from services.fetching.detours import Detours
from services.fetching.resolving import resolving

CHUNK_BYTES = 64 * 1024
MAX_HEAD_BYTES = 256 * 1024
MAX_FAILURES_KEPT = 1000
HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization"})
ESTABLISHED = "01"  # in /proc/net/tcp


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    max_connections: int = 256
    connect_seconds: float = 15.0
    idle_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class _Request:
    """The browser's request line, and for plain http the request to forward."""

    host: str
    port: int
    head: bytes | None = None  # None: a tunnel
    body_bytes: int = 0


class _Over(Exception):
    """The page exceeded its limits."""


class GuardedProxy:
    def __init__(self, guard: Guard, limits: ProxyLimits = ProxyLimits(), detours: Detours = Detours()) -> None:
        self._guard, self._limits, self._detours = guard, limits, detours
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._bytes_left = 0
        self._failures: dict[str, FetchFailed] = {}

    async def start(self) -> str:
        """Returns the proxy's address. Nothing passes before `begin_page`."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=MAX_HEAD_BYTES)
        return f"http://127.0.0.1:{self._port}"

    def begin_page(self, max_bytes: int) -> None:
        self._bytes_left = max_bytes
        self._failures.clear()

    def shut(self) -> None:
        """Block all traffic until the next page begins."""
        self._bytes_left = 0
        for connection in self._connections:
            connection.cancel()

    @property
    def is_shut(self) -> bool:
        return self._bytes_left <= 0

    def failure(self, host: str) -> FetchFailed | None:
        """Why this host could not be reached for the current page."""
        return self._failures.get(host)

    @property
    def refused_hosts(self) -> list[str]:
        """Hosts that the current page tried to reach and that are not allowed."""
        return [host for host, failure in self._failures.items() if isinstance(failure.__cause__, BlockedAddress)]

    async def close(self) -> None:
        self.shut()
        if self._server is not None:
            self._server.close()
        if self._connections:
            await asyncio.wait(self._connections, timeout=5)

    @property
    def _port(self) -> int:
        assert self._server is not None  # noqa: S101 - asked after the start only
        return int(self._server.sockets[0].getsockname()[1])

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a stream server calls in a task
        self._connections.add(task)
        try:
            if len(self._connections) <= self._limits.max_connections and self._is_ours(writer):
                await self._serve(reader, writer)
        except* (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError, _Over):
            pass  # one side disconnected, the connection was idle too long, or the page exceeded its limits
        finally:
            self._connections.discard(task)
            self._end(writer)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        async with asyncio.timeout(self._limits.idle_seconds):
            head = await reader.readuntil(b"\r\n\r\n")
        request = _read(head)
        if request is None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            return
        self._count(len(head))
        try:
            with self._noting_failures(request.host):
                their_reader, their_writer = await self._connect(request.host, request.port)
        except ConnectionError:
            # Without a response the browser shows an error, rather than something it could take for a page of that
            # host.
            if request.head is None:
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            return
        try:
            await self._relay(request, (reader, writer), (their_reader, their_writer))
        finally:
            self._end(their_writer)

    async def _relay(
        self, request: _Request, ours: tuple[StreamReader, StreamWriter], theirs: tuple[StreamReader, StreamWriter]
    ) -> None:
        (reader, writer), (their_reader, their_writer) = ours, theirs
        async with asyncio.timeout(self._limits.idle_seconds) as idle, asyncio.TaskGroup() as both:
            if request.head is None:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                both.create_task(self._copy(reader, their_writer, idle))
            else:
                their_writer.write(request.head)
                both.create_task(self._copy(reader, their_writer, idle, request.body_bytes))
            both.create_task(self._copy(their_reader, writer, idle))

    async def _copy(
        self, reader: StreamReader, writer: StreamWriter, idle: asyncio.Timeout, at_most: int | None = None
    ) -> None:
        left = at_most
        while left is None or left > 0:
            chunk = await reader.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left))
            if not chunk:
                break
            self._count(len(chunk))
            left = None if left is None else left - len(chunk)
            writer.write(chunk)
            await writer.drain()
            idle.reschedule(asyncio.get_running_loop().time() + self._limits.idle_seconds)
        if at_most is None and writer.can_write_eof():
            writer.write_eof()

    def _end(self, writer: StreamWriter) -> None:
        if self.is_shut:
            writer.transport.abort()
        else:
            writer.close()

    def _count(self, octets: int) -> None:
        if self.is_shut:
            raise _Over
        self._bytes_left -= octets
        if self.is_shut:
            self.shut()

    async def _connect(self, host: str, port: int) -> tuple[StreamReader, StreamWriter]:
        """The allowed addresses share the time, so that a silent one leaves time for the others."""
        deadline = asyncio.get_running_loop().time() + self._limits.connect_seconds
        target, target_port = self._detours.of(host, port)
        async with asyncio.timeout_at(deadline):
            addresses = await asyncio.wrap_future(resolving(target, target_port))
        allowed = [address for address in addresses if self._guard.allows(host, parse_address(address))]
        if not allowed:
            raise BlockedAddress(host, addresses[0])
        for others, address in zip(range(len(allowed) - 1, -1, -1), allowed, strict=True):
            seconds = (deadline - asyncio.get_running_loop().time()) / (others + 1)
            try:
                async with asyncio.timeout(seconds):
                    return await asyncio.open_connection(address, target_port)
            except OSError:  # TimeoutError is one
                if not others:
                    raise
        raise AssertionError("unreachable: the last address returns or raises")

    @contextmanager
    def _noting_failures(self, host: str) -> Iterator[None]:
        """Records the cause of a failure: the browser learns only that there was no response."""
        try:
            yield
        except (BlockedAddress, OSError, ValueError) as error:
            if len(self._failures) < MAX_FAILURES_KEPT:
                failure = failure_of(error, host)
                failure.__cause__ = error
                self._failures.setdefault(host, failure)
            raise ConnectionError from error

    def _is_ours(self, writer: StreamWriter) -> bool:
        """Whether the peer is a process of this user. Without /proc every local process is accepted."""
        table = Path("/proc/self/net/tcp")
        if not table.exists():
            return True
        port, own = writer.get_extra_info("peername")[1], self._port
        return os.geteuid() in _owners(table.read_text(), _socket_end(port), _socket_end(own))


def _socket_end(port: int) -> str:
    """127.0.0.1 and the port in the notation of /proc/net/tcp."""
    return f"{int.from_bytes(socket.inet_aton('127.0.0.1'), sys.byteorder):08X}:{port:04X}"


def _owners(table: str, local: str, remote: str) -> set[int]:
    rows = (line.split() for line in table.splitlines()[1:])
    return {int(row[7]) for row in rows if row[1:4] == [local, remote, ESTABLISHED]}


def _read(head: bytes) -> _Request | None:
    """None: not a request that a browser sends to a proxy."""
    line, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    try:
        method, target, version = line.decode("ascii").split(" ")
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or not version.startswith("HTTP/1."):
        return None
    if method == "CONNECT":
        return _Request(host, port) if port else None
    if parts.scheme != "http":
        return None
    path = re.sub(r"^http://[^/?#]*", "", target, count=1, flags=re.IGNORECASE)
    return _Request(host, port or 80, _onward(method, path, fields), _body_bytes(fields))


def _onward(method: str, path: str, fields: list[bytes]) -> bytes:
    """One request per connection: the next one may be for another host."""
    kept = [field for field in fields if field.partition(b":")[0].strip().lower() not in HOP_BY_HOP]
    asked = path if path.startswith("/") else f"/{path}"
    return b"\r\n".join([f"{method} {asked} HTTP/1.1".encode(), *kept, b"Connection: close", b"", b""])


def _body_bytes(fields: list[bytes]) -> int:
    for field in fields:
        name, _, value = field.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return 0
