"""The running browser: one Chromium behind the guarded proxy, with a context for each visitor.

Everything runs in the engine's event loop; nothing outlives `close`.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from playwright.async_api import Browser, CDPSession, Error, Playwright, async_playwright

from services.errors import ConfigurationError
from services.fetching import Guard
from services.fetching.detours import Detours
from services.scanning.engines.browser.failures import first_line
from services.scanning.engines.browser.limits import MEBIBYTE, BrowserLimits
from services.scanning.engines.browser.process import Profile, family, kill, memory_bytes
from services.scanning.engines.browser.visitor import Key, Seen, Visitor
from services.scanning.engines.guarded_proxy import GuardedProxy
from services.scanning.findings import PageFailed, PageVisit, SeenCookie

Cookies = tuple[SeenCookie, ...]
Notes = tuple[str, ...]
END_SECONDS = 5.0
MEMORY_CHECK_SECONDS = 0.5
# The proxy is the only route to the network: the browser resolves no names and uses no UDP.
SWITCHES = (
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--disable-quic",
    "--dns-prefetch-disable",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)


class BrowserSession:
    """Start it, visit pages, close it, even after a failed start. Once it `is_gone`, it can only be closed."""

    def __init__(
        self,
        program: Path,
        guard: Guard,
        limits: BrowserLimits,
        accept_selector: str | None,
        user_agent: str | None,
        detours: Detours,
    ) -> None:
        self._program, self._limits, self._selector, self._user_agent = program, limits, accept_selector, user_agent
        self._profile = Profile()
        self._proxy = GuardedProxy(guard, detours=detours)
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._devtools: CDPSession
        self._refusing: Visitor | None = None
        self._agreeing: Visitor | None = None
        self._before: set[Key] = set()  # cookies set without consent
        self._hungry = False
        self.is_gone = False

    async def start(self) -> None:
        address = await self._proxy.start()
        playwright = await self._start_driver()
        try:
            self._browser = await self._launch(playwright, address)
            self._devtools = await self._browser.new_browser_cdp_session()
            self._refusing = await self._visitor(self._browser, None)
            if self._selector is not None:
                self._agreeing = await self._visitor(self._browser, self._selector)
        except Error as error:
            raise _start_failure(error) from None

    async def _answers(self) -> bool:
        """After a failure: tells a lost page from a lost browser or driver."""
        try:
            async with asyncio.timeout(END_SECONDS):
                await self._devtools.send("Browser.getVersion")
        except (Error, TimeoutError):
            self.is_gone = True
        return not self.is_gone

    async def visit(self, url: str, load_seconds: float) -> PageVisit:
        assert self._refusing is not None  # noqa: S101 - it was started
        begun_at = time.monotonic()
        async with self._watching_memory():
            seen = await self._seen_by(self._refusing, url, load_seconds)
            elapsed_ms = round((time.monotonic() - begun_at) * 1000)
            self._before |= {cookie.key for cookie in seen.cookies}
            cookies, notes = seen.cookies, seen.notes
            if self._agreeing is not None:
                agreed, more = await self._with_consent(self._agreeing, url, load_seconds)
                cookies += tuple(cookie for cookie in agreed if cookie.key not in self._before)
                notes += tuple(note for note in more if note not in notes)
        return PageVisit(
            url=url,
            final_url=seen.final_url,
            status_code=seen.status_code,
            links=seen.links,
            cookies=cookies,
            elapsed_ms=elapsed_ms,
            notes=notes,
        )

    async def close(self) -> None:
        """Kills what does not end by itself."""
        try:
            if self._browser is not None:
                await _at_most(self._browser.close())
            if self._playwright is not None:
                await _at_most(self._playwright.stop())
            await self._proxy.close()
        finally:
            self._profile.remove()

    async def _start_driver(self) -> Playwright:
        """Completes even if the scan is stopped meanwhile: a half-started browser would never be ended."""
        starting = asyncio.ensure_future(async_playwright().start())
        try:
            self._playwright = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._playwright = await starting
            raise
        return self._playwright

    async def _launch(self, playwright: Playwright, proxy_address: str) -> Browser:
        context = await playwright.chromium.launch_persistent_context(
            self._profile.path,
            executable_path=self._program,
            headless=True,
            chromium_sandbox=os.geteuid() != 0,  # Chromium refuses to use its sandbox as root
            args=SWITCHES,
            proxy={"server": proxy_address, "bypass": "<-loopback>"},  # localhost goes through the proxy, too
            env={"PATH": os.defpath, "HOME": str(self._profile.path)},  # pages must not read our secrets
            timeout=self._limits.start_seconds * 1000,
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
        )
        assert context.browser is not None  # noqa: S101 - it is one that we have launched
        return context.browser

    async def _visitor(self, browser: Browser, selector: str | None) -> Visitor:
        context = await browser.new_context(
            user_agent=self._user_agent,
            viewport={"width": 1366, "height": 900},
            service_workers="block",  # service workers would answer instead of the site
            accept_downloads=False,
        )
        visitor = Visitor(context, self._devtools, self._proxy, self._limits, selector)
        await visitor.open()
        return visitor

    async def _seen_by(self, visitor: Visitor, url: str, load_seconds: float) -> Seen:
        try:
            return await visitor.visit(url, load_seconds)
        except (PageFailed, Error) as error:
            if self._hungry:
                limit = self._limits.max_memory_bytes / MEBIBYTE
                raise PageFailed(f"the page needs more than {limit:g} MB of memory", retryable=False) from None
            if not await self._answers():
                raise PageFailed("the browser ended unexpectedly") from None
            if isinstance(error, Error):
                raise PageFailed(first_line(error)) from None
            raise
        finally:
            self.is_gone = self.is_gone or visitor.is_stuck

    async def _with_consent(self, visitor: Visitor, url: str, load_seconds: float) -> tuple[Cookies, Notes]:
        """A failed second visit does not discard the findings of the first."""
        try:
            agreed = await self._seen_by(visitor, url, load_seconds)
        except PageFailed as failure:
            return (), (f"could not be visited with consent: {failure}",)
        return agreed.cookies, agreed.notes

    @asynccontextmanager
    async def _watching_memory(self) -> AsyncIterator[None]:
        self._hungry = False
        watching = asyncio.create_task(self._watch_memory())
        try:
            yield
        finally:
            watching.cancel()

    async def _watch_memory(self) -> None:
        """Kills the largest process when the memory limit is exceeded: that is the page, not the browser."""
        while True:
            await asyncio.sleep(MEMORY_CHECK_SECONDS)
            sizes = {pid: memory_bytes(pid) for pid in family(self._profile.path)}
            if sum(sizes.values()) > self._limits.max_memory_bytes:
                self._hungry = True
                kill(max(sizes, key=lambda pid: sizes[pid]))


async def _at_most(ending: Awaitable[None]) -> None:
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            await ending


def _start_failure(error: Error) -> ConfigurationError | PageFailed:
    if "No usable sandbox" in error.message:
        return ConfigurationError(
            "the browser does not start without its sandbox: allow unprivileged user namespaces, "
            "or `apt-get install chromium-sandbox`"
        )
    return PageFailed(f"the browser does not start: {first_line(error)}")
