"""The HTTP engine: requests the page and its embedded resources, and reads their Set-Cookie headers.

It runs no script and clicks nothing. It therefore sees no storage, and everything it sees was set before consent.
"""

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from http.cookiejar import Cookie, CookieJar

from services.fetching import (
    MAX_URL_CHARACTERS,
    Fetched,
    Fetcher,
    FetchFailed,
    Hop,
    Limits,
    may_work_later,
    shown_url,
)
from services.fetching.sites.urls import origin_of
from services.scanning.cookies.set_cookie import NoCookie, read_set_cookie
from services.scanning.engines.markup import Markup, read_markup
from services.scanning.findings import EngineName, PageFailed, PageVisit, SeenCookie

MAX_PAGE_BYTES = 2 * 1024 * 1024
MAX_RESOURCES_PER_PAGE, MAX_RESOURCES_PER_SCAN = 100, 2_000
MAX_SIGHTINGS_PER_PAGE = 5_000
RESOURCE_SECONDS, SLOW_SECONDS = 10.0, 5.0
READ_SECONDS = 10.0  # for parsing a page; most take milliseconds, crafted ones minutes
DEAD_AFTER_FAILURES = 2  # failures or timeouts of one server's resources, after which the rest is skipped
HTML = frozenset({"text/html", "application/xhtml+xml", ""})
ACCEPT = "text/html,application/xhtml+xml,*/*;q=0.8"


class HttpEngine:
    """One visitor: cookies are sent back, and each embedded address is requested once per scan."""

    name = EngineName.HTTP

    def __init__(self, fetcher: Fetcher, jar: CookieJar, page_timeout_seconds: float) -> None:
        self._fetcher, self._jar, self._page_timeout_seconds = fetcher, jar, page_timeout_seconds
        self._asked_for: set[str] = set()
        self._failures: Counter[str] = Counter()  # of embedded resources, by server

    def visit(self, url: str, remaining_seconds: Callable[[], float]) -> PageVisit:
        had = {_identity(cookie) for cookie in self._jar}
        try:
            return self._visit(url, remaining_seconds)
        except PageFailed:
            self._forget_all_but(had)  # otherwise the next attempt would not receive this one's cookies again
            raise

    def close(self) -> None:
        self._fetcher.close()

    def _visit(self, url: str, remaining_seconds: Callable[[], float]) -> PageVisit:
        ends_at = time.monotonic() + self._page_timeout_seconds
        sightings = _Sightings(url)
        page = self._page(url, sightings, remaining_seconds)
        notes = [f"the page is longer than {MAX_PAGE_BYTES // 1024**2} MiB; the rest was not read"] * page.truncated
        is_html = page.content_type in HTML and page.status_code < 400
        markup = _markup(page, remaining_seconds) if is_html else Markup()
        notes += ["not all of the page could be read"] * (not markup.is_whole)
        if markup.too_long:
            notes.append(
                f"embedded addresses of more than {MAX_URL_CHARACTERS:,} characters left out: {markup.too_long}"
            )
        notes += self._embedded(markup.resources, page.url, sightings, ends_at, remaining_seconds)
        return PageVisit(
            url=url,
            final_url=page.url,
            status_code=page.status_code,
            links=markup.links,
            cookies=tuple(sightings.cookies),
            elapsed_ms=page.elapsed_ms,
            notes=(*notes, *sightings.notes()),
        )

    def _page(self, url: str, sightings: "_Sightings", remaining_seconds: Callable[[], float]) -> Fetched:
        limits = Limits(max_bytes=MAX_PAGE_BYTES, max_seconds=self._page_timeout_seconds)
        try:
            page = self._fetcher.get(
                url, remaining_seconds=remaining_seconds, headers={"Accept": ACCEPT}, limits=limits
            )
        except FetchFailed as error:
            sightings.add(error.hops)
            raise PageFailed(
                str(error).removeprefix(f"GET {shown_url(url)}: "),  # the page's own line already names the URL
                retryable=error.retryable,
                retry_after_seconds=error.retry_after_seconds,
                cookies=tuple(sightings.cookies),
            ) from None
        sightings.add(page.hops)
        if may_work_later(page.status_code):
            raise PageFailed(
                f"answered {page.status_code}",
                retry_after_seconds=page.retry_after_seconds,
                cookies=tuple(sightings.cookies),
            )
        return page

    def _embedded(
        self,
        resources: tuple[str, ...],
        page_url: str,
        sightings: "_Sightings",
        ends_at: float,
        remaining_seconds: Callable[[], float],
    ) -> list[str]:
        """Request the embedded resources without reading their bodies; returns notes for the report."""
        new = [url for url in resources if url not in self._asked_for]
        room = min(MAX_RESOURCES_PER_PAGE, MAX_RESOURCES_PER_SCAN - len(self._asked_for))
        failed, asked = 0, 0
        for url in new[: max(0, room)]:
            seconds = min(RESOURCE_SECONDS, ends_at - time.monotonic())
            if seconds <= 0:
                break
            asked += 1
            self._asked_for.add(url)
            failed += not self._ask_for(url, page_url, sightings, seconds, remaining_seconds)
        left = len(new) - asked
        notes = [f"embedded addresses left out (too many, or no time left): {left} of {len(new)}"] if left else []
        return notes + ([f"embedded addresses that could not be loaded: {failed} of {len(new)}"] if failed else [])

    def _ask_for(
        self,
        url: str,
        page_url: str,
        sightings: "_Sightings",
        seconds: float,
        remaining_seconds: Callable[[], float],
    ) -> bool:
        server = origin_of(url)
        if self._failures[server] >= DEAD_AFTER_FAILURES:
            return False
        begun_at = time.monotonic()
        try:
            fetched = self._fetcher.get(
                url,
                remaining_seconds=remaining_seconds,
                headers={"Referer": f"{origin_of(page_url)}/"},
                limits=Limits(max_seconds=seconds),
                read_body=False,
            )
        except FetchFailed as error:
            sightings.add(error.hops)
            # Any response proves that the server is alive; following it must not use up the page's time.
            is_silent = error.retryable and not error.hops
            self._failures[server] += is_silent or time.monotonic() - begun_at >= SLOW_SECONDS
            return False
        sightings.add(fetched.hops)
        return True

    def _forget_all_but(self, had: set[tuple[str, str, str]]) -> None:
        for domain, path, name in {_identity(cookie) for cookie in self._jar} - had:
            self._jar.clear(domain, path, name)


class _Sightings:
    """The cookies of one page, and the number of refused headers."""

    def __init__(self, page_url: str) -> None:
        self._page_url = page_url
        self.cookies: list[SeenCookie] = []
        self._refused: Counter[NoCookie] = Counter()
        self._left_out = 0

    def add(self, hops: tuple[Hop, ...]) -> None:
        now = datetime.now(UTC)
        for hop in hops:
            self._left_out += hop.cookies_left_out
            for raw in hop.set_cookies:
                if len(self.cookies) >= MAX_SIGHTINGS_PER_PAGE:
                    self._left_out += 1
                    continue
                self._add(read_set_cookie(raw, request_url=hop.url, page_url=self._page_url, now=now))

    def _add(self, read: SeenCookie | NoCookie) -> None:
        if isinstance(read, NoCookie):
            self._refused[read] += 1
        else:
            self.cookies.append(read)

    def notes(self) -> list[str]:
        refused = [(reason, count) for reason, count in self._refused.items() if reason is not NoCookie.DELETED]
        notes = [f"Set-Cookie headers that browsers refuse: {count} ({reason})" for reason, count in refused]
        return notes + (
            [f"Set-Cookie headers left out because there are too many: {self._left_out}"] * bool(self._left_out)
        )


def _markup(page: Fetched, remaining_seconds: Callable[[], float]) -> Markup:
    ends_at = time.monotonic() + READ_SECONDS
    return read_markup(page.text, page.url, lambda: remaining_seconds() > 0 and time.monotonic() < ends_at)


def _identity(cookie: Cookie) -> tuple[str, str, str]:
    return cookie.domain, cookie.path, cookie.name
