"""Connection limits: header size, time to receive the headers, and connections per address and in total.

A connection is *silent* while it waits for the headers of a request. When a limit is exceeded, the connection that has
been silent longest is closed, so that a flood of idle connections displaces only itself. Probes are exempt.
"""

import asyncio
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 10.0
MOST_CONNECTIONS = 1000
MOST_OF_ONE_ADDRESS = 200  # an office behind one address has dozens of tabs with up to seven connections each
IPV6_PREFIX = 64  # the usual allocation of one customer, which holds plenty of addresses
PROBES = frozenset({b"/healthz", b"/readyz", b"/metrics"})

TOO_LARGE = b"431 Request Header Fields Too Large"
TOO_SLOW = b"408 Request Timeout"
TOO_MANY = b"503 Service Unavailable"


@dataclass(slots=True, eq=False)
class Connections:
    """Every connection of one server, by address. Only the event loop touches it."""

    head_bytes: int = HEAD_BYTES
    head_seconds: float = HEAD_SECONDS
    most: int = MOST_CONNECTIONS
    most_of_one: int = MOST_OF_ONE_ADDRESS
    is_proxy: Callable[[str], bool] = lambda _: (
        False
    )  # a proxy serves many clients, so the limit per address does not apply
    _open: dict["LimitedHttp", str | None] = field(default_factory=dict)  # with the address that it is counted under
    _silent: dict["LimitedHttp", None] = field(default_factory=dict)  # the longest silence first
    _of: dict[str, set["LimitedHttp"]] = field(default_factory=dict)

    def protocol(self) -> Any:
        """For uvicorn, which expects a class but only calls it."""
        return partial(LimitedHttp, self)

    def add(self, new: "LimitedHttp", host: str | None) -> None:
        address = None if host is None or self.is_proxy(host) else _network(host)
        self._open[new], self._silent[new] = address, None
        if address is not None:
            self._of.setdefault(address, set()).add(new)
        self._make_room(new)

    def is_beyond(self, one: "LimitedHttp") -> bool:
        address = self._open.get(one)
        own = 0 if address is None else len(self._of[address])
        return len(self._open) > self.most or own > self.most_of_one

    def speaks(self, one: "LimitedHttp") -> None:
        self._silent.pop(one, None)

    def falls_silent(self, one: "LimitedHttp") -> None:
        if one in self._open:
            self._silent.pop(one, None)
            self._silent[one] = None

    def remove(self, gone: "LimitedHttp") -> None:
        self._silent.pop(gone, None)
        address = self._open.pop(gone, None)
        if address is not None and (others := self._of.get(address)):
            others.discard(gone)
            if not others:
                del self._of[address]

    def _make_room(self, new: "LimitedHttp") -> None:
        if not self.is_beyond(new):
            return
        for one in [one for one in self._open if one.transport.is_closing()]:
            self.remove(one)  # a closed websocket, of which the HTTP protocol is not notified
        own = self._of.get(self._open[new] or "", set())
        candidates = own if len(own) > self.most_of_one else self._open
        oldest = next((one for one in self._silent if one is not new and one in candidates), None)
        if self.is_beyond(new) and oldest is not None:
            self.remove(oldest)
            oldest.transport.close()


def _network(host: str) -> str:
    """An IPv4 address, or the network around an IPv6 one."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))


class LimitedHttp(HttpToolsProtocol):
    """uvicorn's HTTP protocol with a timeout and a size limit for the headers."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._all = connections
        self._waits_for_head, self._head_bytes = True, 0
        self._is_refused = False
        self._clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._all.add(self, self.client[0] if self.client else None)
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        self._all.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._waits_for_head:
            self._head_bytes += len(data)
            if self._clock is None:  # a keep-alive connection
                self._start_clock()
        super().data_received(data)
        if self._waits_for_head and self._head_bytes > self._all.head_bytes:
            self._refuse(TOO_LARGE)

    def on_headers_complete(self) -> None:
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self._all.head_bytes:
            self._refuse(TOO_LARGE)
        elif self._all.is_beyond(self) and self.url.partition(b"?")[0] not in PROBES:
            self._refuse(TOO_MANY)
        if self._is_refused:
            raise httptools.HttpParserError("refused")  # the parser stops here
        self._stop_clock()
        self._waits_for_head, self._head_bytes = False, 0
        self._all.speaks(self)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._waits_for_head = True
        cycle: RequestResponseCycle | None = self.cycle  # None for a websocket, contrary to uvicorn's types
        if cycle is not None and cycle.response_complete:
            self._start_clock()  # the response was sent before the body arrived, and the keep-alive timer is gone

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:
            self._all.falls_silent(self)
            if not self._waits_for_head:
                self._start_clock()  # for the rest of an unread body

    def handle_websocket_upgrade(self) -> None:
        self._stop_clock()
        self._all.speaks(self)  # it still counts
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        if not self._is_refused:
            super().send_400_response(msg)

    # --- the clock ---

    def _start_clock(self) -> None:
        self._stop_clock()
        self._clock = self.loop.call_later(self._all.head_seconds, self._time_is_over)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _time_is_over(self) -> None:
        self._clock = None
        if self._head_bytes and self._waits_for_head:
            self._refuse(TOO_SLOW)
        else:
            self.transport.close()

    def _refuse(self, status: bytes) -> None:
        self._is_refused = True
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()
