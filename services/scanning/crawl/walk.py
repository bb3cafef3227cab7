"""The crawl through a site: page after page, politely, with retries. A page that fails is noted and skipped."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from services.checks.page_addresses import MAX_PAGE_ADDRESS
from services.fetching import may_work_later
from services.fetching.sites.robots import Robots
from services.fetching.sites.urls import Site, normal_url, origin_of
from services.scanning.config import CookieScanConfig
from services.scanning.cookies.inventory import Inventory
from services.scanning.crawl.backoff import BACKOFF
from services.scanning.crawl.frontier import Frontier, Target
from services.scanning.findings import Page, PageFailed, PageVisit, ScanEngine
from services.scanning.watch import Watch

GIVE_UP_AFTER_FAILURES = 10  # consecutive temporary failures: the site went down during the scan
FORBIDDEN = "robots.txt forbids it"

Hints = Callable[[], list[str]]


class Crawl:
    """One crawl. Results: `pages`, `inventory`, `notes`, `is_complete`."""

    def __init__(
        self, start_url: str, config: CookieScanConfig, engine: ScanEngine, robots: Robots, hints: Hints, watch: Watch
    ) -> None:
        self._start_url, self._config, self._engine = start_url, config, engine
        self._robots, self._hints, self._watch = robots, hints, watch
        self.site = Site.of(start_url)
        self._frontier = Frontier(self.site, config.max_pages, config.scan_depth)
        self._delay_seconds = max(config.delay_seconds, robots.rules(origin_of(start_url)).delay_seconds)
        self._turn_at = 0.0
        self._hinted = False
        self._failures_in_a_row = 0
        self._forbidden = 0
        self.failures: list[PageFailed] = []
        self.pages: list[Page] = []
        self.inventory = Inventory()
        self.is_complete = True
        self._notes: list[str] = []

    def run(self) -> None:
        self._ask_for_pages()
        while len(self.pages) < self._config.max_pages and (target := self._next()) and not self._should_stop():
            if not self._robots.allows(target.url):
                self._pass_by(target)
                continue
            self._wait_for_our_turn()
            if self._should_stop():
                break
            self._keep(self._see(target))

    @property
    def notes(self) -> list[str]:
        notes = [*self._notes, *self._frontier.notes()]
        if self._forbidden:
            notes.append(f"pages left out because robots.txt forbids them: {self._forbidden}")
        if self.inventory.left_out:
            notes.append(f"there are more than {len(self.inventory)} different cookies; the rest was left out")
        return notes

    # --- which page is next ---

    def _ask_for_pages(self) -> None:
        for address in self._config.custom_pages:
            url = normal_url(address, self._start_url)
            if url is not None and self.site.has(url):
                self._frontier.ask(url)
            else:
                self._notes.append(f"custom page {address} is not a page of {self.site.host}")
        self._frontier.ask(self._start_url)

    def _next(self) -> Target | None:
        """First the configured pages and their links, then the pages of the site's sitemaps."""
        target = self._frontier.next()
        if not self._hinted and (target is None or target.depth > 0):
            self._hinted = True
            if self._config.scan_depth > 0 and any(page.error is None for page in self.pages):
                self._frontier.add(self._hints(), depth=1)
            target = target or self._frontier.next()
        return target

    def _should_stop(self) -> bool:
        if self._watch.is_over:
            self._stop(f"stopped after {len(self.pages)} pages: the time for this run is nearly over")
        elif self._failures_in_a_row >= GIVE_UP_AFTER_FAILURES:
            self._stop(f"stopped: {GIVE_UP_AFTER_FAILURES} pages in a row could not be visited")
        return not self.is_complete

    def _stop(self, why: str) -> None:
        self.is_complete = False
        self._notes.append(why)

    def _pass_by(self, target: Target) -> None:
        self._forbidden += 1
        if target.depth == 0:
            self._keep(
                Page(
                    url=target.url, final_url=None, depth=0, attempts=0, status_code=None, error=FORBIDDEN, elapsed_ms=0
                )
            )

    # --- one page ---

    def _see(self, target: Target) -> Page:
        last = self._config.max_retries + 1
        for attempt in range(1, last + 1):
            begun_at = time.monotonic()
            try:
                return self._seen(target, attempt, self._visit(target.url))
            except PageFailed as failure:
                self.inventory.add(failure.cookies, datetime.now(UTC))
                if attempt == last or not self._may_try_again(target, attempt, failure):
                    return self._failed(target, attempt, failure, begun_at)
        raise AssertionError("unreachable: the last attempt returns")

    def _may_try_again(self, target: Target, attempt: int, failure: PageFailed) -> bool:
        """Waits before the next attempt."""
        wait_seconds = BACKOFF.at_least(failure.retry_after_seconds, attempt) if failure.retryable else None
        if wait_seconds is None or self._watch.is_over:
            return False
        self._watch.log(f"{target.url}: {failure}; again in {wait_seconds:g} s")
        self._watch.wait(wait_seconds)
        return not self._watch.is_over

    def _visit(self, url: str) -> PageVisit:
        visit = self._engine.visit(url, self._watch.remaining_seconds)
        if may_work_later(visit.status_code):
            raise PageFailed(f"answered {visit.status_code}")
        return visit

    def _seen(self, target: Target, attempt: int, visit: PageVisit) -> Page:
        final_url = normal_url(visit.final_url) or target.url
        self._frontier.reached(final_url)
        self.inventory.add(visit.cookies, datetime.now(UTC))
        error = f"answered {visit.status_code}" if visit.status_code >= 400 else None
        notes = list(visit.notes)
        if not self.site.has(final_url):
            notes.append(f"it leads to {origin_of(final_url)}, which is another site")
        if error is None:
            links = (url for link in visit.links if (url := normal_url(link)))
            self._frontier.add(links, target.depth + 1)
        else:
            self.failures.append(PageFailed(error, retryable=False))
        self._failures_in_a_row = 0
        return Page(
            url=target.url,
            final_url=visit.final_url[:MAX_PAGE_ADDRESS],
            depth=target.depth,
            attempts=attempt,
            status_code=visit.status_code,
            error=error,
            elapsed_ms=visit.elapsed_ms,
            notes=tuple(notes),
        )

    def _failed(self, target: Target, attempt: int, failure: PageFailed, begun_at: float) -> Page:
        self.failures.append(failure)
        self._failures_in_a_row += failure.retryable
        return Page(
            url=target.url,
            final_url=None,
            depth=target.depth,
            attempts=attempt,
            status_code=None,
            error=str(failure),
            elapsed_ms=round((time.monotonic() - begun_at) * 1000),
        )

    def _keep(self, page: Page) -> None:
        self.pages.append(page)
        found = f"{page.error or page.status_code}, {len(self.inventory)} cookies so far"
        self._watch.log(f"{page.url}: {found}")
        self._watch.progress(len(self.pages), min(self._config.max_pages, len(self.pages) + len(self._frontier)))

    def _wait_for_our_turn(self) -> None:
        self._watch.wait(max(0.0, self._turn_at - time.monotonic()))
        self._turn_at = time.monotonic() + self._delay_seconds
