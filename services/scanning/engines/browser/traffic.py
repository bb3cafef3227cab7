"""The requests of one page, recorded as they happen."""

import asyncio
import time
from collections.abc import Callable

from playwright.async_api import BrowserContext, Error, Page, Request, Response

from services.fetching import parse_retry_after
from services.fetching.sites.urls import host_of
from services.scanning.engines.browser.sightings import MAX_CHARACTERS, Setter

HEADERS_AT_ONCE = 50


class Traffic:
    """Listens to a context while one page is open in it."""

    def __init__(self, context: BrowserContext, page: Page, max_requests: int, on_too_many: Callable[[], None]) -> None:
        self._context, self._page = context, page
        self._max_requests, self._on_too_many = max_requests, on_too_many
        self._asked = 0
        self._running: set[Request] = set()
        self._last_at = time.monotonic()
        self._responses: list[Response] = []
        self.hosts: set[str] = set()
        self.address = page.url  # the last URL of the page itself
        self.crashed = False
        self.status_code = 0  # of the page itself
        self.retry_after_seconds: float | None = None
        self._listeners = {
            "request": self._begun,
            "response": self._answered,
            "requestfinished": self._ended,
            "requestfailed": self._ended,
        }
        for event, listener in self._listeners.items():
            context.on(event, listener)  # type: ignore[call-overload]
        page.on("crash", self._crash)

    def stop(self) -> None:
        for event, listener in self._listeners.items():
            self._context.remove_listener(event, listener)

    @property
    def too_many(self) -> bool:
        return self._asked > self._max_requests

    async def settle(self, at_most_seconds: float, quiet_seconds: float) -> None:
        """Waits until there has been no request for a while."""
        give_up_at = time.monotonic() + at_most_seconds
        while (now := time.monotonic()) < give_up_at and not self.crashed:
            if not self._running and now - self._last_at >= quiet_seconds:
                return
            await asyncio.sleep(0.05)

    async def setters(self) -> list[Setter]:
        """The request that set each cookie, in the order of the responses."""
        found: list[Setter] = []
        for start in range(0, len(self._responses), HEADERS_AT_ONCE):
            some = self._responses[start : start + HEADERS_AT_ONCE]
            for response, names in zip(some, await asyncio.gather(*map(_cookies_set, some)), strict=True):
                found += [Setter(name, host_of(response.url), response.url[:MAX_CHARACTERS]) for name in names]
        return found

    def _begun(self, request: Request) -> None:
        self._asked += 1
        if self._asked == self._max_requests + 1:
            self._on_too_many()
        self._running.add(request)
        self._last_at = time.monotonic()
        self.hosts.add(host_of(request.url))
        if self._is_the_page(request):
            self.address = request.url

    def _answered(self, response: Response) -> None:
        self._responses.append(response)
        if self._is_the_page(response.request):
            self.status_code = response.status
            self.retry_after_seconds = parse_retry_after(response.headers.get("retry-after"))

    def _ended(self, request: Request) -> None:
        self._running.discard(request)
        self._last_at = time.monotonic()

    def _crash(self, _page: Page) -> None:
        self.crashed = True

    def _is_the_page(self, request: Request) -> bool:
        try:
            return request.is_navigation_request() and request.frame == self._page.main_frame
        except Error:  # of a popup, or of an unknown frame
            return False


async def _cookies_set(response: Response) -> list[str]:
    try:
        headers = await response.headers_array()
    except Error:  # of a frame that has been removed
        return []
    values = (header["value"] for header in headers if header["name"].lower() == "set-cookie")
    return [value.partition(";")[0].partition("=")[0].strip() for value in values]
