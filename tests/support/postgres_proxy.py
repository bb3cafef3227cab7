"""A TCP door in front of the test Postgres: one statement's answer comes late or never, one connection hangs or breaks.

with PostgresProxy(database_url) as proxy:
    replica = cluster.one("slow", DATABASE_URL=proxy.url)
    late = proxy.delay("COMMIT", after="INSERT INTO job_executions")
    late.await_struck()
    …
    late.release()

One thread serves all connections of a proxy and looks only at what the clients send, so it costs little. To act on one
replica, give it a proxy of its own.
"""

import asyncio
import re
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self, TypeVar, cast
from urllib.parse import parse_qs, unquote, urlsplit

T = TypeVar("T")

ENCRYPTION_REQUESTS = (80877103, 80877104)  # SSLRequest, GSSENCRequest
NO = b"N"
PREPARE = re.compile(rb"PREPARE (\w+) .*?; EXECUTE \1\b", re.DOTALL)
EXECUTE = re.compile(rb"EXECUTE (\w+)")
PATIENCE_SECONDS = 60.0


class Effect(Enum):
    DELAY = "Postgres does it, the answer is delivered later"
    LOSE = "Postgres does it, the answer is lost and the connection cut"
    HOLD = "Postgres does it, then nothing comes through in either direction, not even an end of the connection"
    LATE = "Postgres hears of it later"
    CUT = "the connection is cut before Postgres hears of it"


@dataclass(eq=False, slots=True)
class Fault:
    """A fault that hits the next `times` statements containing `text`, in a transaction that has already sent `after`.

    `hits` counts how often it has struck. What it withholds is delivered after `seconds`, or by `release`, which ends
    the fault.
    """

    effect: Effect
    text: bytes
    after: bytes
    times: int
    seconds: float | None
    proxy: "PostgresProxy" = field(repr=False)
    hits: int = 0
    struck: threading.Event = field(default_factory=threading.Event)
    withheld: "list[_Pair]" = field(default_factory=list)

    def await_struck(self, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Waits until it has struck for the first time."""
        assert self.struck.wait(timeout_seconds), f"no statement with {self.text.decode()!r} came by"

    def release(self) -> None:
        """Ends the fault and delivers what it withholds."""
        self.proxy._call(lambda: self.proxy._end(self))

    def matches(self, statement: bytes, earlier: list[bytes]) -> bool:
        if self.text not in statement:
            return False
        return not self.after or any(self.after in said for said in earlier)


class PostgresProxy:
    """Listens on `url` and forwards to the server of `target_url`, by its unix socket or TCP.

    `refusing`      connections are closed as soon as they are accepted
    `connections`   how many were tried
    `faults`        those that have still to strike
    """

    def __init__(self, target_url: str) -> None:
        self._target = _address(target_url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="postgres-proxy", daemon=True)
        self._pairs: set[_Pair] = set()
        self._unplugged = False
        self.refusing = False
        self.connections = 0
        self.faults: list[Fault] = []
        self._thread.start()
        self._server = self._await(self._loop.create_server(lambda: _Pair(self), "127.0.0.1", 0))
        self.url = _at_port(target_url, self._server.sockets[0].getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._call(self._server.close)
        self.cut()
        self._await(asyncio.sleep(0.01))  # lets the transports close
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- one statement, and the connection that it is on ---

    def delay(self, text: str, seconds: float | None = None, *, after: str = "", times: int = 1) -> Fault:
        """Its response comes `seconds` later, or with `release`."""
        return self._add(Effect.DELAY, text, after, times, seconds)

    def lose(self, text: str, *, after: str = "", times: int = 1) -> Fault:
        """Postgres executes it; the response is lost and the connection cut."""
        return self._add(Effect.LOSE, text, after, times)

    def hold(self, text: str, seconds: float | None = None, *, after: str = "", times: int = 1) -> Fault:
        """Postgres executes it; then the connection hangs like an unplugged cable, until `release`."""
        return self._add(Effect.HOLD, text, after, times, seconds)

    def send_late(self, text: str, seconds: float | None = None, *, after: str = "", times: int = 1) -> Fault:
        """It reaches Postgres after `seconds`, or with `release`."""
        return self._add(Effect.LATE, text, after, times, seconds)

    def cut_at(self, text: str, *, after: str = "", times: int = 1) -> Fault:
        """The connection is cut before Postgres receives it."""
        return self._add(Effect.CUT, text, after, times)

    # --- all connections ---

    def unplug(self) -> None:
        """Blocks all traffic on old and new connections, without closing them."""

        def unplug() -> None:
            self._unplugged = True
            for pair in self._pairs:
                pair.hold()

        self._call(unplug)

    def plug_in(self) -> None:
        """Delivers what was sent meanwhile, except what a fault withholds."""

        def plug_in() -> None:
            self._unplugged = False
            withheld = {pair for fault in self.faults for pair in fault.withheld}
            for pair in self._pairs - withheld:
                pair.resume()

        self._call(plug_in)

    def cut(self) -> None:
        """Cut all connections; new ones are accepted."""

        def cut() -> None:
            for pair in list(self._pairs):
                pair.abort()

        self._call(cut)

    # --- in the thread of the loop ---

    def _heard(self, pair: "_Pair", statement: bytes, earlier: list[bytes]) -> Effect | None:
        """Decides what happens to a statement before it is forwarded."""
        for fault in self.faults:
            if fault.hits < fault.times and fault.matches(statement, earlier):
                self._strike(fault, pair)
                return fault.effect
        return None

    def _strike(self, fault: Fault, pair: "_Pair") -> None:
        fault.hits += 1
        if fault.effect in (Effect.DELAY, Effect.HOLD, Effect.LATE):
            fault.withheld.append(pair)
            if fault.seconds is not None:
                self._loop.call_later(fault.seconds, self._deliver, fault, pair)
        elif fault.hits == fault.times:
            self.faults.remove(fault)
        fault.struck.set()

    def _deliver(self, fault: Fault, pair: "_Pair") -> None:
        if pair in fault.withheld:
            fault.withheld.remove(pair)
            if fault.hits == fault.times and not fault.withheld and fault in self.faults:
                self.faults.remove(fault)
            if not self._unplugged:
                pair.resume()

    def _end(self, fault: Fault) -> None:
        fault.times = fault.hits
        for pair in list(fault.withheld):
            self._deliver(fault, pair)
        if fault in self.faults:
            self.faults.remove(fault)

    async def _connect(self, pair: "_Pair") -> None:
        try:
            if isinstance(self._target, str):
                await self._loop.create_unix_connection(lambda: _ServerSide(pair), self._target)
            else:
                await self._loop.create_connection(lambda: _ServerSide(pair), *self._target)
        except OSError:
            pair.abort()

    # --- from other threads into it ---

    def _add(self, effect: Effect, text: str, after: str, times: int, seconds: float | None = None) -> Fault:
        fault = Fault(effect, text.encode(), after.encode(), times, seconds, self)
        self._call(lambda: self.faults.append(fault))
        return fault

    def _call(self, act: Callable[[], T]) -> T:
        async def call() -> T:
            return act()

        return self._await(call())

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)


class _Pair(asyncio.Protocol):
    """A client's connection, and its counterpart at Postgres once it exists."""

    def __init__(self, proxy: PostgresProxy) -> None:
        self._proxy = proxy
        self.client: asyncio.Transport | None = None
        self.server: asyncio.Transport | None = None
        self._heard = bytearray()  # received from the client, not yet forwarded
        self._has_begun = False  # the connection: what follows are typed messages
        self._transaction: list[bytes] = []  # its statements so far
        self._prepared: dict[bytes, bytes] = {}  # what the session's prepared statements say
        self._withholds = False  # the answers
        self._late = b""  # a message that is on its way to Postgres
        self._loses = False  # the next answer, and the connection with it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.client = cast(asyncio.Transport, transport)
        self._proxy.connections += 1
        if self._proxy.refusing:
            self.client.abort()
            return
        self._proxy._pairs.add(self)
        self._connecting = self._proxy._loop.create_task(self._proxy._connect(self))
        if self._proxy._unplugged:
            self.hold()

    def data_received(self, data: bytes) -> None:
        self._heard += data
        if self.server is not None:
            self.forward()

    def connection_lost(self, error: Exception | None) -> None:
        self.abort()

    def answered(self, data: bytes) -> None:
        if self._loses:
            self.abort()
        elif self.client is not None and not self.client.is_closing():
            self.client.write(data)

    def found(self, server: asyncio.Transport) -> None:
        self.server = server
        if self.client is None or self.client.is_closing():
            self.abort()
        elif self._withholds:
            server.pause_reading()
        else:
            self.forward()

    def forward(self) -> None:
        """Forwards complete messages one by one, until there is none left or a fault stops it."""
        while (message := self._next_message()) is not None:
            effect = None
            if message[:1] == b"Q":
                statement = self._spelled_out(message[5:])
                effect = self._proxy._heard(self, statement, self._transaction)
                self._remember(statement)
            if effect is Effect.CUT:
                self.abort()
                return
            if effect is Effect.LATE:
                self._late = message
                self.hold()
                return
            assert self.server is not None
            self.server.write(message)
            if effect is Effect.DELAY:
                self._withhold()
            elif effect is Effect.HOLD:
                self.hold()
                return
            elif effect is Effect.LOSE:
                self._loses = True

    def hold(self) -> None:
        if self.client is not None and not self.client.is_closing():
            self.client.pause_reading()
        self._withhold()

    def resume(self) -> None:
        self._withholds = False
        for end in (self.client, self.server):
            if end is not None and not end.is_closing():
                end.resume_reading()
        if self.server is not None and not self.server.is_closing():
            late, self._late = self._late, b""
            self.server.write(late)
            self.forward()

    def abort(self) -> None:
        self._proxy._pairs.discard(self)
        self._heard.clear()
        for end in (self.client, self.server):
            if end is not None and not end.is_closing():
                end.close()

    def _withhold(self) -> None:
        self._withholds = True
        if self.server is not None and not self.server.is_closing():
            self.server.pause_reading()

    def _next_message(self) -> bytes | None:
        heard = self._heard
        at = 1 if self._has_begun else 0  # the first message has no type
        if len(heard) < at + 4:
            return None
        (length,) = struct.unpack_from("!I", heard, at)
        if len(heard) < at + length:
            return None
        message = bytes(heard[: at + length])
        del heard[: at + length]
        if not self._has_begun:
            if struct.unpack_from("!I", message, 4)[0] in ENCRYPTION_REQUESTS:
                assert self.client is not None
                self.client.write(NO)
                return self._next_message()
            self._has_begun = True
        return message

    def _spelled_out(self, statement: bytes) -> bytes:
        """With the text of the prepared statement that it executes."""
        self._prepared.update((found[1], found[0]) for found in PREPARE.finditer(statement))
        executed = EXECUTE.search(statement)
        return statement + self._prepared.get(executed[1], b"") if executed else statement

    def _remember(self, statement: bytes) -> None:
        if statement.startswith((b"BEGIN", b"COMMIT", b"ROLLBACK")):
            self._transaction.clear()
        self._transaction.append(statement)


class _ServerSide(asyncio.Protocol):
    """Forwards the responses of Postgres."""

    def __init__(self, pair: _Pair) -> None:
        self._pair = pair

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pair.found(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._pair.answered(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._pair.abort()


def _address(url: str) -> str | tuple[str, int]:
    """The address of a URL's server: the path of its unix socket, or host and port."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    port = parts.port or int(query.get("port", ["5432"])[0])
    host = unquote(parts.hostname or query["host"][0])
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)


def _at_port(url: str, port: int) -> str:
    """The same database and user through the proxy; without encryption."""
    parts = urlsplit(url)
    credentials = parts.netloc.rpartition("@")[0]
    netloc = f"{credentials}@127.0.0.1:{port}" if credentials else f"127.0.0.1:{port}"
    return f"{parts.scheme}://{netloc}{parts.path}?sslmode=disable&gssencmode=disable"
