"""Sitemaps as hints for the crawl: a broken one only means fewer addresses."""

from collections import deque
from collections.abc import Callable, Iterable

from database.workflow_statuses import SitemapType
from services.fetching import Fetched, Fetcher, FetchFailed, Limits
from services.fetching.sites.listing import BadSitemap
from services.fetching.sites.sitemaps import read_sitemap
from services.fetching.sites.urls import Site, normal_url

MAX_FILES = 10
LIMITS = Limits(max_bytes=5 * 1024 * 1024, max_seconds=20.0)


def pages_in_sitemaps(
    sitemaps: Iterable[str], site: Site, fetcher: Fetcher, wanted: int, remaining_seconds: Callable[[], float]
) -> list[str]:
    """Up to `wanted` pages of the site; an index leads to further files, up to a limit."""
    waiting = deque(dict.fromkeys(sitemaps))
    known, found = set(waiting), dict[str, None]()
    fetches = 0
    while waiting and len(found) < wanted and fetches < MAX_FILES:
        fetches += 1
        try:
            fetched = fetcher.get(waiting.popleft(), limits=LIMITS, remaining_seconds=remaining_seconds)
        except FetchFailed:
            continue
        pages, files = addresses_in(fetched, remaining_seconds) if fetched.status_code == 200 else ([], [])
        own = (url for page in pages if (url := normal_url(page)) and site.has(url))
        found.update(dict.fromkeys(own))
        further = [url for file in files if (url := normal_url(file)) and site.has(url) and url not in known]
        known.update(further)
        waiting.extend(further)
    return list(found)[:wanted]


def addresses_in(fetched: Fetched, check: Callable[[], object] = lambda: None) -> tuple[list[str], list[str]]:
    """The pages and further sitemaps that a file lists; of an invalid file, those before the error."""
    try:
        sitemap = read_sitemap(fetched.body, whole=not fetched.truncated, check=check)
    except BadSitemap as error:
        return [entry.url for entry in error.entries], []
    urls = [entry.url for entry in sitemap.entries]
    return ([], urls) if sitemap.kind is SitemapType.INDEX else (urls, [])
