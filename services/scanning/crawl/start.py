"""The start of a scan: https first, then http, then the `www.` twin of a domain without a server."""

from collections.abc import Mapping

from services.fetching import FetchFailed
from services.fetching.sites.robots import Robots
from services.fetching.sites.urls import normal_url, origin_of, registrable_domain
from services.scanning.config import CookieScanConfig
from services.scanning.crawl.backoff import BACKOFF
from services.scanning.failures import ScanFailed
from services.scanning.watch import Watch


def find_start(domain: str, config: CookieScanConfig, robots: Robots, watch: Watch) -> str:
    """The first address whose server responds; raises ScanFailed with the failure of each address."""
    for attempt in range(1, config.max_retries + 2):
        failures: dict[str, FetchFailed] = {}
        for url in candidates(domain, config):
            rules = robots.rules(origin_of(url))
            if rules.failure is None or (rules.is_reachable and not config.respect_robots):
                return url
            failures[url] = rules.failure
            robots.forget(origin_of(url))
        wait_seconds = BACKOFF.at_least(_asked_seconds(failures), attempt) if _may_pass(failures) else None
        if attempt > config.max_retries or watch.is_over or wait_seconds is None:
            break
        watch.log(f"{domain} does not answer, attempt {attempt}: {_causes(failures)}")
        watch.wait(wait_seconds)
    raise _unreachable(domain, failures)


def candidates(domain: str, config: CookieScanConfig) -> list[str]:
    if config.base_url is not None:
        return [normal_url(config.base_url) or config.base_url]
    hosts = [domain, f"www.{domain}"] if registrable_domain(domain) == domain else [domain]
    return [f"{scheme}://{host}/" for host in hosts for scheme in ("https", "http")]


def _unreachable(domain: str, failures: Mapping[str, FetchFailed]) -> ScanFailed:
    return ScanFailed(
        f"{domain} cannot be scanned: {_causes(failures)}",
        retryable=_may_pass(failures),
        retry_after_seconds=_asked_seconds(failures),
    )


def _asked_seconds(failures: Mapping[str, FetchFailed]) -> float | None:
    """The longest wait that the servers demand."""
    return max((failure.retry_after_seconds or 0.0 for failure in failures.values()), default=0.0) or None


def _may_pass(failures: Mapping[str, FetchFailed]) -> bool:
    return any(failure.retryable for failure in failures.values())


def _causes(failures: Mapping[str, FetchFailed]) -> str:
    """Each cause once, with the addresses that it applies to."""
    found: dict[str, list[str]] = {}
    for url, failure in failures.items():
        said = str(failure)
        cause = said.removeprefix(f"GET {origin_of(url)}/robots.txt: ")
        found.setdefault(cause, []).extend([url] if cause != said else [])  # otherwise it already names the address
    return "; ".join(f"{', '.join(urls)}: {cause}" if urls else cause for cause, urls in found.items())
