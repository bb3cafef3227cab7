"""The behaviour of tests/support/bad_servers.py, by path."""

import gzip
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable
from functools import cache

DRIP_SECONDS = 0.02
FOR_EVER_SECONDS = 20.0  # long enough to fail a test, short enough to end it
MANY_COOKIES = 10_000
BOMB_BYTES = 1024**3  # decompressed

OK = b"HTTP/1.1 200 OK\r\n"
PAGE = b"<html><body>a page</body></html>"


class Peer:
    """The client, as seen by a habit."""

    def __init__(self, connection: socket.socket, closed: threading.Event) -> None:
        self._connection, self._closed = connection, closed

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def send_for_ever(self, data: bytes, pause_seconds: float = 0.0) -> None:
        ends_at = time.monotonic() + FOR_EVER_SECONDS
        while not self._closed.wait(pause_seconds) and time.monotonic() < ends_at:
            self._connection.sendall(data)

    def drip(self, data: bytes) -> None:
        """Byte by byte, the last one over and over."""
        for byte in data:
            self._closed.wait(DRIP_SECONDS)
            self._connection.sendall(bytes([byte]))
        self.send_for_ever(data[-1:], DRIP_SECONDS)

    def wait(self) -> None:
        self._closed.wait(FOR_EVER_SECONDS)

    def reset(self) -> None:
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


Habit = Callable[[Peer], None]
HABITS: dict[str, Habit] = {}


def habit(path: str) -> Callable[[Habit], Habit]:
    def register(habit: Habit) -> Habit:
        HABITS[path] = habit
        return habit

    return register


def page(body: bytes = PAGE, *headers: str, status: str = "200 OK") -> bytes:
    """A proper response."""
    own = (f"HTTP/1.1 {status}", "Connection: close", f"Content-Length: {len(body)}", "Content-Type: text/html")
    return "\r\n".join([*own, *headers, "", ""]).encode("latin-1") + body


def redirect(target: str) -> bytes:
    return page(b"", f"Location: {target}", status="302 Found")


def not_found(peer: Peer) -> None:
    peer.send(page(b"no such habit", status="404 Not Found"))


def _always(path: str, answer: bytes) -> None:
    HABITS[path] = lambda peer: peer.send(answer)


# --- ordinary responses, for comparison

_always("/page", page())
_always("/error", page(status="500 Internal Server Error"))
_always("/busy", page(b"", "Retry-After: 120", status="503 Service Unavailable"))

# --- no response, or no end of it


@habit("/silent")
def _silent(peer: Peer) -> None:
    peer.wait()


@habit("/stalled")
def _stalled(peer: Peer) -> None:
    peer.send(OK + b"Content-Length: 10\r\n\r\nabc")
    peer.wait()


@habit("/dripping-status")
def _dripping_status(peer: Peer) -> None:
    peer.drip(b"HTTP/1.1 200 Oooooo")


@habit("/dripping-head")
def _dripping_head(peer: Peer) -> None:
    peer.drip(OK + b"X-Slow: ")


@habit("/dripping-body")
def _dripping_body(peer: Peer) -> None:
    peer.send(OK + b"Content-Length: 1000000\r\n\r\n")
    peer.drip(b".")


@habit("/dripping-chunks")
def _dripping_chunks(peer: Peer) -> None:
    peer.send(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    peer.send_for_ever(b"1\r\n.\r\n", DRIP_SECONDS)


@habit("/dripping-gzip")
def _dripping_gzip(peer: Peer) -> None:
    """Valid gzip that never yields a byte."""
    peer.send(OK + b"Content-Encoding: gzip\r\n\r\n")
    peer.send_for_ever(gzip.compress(b""), DRIP_SECONDS)


@habit("/endless")
def _endless(peer: Peer) -> None:
    peer.send(OK + b"Content-Type: text/html\r\n\r\n")
    peer.send_for_ever(b"<p>more</p>" * 5_000)


@habit("/endless-chunks")
def _endless_chunks(peer: Peer) -> None:
    peer.send(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    peer.send_for_ever(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")


@habit("/endless-chunk-size")
def _endless_chunk_size(peer: Peer) -> None:
    peer.send(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    peer.send_for_ever(b"0" * 65536)


@habit("/two-gigabytes")
def _two_gigabytes(peer: Peer) -> None:
    peer.send(OK + b"Content-Type: application/json\r\nContent-Length: 2147483648\r\n\r\n")
    peer.send_for_ever(b"[" * 65536)


@habit("/endless-headers")
def _endless_headers(peer: Peer) -> None:
    peer.send(OK)
    peer.send_for_ever(b"Set-Cookie: a=1\r\n" * 1_000)


@habit("/endless-interim-answers")
def _endless_interim_answers(peer: Peer) -> None:
    peer.send_for_ever(b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000)


# --- strange headers

_always("/endless-line", OK + b"X-Long: " + b"x" * 1_000_000 + b"\r\n\r\n")
_always("/many-headers", page(PAGE, *(f"X-Header-{number}: x" for number in range(1_000))))
_always("/many-cookies", page(PAGE, *(f"Set-Cookie: c{number}=1; Path=/" for number in range(MANY_COOKIES))))
_always("/early-hints", b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nSet-Cookie: early=1\r\n\r\n" + page())
_always(
    "/broken-header", page(PAGE, " folded", "no header at all", "Caf\xe9: x", "Set-Cookie: after=1", "X-After: yes")
)
_always("/not-http", b"SSH-2.0-OpenSSH_9.2p1\r\n")
_always("/two-lengths", OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd")
_always(
    "/malformed-cookies",
    page(
        PAGE,
        *("Set-Cookie:", "Set-Cookie: ", "Set-Cookie: =", "Set-Cookie: ;;;", "Set-Cookie: novalue", "Set-Cookie: =x"),
        *(
            "Set-Cookie: a=b; Expires=yesterday-ish; Max-Age=soon",
            "Set-Cookie: b=\x01\x02\xff",
            "Set-Cookie: c=1; Domain=.",
        ),
        *(
            "Set-Cookie: d=1; Expires=Wed, 99 Foo 99999 99:99:99 GMT",
            "Set-Cookie: e=" + "x" * 60_000,
            "SET-COOKIE: f=1",
        ),
    ),
)

# --- compressed bodies


@cache
def _gzip_bomb() -> bytes:
    """Many gzip members, which count as one file."""
    member = 16 * 1024**2
    return gzip.compress(bytes(member)) * (BOMB_BYTES // member)


@cache
def _deflate_bomb() -> bytes:
    packer = zlib.compressobj()
    zeros = bytes(1024**2)
    return b"".join(packer.compress(zeros) for _ in range(64)) + packer.flush()


@habit("/gzip-bomb")
def _send_gzip_bomb(peer: Peer) -> None:
    peer.send(page(_gzip_bomb(), "Content-Encoding: gzip"))


@habit("/double-gzip-bomb")
def _send_double_gzip_bomb(peer: Peer) -> None:
    peer.send(page(gzip.compress(_gzip_bomb()), "Content-Encoding: gzip, gzip"))


@habit("/deflate-bomb")
def _send_deflate_bomb(peer: Peer) -> None:
    peer.send(page(_deflate_bomb(), "Content-Encoding: deflate"))


_always("/many-encodings", page(PAGE, "Content-Encoding: " + ", ".join(["gzip"] * 50)))
_always("/brotli-unasked", page(b"\x8b\x07\x80", "Content-Encoding: br"))
_always("/zstd-unasked", page(b"\x28\xb5\x2f\xfd", "Content-Encoding: zstd"))
_always("/encoding-made-up", page(PAGE, "Content-Encoding: utf-8"))
_always("/broken-gzip", page(gzip.compress(PAGE)[:-8] + b"no check", "Content-Encoding: gzip"))
_always("/gzip-that-is-none", page(PAGE, "Content-Encoding: gzip"))

# --- responses that are cut off

_always("/length-too-long", OK + b"Content-Length: 100000\r\n\r\nabc")
_always("/length-too-short", OK + b"Content-Length: 3\r\n\r\nabcdef")
_always("/broken-chunks", OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc")
_always("/hung-up", b"")


@habit("/reset")
def _reset(peer: Peer) -> None:
    peer.reset()


@habit("/reset-in-body")
def _reset_in_body(peer: Peer) -> None:
    peer.send(OK + b"Content-Length: 100000\r\n\r\nabc")
    peer.reset()


# --- redirects

_always("/loop", redirect("/loop"))
_always("/loop-of-two", redirect("/loop-of-two/back"))
_always("/loop-of-two/back", redirect("/loop-of-two"))
_always("/to-page", redirect("/page"))
_always("/to-metadata", redirect("http://169.254.169.254/latest/meta-data/"))
_always("/to-metadata-as-number", redirect("//2852039166/"))
_always("/to-metadata-in-ipv6", redirect("http://[::ffff:169.254.169.254]/"))
_always("/to-private-address", redirect("http://10.0.0.1/"))
_always("/to-private-name", redirect("http://intranet.example/"))
_always("/to-file", redirect("file:///etc/passwd"))
_always("/to-ftp", redirect("ftp://127.0.0.1/"))
_always("/to-gopher", redirect("gopher://127.0.0.1:6379/_FLUSHALL"))
_always("/to-no-url", redirect("http://[::1"))
_always("/to-broken-bytes", redirect("/caf\xe9"))
_always("/to-huge-port", redirect("http://127.0.0.1:99999/"))
_always("/to-long-url", redirect("/" + "x" * 8_192))
_always("/to-userinfo", redirect("http://anna:hunter2@10.0.0.1/?token=hunter2"))


@habit("/endless-redirect")
def _endless_redirect(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 302 Found\r\nLocation: /page\r\n\r\n")
    peer.send_for_ever(b"x" * 65536)
