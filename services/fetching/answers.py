"""Reading a response from the socket: one deadline for the whole response, and a header of bounded size.

A socket's timeout restarts with every byte, so a server that drips bytes could block us forever. Here each read gets
the remaining time of the whole response. http.client gives up after 100 header lines, which a response with many
cookies exceeds. Set-Cookie lines are therefore collected separately, up to their own limit, and added back after the
header.
"""

import io
import re
import socket
from http.client import HTTPException, HTTPResponse

from services.fetching.deadline import Deadline

MAX_COOKIES = 1_000
MAX_ATTRIBUTES, MAX_ATTRIBUTE_BYTES = 50, 1_100  # bytes of one cookie; browsers accept values of up to 1,024 bytes
MAX_HEAD_BYTES = 4 * 1024 * 1024

_BLANK = (b"\r\n", b"\n", b"")
_HEADER = re.compile(rb"[!-9;-~]+:")
_SET_COOKIE_2 = re.compile(rb"set-cookie2:", re.IGNORECASE)  # no browser reads it; http.cookiejar needs minutes
_SET_COOKIE = re.compile(rb"set-cookie:(.*)", re.IGNORECASE | re.DOTALL)


class Answer(HTTPResponse):
    def __init__(
        self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        self._lines = _Lines(_Timed(sock, self.fp.detach()))
        self.fp = self._lines

    @property
    def cookies_left_out(self) -> int:
        return self._lines.cookies_left_out

    def begin(self) -> None:
        super().begin()
        self._lines.in_head = False
        for cookie in self._lines.cookies:
            self.headers["Set-Cookie"] = cookie  # adds one more

    def _read_status(self) -> tuple[str, int, str]:
        """Skips every interim response (such as 103 Early Hints); http.client skips 100 only."""
        version, status, reason = super()._read_status()  # type: ignore[misc]
        return version, 100 if 102 <= status <= 199 else status, reason


class _Timed(io.RawIOBase):
    """A stream whose reads share one deadline."""

    def __init__(self, sock: socket.socket, file: io.RawIOBase) -> None:
        self._sock, self._file = sock, file
        self._deadline = Deadline(sock.gettimeout())

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview, /) -> int | None:  # type: ignore[override]
        self._sock.settimeout(self._deadline.left())
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Lines(io.BufferedReader):
    """The header lines for http.client, with the cookies collected separately."""

    def __init__(self, raw: io.RawIOBase) -> None:
        super().__init__(raw)
        self.cookies: list[str] = []
        self.cookies_left_out = 0
        self.in_head = True
        self._head_bytes = 0
        self._status_is_next = True
        self._dropping = True

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        while self.in_head and not self._is_for_http_client(line, size):
            line = super().readline(size)
        return line

    def _is_for_http_client(self, line: bytes, size: int | None) -> bool:
        self._head_bytes += len(line)
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HTTPException(f"the headers are larger than {MAX_HEAD_BYTES // 1024**2} MiB")
        if self._status_is_next or line in _BLANK or len(line) == size:  # size: makes http.client refuse the long line
            self._status_is_next = line in _BLANK
            self._dropping = True  # a folded line that continues no other
            return True
        if not line.startswith((b" ", b"\t")):
            # http.client would ignore all headers after an invalid line.
            is_none = _HEADER.match(line) is None or _SET_COOKIE_2.match(line) is not None
            self._dropping = is_none or self._keep_cookie(line)
        return not self._dropping

    def _keep_cookie(self, line: bytes) -> bool:
        found = _SET_COOKIE.match(line)
        if found is None:
            return False
        if len(self.cookies) < MAX_COOKIES:
            self.cookies.append(_readable(found[1]).decode("latin-1").strip())
        else:
            self.cookies_left_out += 1
        return True


def _readable(cookie: bytes) -> bytes:
    """The cookie in a form that is fast to parse: without an excess of attributes."""
    pair, *attributes = cookie.split(b";", MAX_ATTRIBUTES + 1)[: MAX_ATTRIBUTES + 1]
    return b";".join([pair, *(each for each in attributes if len(each) <= MAX_ATTRIBUTE_BYTES)])
