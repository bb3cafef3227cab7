"""The demo schedules of `manage.py dev`: something to look at in an empty database, recognised by their tag."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from config import get_settings
from services.demo.site import PATHS
from services.errors import ConfigurationError, InvalidInput, ScheduleNotFound
from services.scanning.engines.browser_engine import browser_engine_from
from services.schedule_repository import ScheduleRepository
from services.schedules.batch import ScheduleRecord
from services.schedules.listing import ScheduleFilter

TAG, ACTOR = "demo", "demo"
SHOP = "shop.example"  # how the shop of the demo site is called in the lists
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
    """As often as the shop changes, so that each scan after the first one has something to tell."""
    plain = _scans("shop scan", site, {"seconds": 20})
    browser = _scans(BROWSER_SCAN, site, {"minutes": 2}, engine="browser", accept_selector="#accept", max_pages=4)
    return [plain, browser] if with_browser else [plain]


def prepare_demo(repository: ScheduleRepository, site: str) -> Iterator[str]:
    """Fill an empty database, or let the schedules of an earlier start call today's site; says what was done."""
    problem = _browser_problem()
    if repository.count_schedules() == 0:
        wanted = [*demo_schedules(site), *demo_scans(site, with_browser=problem is None)]
        yield f"added {repository.save_schedules(wanted, actor=ACTOR).created} demo schedules to the empty database"
    else:
        yield from _refresh(repository, site, problem)
    if problem is not None:
        yield f"scans do without a browser: {problem}"
    for record in repository.iter_schedules(ScheduleFilter(tag=TAG)):
        for warning in record.trigger.warnings(datetime.now(UTC)):
            yield f"note on {record.name or record.domain}: {warning}"


def _refresh(repository: ScheduleRepository, site: str, problem: str | None) -> Iterator[str]:
    records = list(repository.iter_schedules(ScheduleFilter(tag=TAG)))
    moved = repository.save_schedules(list(_strayed(records, site)), actor=ACTOR).updated
    if moved:
        yield f"{moved} demo schedules call the demo site at its new address {site}"
    if records and not any(record.job_type == "cookie_scan" for record in records):  # of a version without scans
        scans = demo_scans(site, with_browser=problem is None)
        new = [scan for scan in scans if not _is_taken(repository, scan["name"])]
        yield f"added {repository.save_schedules(new, actor=ACTOR).created} demo scans"
    for record in records:
        if record.name == BROWSER_SCAN and record.enabled and problem is not None:
            repository.update_schedule(record.schedule_id, enabled=False, actor=ACTOR)
            yield f"{BROWSER_SCAN} is switched off"


def _is_taken(repository: ScheduleRepository, name: str) -> bool:
    try:
        return repository.find_schedule(name) is not None
    except ScheduleNotFound:
        return False
    except InvalidInput:  # several could be meant
        return True


def _browser_problem() -> str | None:
    """Why the browser engine cannot be used here; None when it can."""
    try:
        browser_engine_from(get_settings()).close()
    except ConfigurationError as error:
        return str(error)
    return None


def _strayed(records: list[ScheduleRecord], site: str) -> Iterator[dict[str, Any]]:
    """Demo schedules that call the demo site of an earlier start."""
    for record in records:
        moved = {name: _moved(str(record.job_config[name]), site) for name in _addresses(record.job_config)}
        changed = {**record.job_config, **{name: url for name, url in moved.items() if url is not None}}
        if changed != record.job_config:
            yield {"schedule_id": record.schedule_id, "job_config": changed}


def _addresses(job_config: Mapping[str, Any]) -> list[str]:
    return [name for name in ("url", "base_url") if name in job_config]


def _moved(url: str, site: str) -> str | None:
    """The same page at today's address; None for what is not a page of the demo site."""
    parts, place = urlsplit(url), urlsplit(site)
    if parts.hostname != place.hostname or parts.path not in (*PATHS, "/"):
        return None
    return parts._replace(netloc=place.netloc).geturl()
