"""Discovers the sitemaps of a domain: robots.txt, the home page, the usual paths, and the files of an index.

The content of a file decides, not the status: a site that responds 200 to everything has no sitemap.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from database.workflow_statuses import DiscoveryMethod, SitemapType
from services.fetching import Fetched, Fetcher, FetchFailed, Limits, may_work_later
from services.fetching.sites.listing import BadSitemap
from services.fetching.sites.robots import read_robots
from services.fetching.sites.sitemaps import Sitemap, read_sitemap
from services.fetching.sites.urls import host_of, normal_url, origin_of
from services.jobs import JobFailed
from services.queues.deadline import remaining_seconds
from services.workflows.parsing.page_content import read_page
from services.workflows.web_pages import HTML, get, home_page, is_of_site

COMMON_PATHS = (
    "/sitemap.xml", "/sitemap_index.xml", "/sitemap-index.xml", "/wp-sitemap.xml", "/post-sitemap.xml",
    "/page-sitemap.xml", "/sitemap1.xml", "/sitemap.xml.gz",
)  # fmt: skip
MAX_DEPTH = 3  # depth of nested indexes
MAX_LOOKED_INTO, MAX_FILES = 30, 1_000
SAID = frozenset({DiscoveryMethod.ROBOTS_TXT, DiscoveryMethod.SITEMAP_INDEX})  # named by the site; others are guesses
RESERVED_SECONDS = 12.0  # of the job's time, for saving what was found
HOME_LIMITS = Limits(max_bytes=1024 * 1024, max_seconds=15.0)
ROBOTS_LIMITS = Limits(max_bytes=512 * 1024, max_seconds=10.0)
FILE_LIMITS = Limits(max_bytes=2 * 1024 * 1024, max_seconds=10.0)


@dataclass(frozen=True, slots=True)
class FoundSitemap:
    url: str
    method: DiscoveryMethod
    kind: SitemapType
    looked_into: bool  # False: the site names it, but there was no time to fetch it
    url_count: int | None = None
    size_bytes: int | None = None
    problem: str | None = None  # the error in the file
    readable: bool = True


@dataclass(frozen=True, slots=True)
class Discovery:
    sitemaps: tuple[FoundSitemap, ...]
    fetches: int
    note: str | None = None


@dataclass(frozen=True, slots=True)
class _Candidate:
    url: str
    method: DiscoveryMethod
    depth: int = 0


def discover_sitemaps(fetcher: Fetcher, domain: str) -> Discovery:
    """Raises FetchFailed or JobFailed when the site is temporarily unavailable."""
    home = home_page(fetcher, domain)
    if not is_of_site(home.url, domain):
        return Discovery((), 1, f"redirects to another site, {host_of(home.url)}")
    search = _Search(fetcher, domain)
    origin = origin_of(home.url)
    search.offer(_of_robots(search, origin))
    search.offer(_of_home_page(home))
    search.offer(_Candidate(f"{origin}{path}", DiscoveryMethod.COMMON_PATH) for path in COMMON_PATHS)
    search.run()
    if not search.found and search.trouble is not None:
        raise search.trouble
    note = None if search.found else f"none found with {search.fetches} requests"
    return Discovery(tuple(search.found.values()), search.fetches, note)


class _Search:
    """Breadth first; each address once."""

    def __init__(self, fetcher: Fetcher, domain: str) -> None:
        self._fetcher, self._domain = fetcher, domain
        self._waiting: deque[_Candidate] = deque()
        self._known: set[str] = set()
        self.found: dict[str, FoundSitemap] = {}
        self.trouble: FetchFailed | JobFailed | None = None  # a temporary failure: a file may exist at another time
        self.fetches = 1

    def offer(self, candidates: Iterator[_Candidate]) -> None:
        for candidate in candidates:
            url = normal_url(candidate.url)
            if url is not None and url not in self._known and len(self._known) < MAX_FILES:
                self._known.add(url)
                self._waiting.append(_Candidate(url, candidate.method, candidate.depth))

    def run(self) -> None:
        while self._waiting:
            candidate = self._waiting.popleft()
            may_ask = self.fetches < MAX_LOOKED_INTO
            if may_ask and remaining_seconds() > RESERVED_SECONDS:
                self._look_into(candidate)
            elif candidate.method in SAID:
                unseen = FoundSitemap(candidate.url, candidate.method, SitemapType.STANDARD, looked_into=False)
                self.found[candidate.url] = unseen
            elif may_ask:
                self.trouble = self.trouble or JobFailed("the site is too slow: not every location could be checked")

    def fetch(self, url: str, limits: Limits) -> Fetched | None:
        """None: nothing there (now)."""
        self.fetches += 1
        try:
            answer = get(self._fetcher, url, limits)
        except FetchFailed as error:
            self.trouble = error if error.retryable else self.trouble
            return None
        if may_work_later(answer.status_code):
            said = f"{url} answered {answer.status_code}"
            self.trouble = JobFailed(said, retry_after_seconds=answer.retry_after_seconds)
        return answer if answer.status_code == 200 else None

    def _look_into(self, candidate: _Candidate) -> None:
        answer = self.fetch(candidate.url, FILE_LIMITS)
        url = None if answer is None else normal_url(answer.url)
        if answer is None or url is None or url in self.found or not self._may_be_of(candidate.url, url):
            return
        try:
            sitemap = read_sitemap(answer.body, whole=not answer.truncated, check=remaining_seconds)
        except BadSitemap as error:
            if error.looks_like_one or candidate.method in SAID:
                self.found[url] = FoundSitemap(
                    url, candidate.method, SitemapType.STANDARD, looked_into=True, problem=str(error), readable=False
                )
            return
        self.found[url] = FoundSitemap(
            url,
            candidate.method,
            sitemap.kind,
            looked_into=True,
            url_count=None if answer.truncated else len(sitemap.entries),
            size_bytes=None if answer.truncated else sitemap.size_bytes,
            problem=None if answer.truncated else sitemap.problem,
        )
        if sitemap.kind is SitemapType.INDEX and candidate.depth < MAX_DEPTH:
            self.offer(self._children(candidate, sitemap))

    def _children(self, parent: _Candidate, index: Sitemap) -> Iterator[_Candidate]:
        for entry in index.entries:
            url = normal_url(entry.url, parent.url)
            if url is not None and self._may_be_of(parent.url, url):
                yield _Candidate(url, DiscoveryMethod.SITEMAP_INDEX, parent.depth + 1)

    def _may_be_of(self, origin: str, url: str) -> bool:
        """Targets of an index or a redirect: the same host or the domain, never another site."""
        return host_of(url) == host_of(origin) or is_of_site(url, self._domain)


def _of_robots(search: _Search, origin: str) -> Iterator[_Candidate]:
    """Its sitemaps may be anywhere: robots.txt speaks for the site."""
    answer = search.fetch(f"{origin}/robots.txt", ROBOTS_LIMITS)
    for address in read_robots(answer.text).sitemaps if answer else ():
        yield _Candidate(normal_url(address, f"{origin}/") or "", DiscoveryMethod.ROBOTS_TXT)


def _of_home_page(home: Fetched) -> Iterator[_Candidate]:
    if home.status_code != 200 or home.content_type not in HTML or not urlsplit(home.url).hostname:
        return
    page = read_page(home.text, home.url, remaining_seconds)
    for tag in page.tags:
        if tag.name == "link" and "sitemap" in tag.get("rel").lower().split():
            yield _Candidate(page.absolute(tag.get("href")) or "", DiscoveryMethod.HTML_LINK)
