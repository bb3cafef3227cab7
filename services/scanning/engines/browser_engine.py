"""The browser engine: sees what a real browser sees (scripts, storage, third parties, before and after consent).

A synchronous object for one thread. The thread's event loop runs during a visit and stands still in between. Playwright
is imported with the first page, so that other jobs do not need it.
"""

import asyncio
import importlib.util
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from config import Settings
from enhanced_scheduler.extras import how_to_install
from services.errors import ConfigurationError
from services.fetching import Guard
from services.fetching.detours import Detours
from services.scanning.engines.browser.limits import BrowserLimits
from services.scanning.engines.browser.process import find_browser
from services.scanning.findings import EngineName, PageFailed, PageVisit

if TYPE_CHECKING:
    from services.scanning.engines.browser.session import BrowserSession

POLL_SECONDS = 0.2  # how soon a stop is noticed
CLOSE_SECONDS = 10.0

T = TypeVar("T")
logger = logging.getLogger(__name__)


def browser_engine_from(
    settings: Settings,
    *,
    accept_selector: str | None = None,
    page_timeout_seconds: float = 30.0,
    user_agent: str | None = None,
) -> "BrowserEngine":
    """Raises ConfigurationError without a browser or without playwright."""
    guard = Guard.parse(settings.fetch_allow_private_addresses, settings.fetch_allowed_networks)
    limits = BrowserLimits(page_seconds=page_timeout_seconds)
    detours = Detours.parse(settings.fetch_connect_to)
    return BrowserEngine(find_browser(settings.scan_browser), guard, limits, accept_selector, user_agent, detours)


def has_browser(settings: Settings) -> bool:
    try:
        browser_engine_from(settings)
    except ConfigurationError:
        return False
    return True


class BrowserEngine:
    name = EngineName.BROWSER

    def __init__(
        self,
        program: Path,
        guard: Guard,
        limits: BrowserLimits = BrowserLimits(),
        accept_selector: str | None = None,
        user_agent: str | None = None,
        detours: Detours = Detours(),
    ) -> None:
        if importlib.util.find_spec("playwright") is None:
            raise ConfigurationError(f"the package that drives the browser is missing: run {how_to_install('browser')}")
        self._options = (program, guard, limits, accept_selector, user_agent, detours)
        self._limits = limits
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: BrowserSession | None = None
        self._hopeless: PageFailed | None = None  # the reason why no page can be visited any longer

    def visit(self, url: str, remaining_seconds: Callable[[], float]) -> PageVisit:
        load_seconds = max(0.1, min(self._limits.page_seconds, remaining_seconds()))
        return self._run(self._visit(url, load_seconds), remaining_seconds)

    def close(self) -> None:
        """Ends the browser; kills what does not end by itself."""
        if self._loop is None:
            return
        loop, self._loop = self._loop, None
        try:
            loop.run_until_complete(self._end_session())
        finally:
            _finish(loop)

    async def _visit(self, url: str, load_seconds: float) -> PageVisit:
        session = await self._running_session()
        visitors_seconds = 2 * self._limits.visit_seconds
        try:
            async with asyncio.timeout(visitors_seconds):
                return await session.visit(url, load_seconds)
        except TimeoutError:
            await self._end_session()
            raise PageFailed(f"the browser did not finish within {visitors_seconds:g} s") from None

    async def _running_session(self) -> "BrowserSession":
        from services.scanning.engines.browser.session import BrowserSession

        if self._session is not None and self._session.is_gone:
            await self._end_session()
        if self._hopeless is not None:
            raise self._hopeless
        if self._session is None:
            self._session = BrowserSession(*self._options)
            try:
                await self._session.start()
            except BaseException as error:
                self._hopeless = error if isinstance(error, PageFailed) and not error.retryable else None
                await self._end_session()
                raise
        return self._session

    async def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _run(self, work: Coroutine[Any, Any, T], remaining_seconds: Callable[[], float]) -> T:
        """Run the loop until the work is done, checking regularly whether to stop."""
        loop = self._turning_loop()
        task = loop.create_task(work)
        try:
            while not task.done():
                remaining_seconds()
                loop.run_until_complete(asyncio.wait({task}, timeout=POLL_SECONDS))
        finally:
            if not task.done():
                task.cancel()
                loop.run_until_complete(asyncio.wait({task}, timeout=CLOSE_SECONDS))
        return task.result()

    def _turning_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_exception_handler(_log_noise)
        return self._loop


def _finish(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=CLOSE_SECONDS))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def _log_noise(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Consumes results that are no longer awaited, of closed pages."""
    logger.debug("%s", context.get("message"), exc_info=context.get("exception"), extra={"event": "browser_noise"})
