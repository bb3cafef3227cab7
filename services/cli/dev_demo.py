"""The demo schedules of `manage.py dev`: something to look at in an empty database, recognised by their tag."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from services.demo_site import PATHS
from services.schedule_listing import ScheduleFilter
from services.schedule_repository import ScheduleRepository

TAG, ACTOR = "demo", "demo"


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


def prepare_demo(repository: ScheduleRepository, site: str) -> Iterator[str]:
    """Fill an empty database, or let the schedules of an earlier start call today's site; says what was done."""
    if repository.count_schedules() == 0:
        summary = repository.save_schedules(demo_schedules(site), actor=ACTOR)
        yield f"added {summary.created} demo schedules to the empty database"
    else:
        moved = repository.save_schedules(list(_strayed(repository, site)), actor=ACTOR).updated
        if moved:
            yield f"{moved} demo schedules call the demo site at its new address {site}"
    for record in repository.iter_schedules(ScheduleFilter(tag=TAG)):
        for warning in record.trigger.warnings(datetime.now(UTC)):
            yield f"note on {record.name or record.domain}: {warning}"


def _strayed(repository: ScheduleRepository, site: str) -> Iterator[dict[str, Any]]:
    """Demo schedules that call the demo site of an earlier start."""
    place = urlsplit(site)
    for record in repository.iter_schedules(ScheduleFilter(tag=TAG)):
        url = urlsplit(str(record.job_config.get("url", "")))
        if url.hostname == place.hostname and url.netloc != place.netloc and url.path in PATHS:
            moved = url._replace(netloc=place.netloc).geturl()
            yield {"schedule_id": record.schedule_id, "job_config": {**record.job_config, "url": moved}}
