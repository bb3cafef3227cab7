"""Fetching a page politely and within limits: the result is a response or one clear failure."""

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

import requests

from config import Settings
from services.fetching.addresses import Guard
from services.fetching.bodies import announced_bytes, read_beginning, strange_encoding
from services.fetching.charsets import decode_text
from services.fetching.connecting import connect
from services.fetching.deadline import Deadline
from services.fetching.detours import Detours
from services.fetching.failures import FETCH_ERRORS, FetchFailed, failure_of
from services.fetching.hops import Hop
from services.fetching.pace import Pace
from services.fetching.retry_after import parse_retry_after
from services.fetching.session import USER_AGENT, GuardedSession
from services.fetching.urls import shown_url, without_userinfo


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one fetch."""

    max_bytes: int = 5 * 1024 * 1024  # of the body after decompression
    max_seconds: float = 30.0  # for all hops together, except the wait for the pace
    max_redirects: int = 10  # 0: a redirect is returned as the response
    cut: bool = True  # False: a larger body is a failure


@dataclass(frozen=True, slots=True)
class Fetched:
    url: str  # the final one
    status_code: int
    headers: Mapping[str, str]  # case-insensitive names
    body: bytes  # decompressed
    truncated: bool
    hops: tuple[Hop, ...]  # first to last
    elapsed_ms: int

    @property
    def text(self) -> str:
        return decode_text(self.body, self.headers.get("Content-Type", ""))

    @property
    def content_type(self) -> str:
        """`text/html`; empty when absent."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def retry_after_seconds(self) -> float | None:
        return parse_retry_after(self.headers.get("Retry-After"))


class Fetcher:
    """One guarded session with its cookies, and one pace per host. Threads may share it."""

    def __init__(
        self,
        session: GuardedSession,
        limits: Limits = Limits(),
        *,
        user_agent: str = USER_AGENT,
        delay_seconds: float = 0.0,
    ) -> None:
        self._session, self._limits, self._user_agent = session, limits, user_agent
        self.delay_seconds = delay_seconds
        self._pace = Pace()

    def get(
        self,
        url: str,
        *,
        remaining_seconds: Callable[[], float] | None = None,
        headers: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        read_body: bool = True,
    ) -> Fetched:
        """Raises FetchFailed, with the responses received so far. Status 404 or 500 is a response.

        `remaining_seconds` is called before every hop and between pieces of the body; it may raise.
        """
        request = requests.Request("GET", url, {"User-Agent": self._user_agent, **(headers or {})})
        return self._fetch(request, limits or self._limits, remaining_seconds, read_body)

    def post_json(
        self,
        url: str,
        body: object,
        *,
        remaining_seconds: Callable[[], float] | None = None,
        headers: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> Fetched:
        """Like `get`."""
        request = requests.Request("POST", url, {"User-Agent": self._user_agent, **(headers or {})}, json=body)
        return self._fetch(request, limits or self._limits, remaining_seconds, read_body=True)

    def _fetch(
        self,
        request: requests.Request,
        limits: Limits,
        remaining_seconds: Callable[[], float] | None,
        read_body: bool,
    ) -> Fetched:
        deadline = Deadline(limits.max_seconds, remaining_seconds)
        begun_at = time.monotonic()
        hops: list[Hop] = []
        try:
            response = self._open(request, limits.max_redirects, deadline, hops)
            with closing(response):
                body, truncated = _body(response, limits, deadline) if read_body else (b"", False)
        except FetchFailed as refused:  # the body
            raise refused.after(hops) from None
        except FETCH_ERRORS as error:
            deadline.check()  # the end of the caller's own time is not a failure of the server
            raise failure_of(error, f"{request.method} {shown_url(str(request.url))}").after(hops) from None
        elapsed_ms = round((time.monotonic() - begun_at) * 1000)
        return Fetched(hops[-1].url, response.status_code, response.headers, body, truncated, tuple(hops), elapsed_ms)

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(
        self, wanted: requests.Request, max_redirects: int, deadline: Deadline, hops: list[Hop]
    ) -> requests.Response:
        """`hops` receives every response, even if the request fails later."""

        def our_turn(request: requests.PreparedRequest) -> float:
            host = urlsplit(str(request.url)).hostname or ""
            deadline.extend(self._pace.wait(host, self.delay_seconds, deadline.check))
            return deadline.left()

        prepared = self._session.prepare_request(wanted)
        for response in self._session.hops(prepared, our_turn, max_redirects=max_redirects):
            hops.append(_hop(response))
        return response


def fetcher_from(
    settings: Settings, limits: Limits = Limits(), *, delay_seconds: float = 0.0, configured_url: str | None = None
) -> Fetcher:
    """`configured_url` is the URL of a setting, which may be on a private address."""
    return Fetcher(session_from(settings, configured_url), limits, delay_seconds=delay_seconds)


def session_from(settings: Settings, configured_url: str | None = None) -> GuardedSession:
    guard = Guard.parse(settings.fetch_allow_private_addresses, settings.fetch_allowed_networks)
    return GuardedSession(
        guard.allowing(configured_url) if configured_url else guard, Detours.parse(settings.fetch_connect_to)
    )


def connect_from(settings: Settings, host: str, port: int, timeout_seconds: float) -> socket.socket:
    """A guarded connection for another protocol than HTTP."""
    guard = Guard.parse(settings.fetch_allow_private_addresses, settings.fetch_allowed_networks)
    return connect(guard, Detours.parse(settings.fetch_connect_to), host, port, timeout_seconds)


def _hop(response: requests.Response) -> Hop:
    return Hop(
        url=without_userinfo(response.url),
        status_code=response.status_code,
        set_cookies=tuple(response.raw.headers.getlist("Set-Cookie")),
        cookies_left_out=getattr(response.raw._original_response, "cookies_left_out", 0),
    )


def _body(response: requests.Response, limits: Limits, deadline: Deadline) -> tuple[bytes, bool]:
    request = f"{response.request.method} {shown_url(response.url)}"
    encoding = strange_encoding(response)
    if encoding is not None:
        raise FetchFailed(f"{request}: the body is compressed as {encoding}, which was not requested", retryable=False)
    is_hopeless = not limits.cut and (announced_bytes(response) or 0) > limits.max_bytes
    body, truncated = (b"", True) if is_hopeless else read_beginning(response, limits.max_bytes, deadline.left)
    if truncated and not limits.cut:
        raise FetchFailed(f"{request}: the body is larger than {limits.max_bytes:,} bytes", retryable=False)
    return body, truncated
