"""Pages of the sites that the workflows read: a usable response, or a failure that says whether a retry may help."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from config import Settings
from services.fetching import Fetched, Fetcher, FetchFailed, Limits, fetcher_from, may_work_later, shown_url
from services.fetching.sites.urls import registrable_domain
from services.jobs import JobFailed, PermanentFailure
from services.queues.deadline import remaining_seconds

HTML = frozenset({"text/html", "application/xhtml+xml", ""})
HEADERS = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@contextmanager
def polite_fetcher(settings: Settings, limits: Limits) -> Iterator[Fetcher]:
    """For one run of a queue: its items share the fetcher and thereby its pace."""
    with fetcher_from(settings, limits, delay_seconds=settings.workflow_fetch_delay_seconds) as fetcher:
        yield fetcher


def get(fetcher: Fetcher, url: str, limits: Limits | None = None) -> Fetched:
    """Within the time of the item that this thread processes."""
    return fetcher.get(url, headers=HEADERS, limits=limits, remaining_seconds=remaining_seconds)


def home_page(fetcher: Fetcher, domain: str) -> Fetched:
    """https first, then http; if both fail, the failure of http counts."""
    try:
        return get(fetcher, f"https://{domain}/")
    except FetchFailed:
        return get(fetcher, f"http://{domain}/")


def usable(page: Fetched) -> Fetched:
    """A usable page; otherwise a failure, which is permanent unless the status is temporary."""
    if page.status_code == 200:
        return page
    said = f"GET {shown_url(page.url)} answered {page.status_code}"
    if may_work_later(page.status_code):
        raise JobFailed(said, retry_after_seconds=page.retry_after_seconds)
    raise PermanentFailure(said)


def html_of(page: Fetched) -> str:
    usable(page)
    if page.content_type not in HTML:
        raise PermanentFailure(f"GET {shown_url(page.url)} answered {page.content_type}, not HTML")
    return page.text


def is_of_site(url: str, domain: str) -> bool:
    """A page on a social network does not belong to the domain, although the domain may redirect to it."""
    return registrable_domain(urlsplit(url).hostname or "") == registrable_domain(domain)
