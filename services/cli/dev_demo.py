"""The demo schedules of `manage.py dev`: examples for an empty database, recognised by their tag."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from config import get_settings
from services.cli.demo.site import PATHS
from services.errors import ConfigurationError, InvalidInput, ScheduleNotFound
from services.scanning.engines.browser_engine import browser_engine_from
from services.schedule_repository import ScheduleRepository
from services.schedules.batch import ScheduleRecord
from services.schedules.listing import ScheduleFilter

TAG, ACTOR = "demo", "demo"
SHOP = "shop.example"  # the demo shop's name in lists
BROWSER_SCAN = "shop scan with a browser"


def _calls(name: str, url: str, frequency: str, time_config: dict[str, int], **more: Any) -> dict[str, Any]:
    return {
        "domain": name,
        "name": name,
        "frequency": frequency,
        "time_config": time_config,
        "job_type": "http_request",
        "job_config": {"url": url},
        "tags": [TAG],
        **more,
    }


def _scans(name: str, site: str, time_config: dict[str, int], **more: Any) -> dict[str, Any]:
    return {
        "domain": SHOP,
        "name": name,
        "frequency": "interval",
        "time_config": time_config,
        "job_type": "cookie_scan",
        "job_config": {"base_url": f"{site}/", "delay_seconds": 0.1, "max_pages": 20, **more},
        "tags": [TAG],
    }


def demo_schedules(site: str) -> list[dict[str, Any]]:
    return [
        _calls("health check", f"{site}/health", "interval", {"seconds": 5}),
        _calls("flaky import", f"{site}/flaky", "interval", {"seconds": 10}, max_retries=3, retry_backoff_seconds=2),
        _calls("report", f"{site}/report", "interval", {"seconds": 15}),
        # Takes longer than its interval: every second fire is skipped as an overlap.
        _calls("long export", f"{site}/report?seconds=7", "interval", {"seconds": 5}, max_instances=1),
        # 02:30 does not exist in one night of the year and comes twice in another.
        _calls("nightly report", f"{site}/report", "daily", {"hour": 2, "minute": 30}, timezone="Europe/Berlin"),
    ]


def demo_scans(site: str, *, with_browser: bool) -> list[dict[str, Any]]:
    """Scans as often as the shop changes, so that each scan after the first one finds a change."""
    plain = _scans("shop scan", site, {"seconds": 20})
    browser = _scans(BROWSER_SCAN, site, {"minutes": 2}, engine="browser", accept_selector="#accept", max_pages=4)
    return [plain, browser] if with_browser else [plain]


def prepare_demo(repository: ScheduleRepository, site: str) -> Iterator[str]:
    """Fill an empty database, or point the schedules of an earlier start at today's site; yields what was done."""
    problem = _browser_problem()
    if repository.count_schedules() == 0:
        wanted = [*demo_schedules(site), *demo_scans(site, with_browser=problem is None)]
        yield f"added {repository.save_schedules(wanted, actor=ACTOR).created} demo schedules to the empty database"
    else:
        yield from _refresh(repository, site, problem)
    if problem is not None:
        yield f"demo scans run without a browser: {problem}"
    for record in repository.iter_schedules(ScheduleFilter(tag=TAG)):
        for warning in record.trigger.warnings(datetime.now(UTC)):
            yield f"note about {record.name or record.domain}: {warning}"


def _refresh(repository: ScheduleRepository, site: str, problem: str | None) -> Iterator[str]:
    records = list(repository.iter_schedules(ScheduleFilter(tag=TAG)))
    moved = repository.save_schedules(list(_outdated_schedules(records, site)), actor=ACTOR).updated
    if moved:
        yield f"{moved} demo schedules call the demo site at its new address {site}"
    if records and not any(record.job_type == "cookie_scan" for record in records):  # made by a version without scans
        scans = demo_scans(site, with_browser=problem is None)
        new = [scan for scan in scans if not _is_taken(repository, scan["name"])]
        yield f"added {repository.save_schedules(new, actor=ACTOR).created} demo scans"
    for record in records:
        if record.name == BROWSER_SCAN and record.enabled and problem is not None:
            repository.update_schedule(record.schedule_id, enabled=False, actor=ACTOR)
            yield f"{BROWSER_SCAN} is disabled"


def _is_taken(repository: ScheduleRepository, name: str) -> bool:
    try:
        return repository.find_schedule(name) is not None
    except ScheduleNotFound:
        return False
    except InvalidInput:  # ambiguous
        return True


def _browser_problem() -> str | None:
    """Why the browser engine is not available; None when it is."""
    try:
        browser_engine_from(get_settings()).close()
    except ConfigurationError as error:
        return str(error)
    return None


def _outdated_schedules(records: list[ScheduleRecord], site: str) -> Iterator[dict[str, Any]]:
    """Demo schedules that call the demo site of an earlier start."""
    for record in records:
        config = record.job_config
        moved = {name: _on_site(str(config[name]), site) for name in ("url", "base_url") if name in config}
        changed = {**config, **{name: url for name, url in moved.items() if url is not None}}
        if changed != config:
            yield {"schedule_id": record.schedule_id, "job_config": changed}


def _on_site(url: str, site: str) -> str | None:
    """The page's URL on today's demo site; None when `url` is not a page of it."""
    parts, place = urlsplit(url), urlsplit(site)
    if parts.hostname != place.hostname or parts.path not in (*PATHS, "/"):
        return None
    return parts._replace(netloc=place.netloc).geturl()
