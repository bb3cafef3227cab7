"""From the external API to an answer for a privacy officer: sync, schedule, fire, scan, history, and what changed.

Once with each engine, by a real replica, of a local shop with a tracker and a consent banner. The API answers with the
documented JSON; a scan profile tells the scans of those domains where the shop really is.
"""

import copy
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from services.job_history import JobHistory
from services.scanning.findings import ChangeKind, Consent, EngineName, Party, Scan
from services.scanning.profiles import ScanProfiles
from services.scanning.store import ScanStore
from services.schedule_repository import ScheduleRepository
from tests.support.api_stand_in import SEED_ITEM, ApiStandIn
from tests.support.replicas import Cluster
from tests.support.scan_site import Answer, ScanSite
from tests.support.waiting import eventually

CONFIG_IDS = {EngineName.BROWSER: "abc-123", EngineName.HTTP: "abc-124"}
FIRST, THIRD, BEFORE, AFTER = Party.FIRST, Party.THIRD, Consent.BEFORE, Consent.AFTER

SET_BY_SERVERS = {
    "session_id": (FIRST, BEFORE),
    "_ga": (FIRST, BEFORE),
    "theme": (FIRST, BEFORE),
    "moved": (FIRST, BEFORE),
    "page_one": (FIRST, BEFORE),
    "track_id": (THIRD, BEFORE),
}
FOUND = {
    EngineName.HTTP: SET_BY_SERVERS | {"embed_id": (THIRD, BEFORE)},  # which browsers refuse: it lacks SameSite=None
    EngineName.BROWSER: SET_BY_SERVERS
    | {"_fbp": (FIRST, BEFORE), "theme_choice": (FIRST, BEFORE), "cart": (FIRST, BEFORE)}
    | {
        "consent": (FIRST, AFTER),
        "_gcl_au": (FIRST, AFTER),
        "consent_at": (FIRST, AFTER),
        "member_since": (FIRST, AFTER),
    },
}


@pytest.fixture
def site() -> Iterator[ScanSite]:
    with ScanSite() as site:
        site.answer("/page1", Answer("<p>One</p>", cookies=("page_one=1; Path=/",)))
        site.answer("/page2", Answer("<p>Two</p>"))
        yield site


@pytest.fixture
def api() -> Iterator[ApiStandIn]:
    """The documented item, which asks for a deep scan, and a second one."""
    with ApiStandIn([copy.deepcopy(SEED_ITEM), {**copy.deepcopy(SEED_ITEM), "domain_config_id": "abc-124"}]) as api:
        api.items[1]["data"]["domain"] = "example.org"
        yield api


@pytest.fixture
def schedules(cluster: Cluster, api: ApiStandIn, site: ScanSite) -> dict[EngineName, UUID]:
    """What a replica has made of the API's answer, each with a profile that leads to the local shop."""
    cluster.start(1, API_URL=api.url, API_SYNC_INTERVAL="1")
    eventually(lambda: cluster.rows("SELECT count(*) FROM schedules WHERE source = 'api'") == [(2,)], 60)
    repository, found = ScheduleRepository(cluster.db), {}
    for engine, config_id in CONFIG_IDS.items():
        record = repository.get_schedule_by_config_id(config_id)
        assert record is not None
        there = {"base_url": site.url, "delay_seconds": 0} | ({"engine": "http"} if engine is EngineName.HTTP else {})
        profile = ScanProfiles(cluster.db).add(f"the local shop, {engine}", there)
        repository.update_schedule(record.schedule_id, profile_id=profile.profile_id)
        found[engine] = record.schedule_id
    return found


def move_to_the_next_minute(api: ApiStandIn) -> datetime:
    """The API changes its mind about the time: soon, but with room for the change to arrive."""
    at = (datetime.now(UTC) + timedelta(seconds=75)).replace(second=0, microsecond=0)
    for item in api.items:
        item["data"]["schedule"]["time"] = {"hour": at.hour, "minute": at.minute}
    return at


def finished(cluster: Cluster, executions: int) -> list[tuple[Any, ...]]:
    """(schedule_id, scheduled_for, cause, scan_id) of all executions, when that many have succeeded."""

    def all_done() -> bool:
        assert cluster.rows("SELECT error_message FROM job_executions WHERE status = 'failed'") == []
        return cluster.rows("SELECT count(*) FROM job_executions WHERE status = 'success'") == [(executions,)]

    eventually(all_done, 300, 0.2)
    return cluster.rows("SELECT schedule_id, scheduled_for, cause, scan_id FROM job_executions ORDER BY scheduled_for")


def scan_of(cluster: Cluster, scan_id: UUID) -> Scan:
    scan = ScanStore(cluster.db).get(scan_id)
    assert scan is not None
    return scan


def test_the_documented_answer_is_synced_fired_and_scanned_and_the_next_scan_tells_what_changed(
    cluster: Cluster, api: ApiStandIn, site: ScanSite, schedules: dict[EngineName, UUID]
) -> None:
    engines = {schedule_id: engine for engine, schedule_id in schedules.items()}
    at = move_to_the_next_minute(api)
    first = {engines[row[0]]: row for row in finished(cluster, 2)}
    assert {row[1:3] for row in first.values()} == {(at, "schedule")}
    for engine, (schedule_id, _, _, scan_id) in first.items():
        scan = scan_of(cluster, scan_id)
        assert (scan.engine, scan.schedule_id, scan.changes, scan.previous_scan_id) == (engine, schedule_id, (), None)
        assert {cookie.name: (cookie.party, cookie.consent) for cookie in scan.cookies} == FOUND[engine]
        seen = {page.url.removeprefix(site.url): page.error for page in scan.pages}
        assert seen.keys() >= {"/", "/page1", "/page2", "/about", "/products/2/details", "/only-in-the-sitemap"}
        assert (seen["/missing"], "/private/account" in seen) == ("answered 404", False)

    site.new_release()
    for schedule_id in schedules.values():
        JobHistory(cluster.db).request_run(schedule_id, "tester")
    second = {engines[row[0]]: row for row in finished(cluster, 4) if row[2] == "manual"}
    for engine, (_, _, _, scan_id) in second.items():
        scan = scan_of(cluster, scan_id)
        assert scan.previous_scan_id == first[engine][3]
        assert {(change.kind, change.name, *change.fields) for change in scan.changes} == {
            (ChangeKind.NEW, "promo"),
            (ChangeKind.GONE, "_ga"),
            (ChangeKind.CHANGED, "session_id", "http_only"),
        }
