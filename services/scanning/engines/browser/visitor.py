"""One visitor: never consents, or, with a selector, always does."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any, TypeVar

from playwright.async_api import BrowserContext, CDPSession, Error, Frame, Page
from playwright.async_api import TimeoutError as TookTooLong

from services.fetching import may_work_later
from services.fetching.sites.urls import host_of
from services.scanning.engines.browser.failures import CRASHED, first_line, is_an_answer, is_no_connection, page_failure
from services.scanning.engines.browser.limits import MEBIBYTE, BrowserLimits
from services.scanning.engines.browser.scripts import FRAME, LINKS, MAX_LINKS, MAX_NAMES, REMEMBER_WRITERS
from services.scanning.engines.browser.sightings import (
    FrameFacts,
    attributed,
    belongs_to,
    cookies_seen,
    storage_seen,
)
from services.scanning.engines.browser.traffic import Traffic
from services.scanning.engines.guarded_proxy import GuardedProxy
from services.scanning.findings import Consent, PageFailed, SeenCookie

POLL_SECONDS = 0.1
MAX_FRAMES = 100
Key = tuple[str, str, str, str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seen:
    """What this visitor found on a page."""

    final_url: str
    status_code: int
    links: tuple[str, ...]
    cookies: tuple[SeenCookie, ...]
    notes: tuple[str, ...]


class Visitor:
    def __init__(
        self,
        context: BrowserContext,
        browser: CDPSession,
        proxy: GuardedProxy,
        limits: BrowserLimits,
        accept_selector: str | None = None,
    ) -> None:
        self._context, self._browser, self._proxy, self._limits = context, browser, proxy, limits
        self._selector = accept_selector
        self._secret = f"__{token_hex(8)}"  # random, so that pages cannot guess where frames keep our data
        self._context_id = ""
        self._setters: dict[Key, str] = {}  # the request or script that set a cookie, from its first sighting
        self.is_stuck = False  # it has a page that cannot be closed
        self._agreed = False
        self._before: set[Key] = set()  # found before this visitor consented

    async def open(self) -> None:
        await self._context.add_init_script(f"({REMEMBER_WRITERS})({json.dumps(self._secret)}, {MAX_NAMES})")
        page = await self._context.new_page()
        session = await self._context.new_cdp_session(page)
        self._context_id = (await session.send("Target.getTargetInfo"))["targetInfo"]["browserContextId"]
        try:
            if self._selector is not None:
                await page.locator(self._selector).count()
        except Error as error:
            reason = first_line(error).removeprefix("Locator.count: ")
            raise PageFailed(
                f"accept_selector {self._selector!r} is not a selector: {reason}", retryable=False
            ) from None
        finally:
            await page.close()

    async def visit(self, url: str, load_seconds: float) -> Seen:
        self._proxy.begin_page(self._limits.max_bytes)
        async with self._page() as (page, traffic):
            notes = await self._load(page, traffic, url, load_seconds)
            if may_work_later(traffic.status_code):
                raise PageFailed(f"answered {traffic.status_code}", retry_after_seconds=traffic.retry_after_seconds)
            await self._settle(traffic)
            if self._selector is not None:
                notes += await self._agree(page, traffic, url)
            links = await self._within_time(page.evaluate(LINKS, MAX_LINKS), [])
            cookies = await self._cookies(page, traffic, url)
            notes += self._what_was_cut(traffic)
            final_url = page.url if page.url.startswith("http") else traffic.address  # not the browser's own error page
            return Seen(final_url, traffic.status_code, tuple(_texts(links)), tuple(cookies), tuple(notes))

    @asynccontextmanager
    async def _page(self) -> AsyncIterator[tuple[Page, Traffic]]:
        page = await self._context.new_page()
        traffic = Traffic(self._context, page, self._limits.max_requests, self._proxy.shut)
        self._context.on("page", _close)  # any further page is a popup
        try:
            yield page, traffic
        finally:
            self._context.remove_listener("page", _close)
            traffic.stop()
            await self._end(page)

    async def _end(self, page: Page) -> None:
        """Closes the page, if necessary without traffic: a page that keeps reloading cannot be closed otherwise."""
        if not await self._within_time(_closed(page), False):
            self._proxy.shut()
            self.is_stuck = not await self._within_time(_closed(page), False)

    async def _load(self, page: Page, traffic: Traffic, url: str, seconds: float) -> list[str]:
        """Returns when the page has loaded, or when its time is over and part of it has."""
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            await page.goto(url, wait_until="commit", timeout=seconds * 1000)
        except Error as error:
            if not (traffic.status_code and is_an_answer(error)):
                raise self._failure(error, traffic, url, seconds) from None
        left = max(0.1, deadline - asyncio.get_running_loop().time())
        try:
            await page.wait_for_load_state("load", timeout=left * 1000)
        except TookTooLong:
            return [f"did not finish loading within {seconds:g} s; the findings cover what had loaded by then"]
        except Error as error:
            raise self._failure(error, traffic, url, seconds) from None
        return []

    async def _settle(self, traffic: Traffic) -> None:
        await traffic.settle(self._limits.settle_seconds, self._limits.quiet_seconds)
        if traffic.crashed:
            raise PageFailed(CRASHED, retryable=False)

    def _failure(self, error: Error, traffic: Traffic, url: str, seconds: float) -> PageFailed:
        if not is_no_connection(error):
            return page_failure(error, seconds)
        if self._proxy.is_shut:
            return PageFailed(self._too_large(), retryable=False)
        host = host_of(traffic.address)
        known = self._proxy.failure(host)
        if known is None:
            return page_failure(error, seconds)
        reason = str(known).removeprefix(f"{host}: ") if host == host_of(url) else str(known)
        return PageFailed(reason, retryable=known.retryable)

    # --- consent ---

    async def _agree(self, page: Page, traffic: Traffic, url: str) -> list[str]:
        """Click the element that the selector matches, in any frame."""
        button = await self._within_time(self._find_button(page), None, self._limits.find_seconds)
        if button is None:
            return [] if self._agreed else [f"accept_selector {self._selector!r} matched no visible element"]
        if not self._agreed:
            await self._cookies(page, traffic, url)  # present before the click
        if not await self._within_time(self._click(button), False, self._limits.click_seconds):
            return [f"accept_selector {self._selector!r} could not be clicked"]
        self._agreed = True
        await self._settle(traffic)
        return []

    async def _find_button(self, page: Page) -> Frame | None:
        """Waits for the banner until it was found once; after that it should not appear again.

        The last check starts when the time is over: on a busy machine the first one may take all of it.
        """
        now = asyncio.get_running_loop().time
        give_up_at = now() + self._limits.banner_seconds
        while True:
            is_last = self._agreed or now() >= give_up_at
            for frame in page.frames[:MAX_FRAMES]:
                if await self._is_visible(frame):
                    return frame
            if is_last:
                return None
            await asyncio.sleep(POLL_SECONDS)

    async def _is_visible(self, frame: Frame) -> bool:
        try:
            return await frame.locator(str(self._selector)).first.is_visible()
        except Error:  # the frame has been removed
            return False

    async def _click(self, frame: Frame) -> bool:
        button = frame.locator(str(self._selector)).first
        try:
            await button.click(timeout=self._limits.press_seconds * 1000, no_wait_after=True)
        except TookTooLong:  # another element covers it
            await button.dispatch_event("click", timeout=self._limits.press_seconds * 1000)
        return True

    # --- what is there ---

    async def _cookies(self, page: Page, traffic: Traffic, url: str) -> list[SeenCookie]:
        """The cookies of the hosts that this page has called, and the storage of its frames."""
        told = await self._browser.send("Storage.getCookies", {"browserContextId": self._context_id})
        frames = await self._frames(page)
        jar = cookies_seen(told["cookies"], url)
        await self._attribute(jar, frames, traffic)
        present = [cookie for cookie in jar if belongs_to(cookie, traffic.hosts)]
        found = [replace(cookie, request_url=self._setters[cookie.key]) for cookie in present]
        return [self._with_consent(cookie) for cookie in (*found, *storage_seen(frames, url))]

    def _with_consent(self, cookie: SeenCookie) -> SeenCookie:
        if not self._agreed:
            self._before.add(cookie.key)
        return cookie if cookie.key in self._before else replace(cookie, consent=Consent.AFTER)

    async def _attribute(self, jar: list[SeenCookie], frames: list[FrameFacts], traffic: Traffic) -> None:
        new = [cookie for cookie in jar if cookie.key not in self._setters]
        if not new:
            return
        headers = await self._within_time(traffic.setters(), [])
        setters = [*headers, *(write for frame in frames for write in frame.writes)]
        for cookie in new:
            self._setters[cookie.key] = (attributed(cookie, setters) or cookie).request_url

    async def _frames(self, page: Page) -> list[FrameFacts]:
        questions = (frame.evaluate(FRAME, [self._secret, MAX_NAMES]) for frame in page.frames[:MAX_FRAMES])
        answers = await asyncio.gather(*(self._within_time(question, None) for question in questions))
        return [FrameFacts.read(told) for told in answers]

    async def _within_time(self, asking: Awaitable[T], otherwise: T, seconds: float | None = None) -> T:
        """`otherwise` if the page's scripts never end, or if it navigates away meanwhile."""
        try:
            async with asyncio.timeout(seconds or self._limits.collect_seconds):
                return await asking
        except (Error, TimeoutError):
            return otherwise

    def _what_was_cut(self, traffic: Traffic) -> list[str]:
        notes = []
        if traffic.too_many:
            notes.append(f"made more than {self._limits.max_requests} requests; the rest was not loaded")
        elif self._proxy.is_shut:
            notes.append(self._too_large())
        if refused := self._proxy.refused_hosts:
            shown = ", ".join(refused[:5]) + (", …" if len(refused) > 5 else "")
            notes.append(f"requests to addresses that are not public were refused: {shown}")
        return notes

    def _too_large(self) -> str:
        return f"loaded more than {self._limits.max_bytes / MEBIBYTE:g} MB; the rest was cut"


async def _close(page: Page) -> None:
    with suppress(Error):  # it closed itself, or crashed
        await page.close()


async def _closed(page: Page) -> bool:
    await _close(page)
    return True


def _texts(told: Any) -> list[str]:
    return list(dict.fromkeys(text for text in told if isinstance(text, str))) if isinstance(told, list) else []
