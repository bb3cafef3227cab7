"""The story of a scan: find the site, crawl it, and turn what was seen into findings. Start reading here."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from config import Settings
from services.fetching import Fetcher, fetcher_from
from services.fetching.sites.robots import Robots
from services.fetching.sites.urls import Site, origin_of
from services.scanning.config import CookieScanConfig
from services.scanning.cookies.categories import CategoryRules
from services.scanning.crawl.sitemaps import pages_in_sitemaps
from services.scanning.crawl.start import find_start
from services.scanning.crawl.walk import Crawl
from services.scanning.engines.opening import open_engine
from services.scanning.failures import ScanFailed
from services.scanning.findings import EngineName, Page, ScanEngine
from services.scanning.outcome import ScanOutcome
from services.scanning.watch import Watch

MAX_NOTES, MAX_NOTE_CHARACTERS = 50, 300


def scan_domain(domain: str, config: CookieScanConfig, settings: Settings, watch: Watch = Watch()) -> ScanOutcome:
    """Scan with the configured engine; raises ScanFailed or ConfigurationError."""
    rules = CategoryRules.load(settings.scan_cookie_rules_file)
    with fetcher_from(settings) as fetcher:
        engine = open_engine(config, settings)
        try:
            return run_scan(domain, config, engine, fetcher, rules, watch)
        finally:
            engine.close()


def run_scan(
    domain: str, config: CookieScanConfig, engine: ScanEngine, fetcher: Fetcher, rules: CategoryRules, watch: Watch
) -> ScanOutcome:
    """`fetcher` is for robots.txt and sitemaps; it has its own cookies, separate from the engine's."""
    started_at = datetime.now(UTC)
    robots = Robots(fetcher, config.respect_robots, watch.remaining_seconds)
    start_url = find_start(domain, config, robots, watch)
    site = Site.of(start_url)

    def hints() -> list[str]:
        origin = origin_of(start_url)
        sitemaps = robots.rules(origin).sitemaps or [f"{origin}/sitemap.xml"]
        return pages_in_sitemaps(sitemaps, site, fetcher, 2 * config.max_pages, watch.remaining_seconds)

    crawl = Crawl(start_url, config, engine, robots, hints, watch)
    crawl.run()
    if not any(page.error is None for page in crawl.pages):
        raise _nothing_seen(domain, crawl)
    return ScanOutcome(
        domain=domain,
        engine=engine.name,
        started_at=started_at,
        start_url=start_url,
        config=config.given(),
        pages=tuple(crawl.pages),
        cookies=crawl.inventory.cookies(site, rules),
        notes=_few([*_remarks(domain, start_url, config), *_on_every_page(crawl.pages), *crawl.notes]),
        is_complete=crawl.is_complete,
    )


def _remarks(domain: str, start_url: str, config: CookieScanConfig) -> list[str]:
    notes = []
    if config.base_url is None and not start_url.startswith("https:"):
        notes.append(f"https://{domain}/ did not answer; the scan used plain http")
    if config.accept_selector and config.engine_name is not EngineName.BROWSER:
        notes.append("accept_selector has no effect: only the browser engine can click")
    return notes


def _on_every_page(pages: Iterable[Page]) -> list[str]:
    """A note that every page has concerns the whole scan, such as a consent button that was never found."""
    seen = [page for page in pages if page.error is None]
    remarks = Counter(note for page in seen for note in page.notes)
    return [f"on every page: {note}" for note, count in remarks.items() if count == len(seen)]


def _few(notes: list[str]) -> tuple[str, ...]:
    more = [f"and {len(notes) - MAX_NOTES} more remarks"] if len(notes) > MAX_NOTES else []
    return (*(note[:MAX_NOTE_CHARACTERS] for note in notes[:MAX_NOTES]), *more)


def _nothing_seen(domain: str, crawl: Crawl) -> ScanFailed:
    reasons = list(dict.fromkeys(f"{page.url}: {page.error}" for page in crawl.pages if page.error)) or crawl.notes
    waits = [failure.retry_after_seconds or 0.0 for failure in crawl.failures]
    hint = "" if crawl.failures or not crawl.pages else "; if the site is yours, set respect_robots to false"
    return ScanFailed(
        f"no page of {domain} could be visited: {'; '.join(reasons[:3]) or 'the time limit was reached'}{hint}",
        retryable=any(failure.retryable for failure in crawl.failures) or not crawl.pages,
        retry_after_seconds=max(waits, default=0.0) or None,
    )
