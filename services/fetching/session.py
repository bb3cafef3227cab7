"""Guarded session: redirects neither read bodies nor forward secrets to other sites."""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from http.cookiejar import Cookie
from typing import Any
from urllib.parse import urljoin

import requests
from requests.cookies import RequestsCookieJar, extract_cookies_to_jar
from requests.structures import CaseInsensitiveDict
from urllib3.util import Timeout

from services.fetching.addresses import Guard
from services.fetching.connecting import GuardedAdapter
from services.fetching.detours import Detours

MAX_REDIRECTS = 10
MAX_URL_CHARACTERS = 8_192  # most servers accept no more, and findings store URLs
USER_AGENT = "enhanced-scheduler"
# The limits of browsers. Servers refuse requests with a huge Cookie header.
MAX_COOKIE_BYTES = 4096
MAX_COOKIES_PER_DOMAIN, MAX_COOKIES = 180, 3_000


class UnsafeRedirect(requests.RequestException):
    """Following it would send secrets to another site."""


class BadRedirect(requests.RequestException):
    """The redirect's URL is invalid or too long."""


class UrlTooLong(requests.RequestException):
    """Refused before the request."""


@dataclass(frozen=True, slots=True)
class Private:
    """The parts of a request that carry secrets and must stay with their site."""

    headers: Collection[str] = ()
    body: bool = False


class GuardedSession(requests.Session):
    """A requests session with the address guard, without proxies or netrc from the environment, and without retries."""

    def __init__(self, guard: Guard, detours: Detours = Detours()) -> None:
        super().__init__()
        self.trust_env = False
        self.headers.update({"User-Agent": USER_AGENT, "Accept-Encoding": "gzip, deflate"})  # as bodies.py supports
        self.cookies = _Jar()
        self.adapters.clear()
        self.mount("http://", GuardedAdapter(guard, detours))
        self.mount("https://", GuardedAdapter(guard, detours))

    def prepare(
        self, method: str, url: str, headers: Mapping[str, str], *, data: str | bytes | None = None, json: Any = None
    ) -> requests.PreparedRequest:
        """Of headers that differ only in case, the last one counts."""
        unique = CaseInsensitiveDict(headers)
        return self.prepare_request(requests.Request(method, url, unique, data=data, json=json))

    def open(
        self,
        request: requests.PreparedRequest,
        timeout_seconds: Callable[[], float],
        private: Private = Private(),
        max_redirects: int = MAX_REDIRECTS,
    ) -> requests.Response:
        """Send, follow redirects, and return the final response with its body unread.

        `timeout_seconds` is called before every hop and may raise.
        """
        return deque(self.hops(request, lambda _: timeout_seconds(), private, max_redirects), maxlen=1).pop()

    def hops(
        self,
        request: requests.PreparedRequest,
        timeout_seconds: Callable[[requests.PreparedRequest], float],
        private: Private = Private(),
        max_redirects: int = MAX_REDIRECTS,
    ) -> Iterator[requests.Response]:
        """Every response on the way, bodies unread; the caller closes the last one.

        `timeout_seconds` covers one whole hop, from the DNS lookup to the end of the body.
        """
        if len(str(request.url)) > MAX_URL_CHARACTERS:
            raise UrlTooLong(f"the URL is longer than {MAX_URL_CHARACTERS:,} characters", request=request)
        for _ in range(max_redirects + 1):
            response = self._send(request, timeout_seconds(request))
            yield response
            following = self._following(request, response) if max_redirects else None
            if following is None:
                return
            response.close()
            request = self._without_private(request, following, response.status_code, private)
        raise requests.TooManyRedirects(f"more than {max_redirects} redirects", request=request)

    def _send(self, request: requests.PreparedRequest, timeout_seconds: float) -> requests.Response:
        """Bypasses requests' own `send`, which reads the whole body of a redirect even when it does not follow it."""
        timeout: Any = Timeout(total=timeout_seconds)
        verify = True if self.verify is None else self.verify
        adapter = self.get_adapter(str(request.url))
        response = adapter.send(request, stream=True, timeout=timeout, verify=verify, cert=self.cert)
        extract_cookies_to_jar(self.cookies, request, response.raw)  # type: ignore[no-untyped-call]
        return response

    def _following(
        self, request: requests.PreparedRequest, response: requests.Response
    ) -> requests.PreparedRequest | None:
        """None if the response is not a redirect."""
        try:
            target = self.get_redirect_target(response)
            if target is None:
                return None
            following = request.copy()
            following.prepare_url(urljoin(str(request.url), target), None)
        except ValueError as error:  # requests' InvalidURL and UnicodeError are ValueErrors, too
            response.close()
            raise BadRedirect("redirected to something that is not a URL", request=request) from error
        if len(str(following.url)) > MAX_URL_CHARACTERS:
            response.close()
            raise BadRedirect(
                f"redirected to a URL that is longer than {MAX_URL_CHARACTERS:,} characters", request=request
            )
        self.rebuild_method(following, response)
        return following

    def _without_private(
        self, request: requests.PreparedRequest, following: requests.PreparedRequest, status_code: int, private: Private
    ) -> requests.PreparedRequest:
        """The request without what must not be forwarded."""
        if status_code not in (307, 308):
            following.body = None
            for name in ("Content-Length", "Content-Type", "Transfer-Encoding"):
                following.headers.pop(name, None)
        following.headers.pop("Cookie", None)
        if self.should_strip_auth(request.url, following.url):  # type: ignore[no-untyped-call]
            if private.body and following.body is not None:
                raise UnsafeRedirect("redirected to another site, but the body carries secrets", request=request)
            for name in ("Authorization", *private.headers):
                following.headers.pop(name, None)
        following.prepare_cookies(self.cookies)
        return following


def guarded_session(allow_private: bool, allowed_networks: str, connect_to: str = "") -> GuardedSession:
    return GuardedSession(Guard.parse(allow_private, allowed_networks), Detours.parse(connect_to))


class _Jar(RequestsCookieJar):
    """A bounded cookie jar that can be read while another thread adds cookies."""

    def __iter__(self) -> Iterator[Cookie]:  # type: ignore[override]
        with self._cookies_lock:  # type: ignore[attr-defined]
            return iter(list(super().__iter__()))

    def set_cookie(self, cookie: Cookie, *args: Any, **kwargs: Any) -> None:
        if len(cookie.name) + len(cookie.value or "") > MAX_COOKIE_BYTES:
            return
        with self._cookies_lock:  # type: ignore[attr-defined]
            self._make_room()
            if self._has_room_for(cookie):
                super().set_cookie(cookie, *args, **kwargs)

    # Counted by domain and path: iterating over all cookies for each new one would take minutes.

    @property
    def _domains(self) -> dict[str, dict[str, dict[str, Cookie]]]:
        return self._cookies  # type: ignore[attr-defined,no-any-return]

    def _has_room_for(self, cookie: Cookie) -> bool:
        own = self._domains.get(cookie.domain, {})
        return cookie.name in own.get(cookie.path, {}) or sum(map(len, own.values())) < MAX_COOKIES_PER_DOMAIN

    def _make_room(self) -> None:
        """Evicts the domain that was seen first: a crawler of many sites does not return to it."""
        if sum(len(names) for paths in self._domains.values() for names in paths.values()) >= MAX_COOKIES:
            del self._domains[next(iter(self._domains))]
