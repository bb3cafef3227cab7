"""Pages of the sites that the workflows look at: an answer that can be used, or a failure that says what to expect."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from config import Settings
from services.fetching import Fetched, Fetcher, FetchFailed, Limits, fetcher_from, may_work_later, shown_url
from services.jobs import JobFailed, PermanentFailure
from services.queues.deadline import remaining_seconds
from services.sites.urls import registrable_domain

HTML = frozenset({"text/html", "application/xhtml+xml", ""})
HEADERS = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@contextmanager
def polite_fetcher(settings: Settings, limits: Limits) -> Iterator[Fetcher]:
    """For one run of a queue; its items share it, and so keep their distance from one another."""
    with fetcher_from(settings, limits, delay_seconds=settings.workflow_fetch_delay_seconds) as fetcher:
        yield fetcher


def get(fetcher: Fetcher, url: str, limits: Limits | None = None) -> Fetched:
    """Within the time of the item that this thread works on."""
    return fetcher.get(url, headers=HEADERS, limits=limits, remaining_seconds=remaining_seconds)


def home_page(fetcher: Fetcher, domain: str) -> Fetched:
    """https first, then http; what http says counts when neither works."""
    try:
        return get(fetcher, f"https://{domain}/")
    except FetchFailed:
        return get(fetcher, f"http://{domain}/")


def usable(page: Fetched) -> Fetched:
    """A page that is there; else a failure, permanent unless the server says that it is about now."""
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
    """Somebody's page on a social network is not the domain's, though the domain may redirect to it."""
    return registrable_domain(urlsplit(url).hostname or "") == registrable_domain(domain)
