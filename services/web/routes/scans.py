"""/api/v3/scans: results of cookie scans, and their changes since the previous scan."""

from typing import Annotated
from uuid import UUID

from fastapi import Query

from services.scanning.findings import Scan
from services.scanning.listing import ScanFilter
from services.web.auth.guard import Viewer
from services.web.parts import Parts
from services.web.problems import not_found
from services.web.routing import API, Cursor, Instant, Limit, PartsOf, router
from services.web.schemas.scans import CookieChangeOut, CookieList, CookieOut, ScanDetail, ScanDiff, ScanList

scans = router(f"{API}/scans", "scans")


@scans.get("")
def list_scans(
    parts: PartsOf,
    who: Viewer,
    domain: Annotated[str | None, Query(max_length=255)] = None,
    engine: Annotated[str | None, Query(max_length=16, examples=["http"])] = None,
    schedule_id: UUID | None = None,
    execution_id: UUID | None = None,
    since: Annotated[Instant | None, Query(description="Finished at or after this time.")] = None,
    until: Annotated[Instant | None, Query(description="Finished before this time.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ScanList:
    """One page of scans, newest first."""
    wanted = ScanFilter(
        domain=domain, engine=engine, schedule_id=schedule_id, execution_id=execution_id, since=since, until=until
    )
    return ScanList.model_validate(parts.scans.list_scans(wanted, limit=limit, cursor=cursor))


@scans.get("/{scan_id}")
def read_scan(scan_id: UUID, parts: PartsOf, who: Viewer) -> ScanDetail:
    """A scan with its pages."""
    return ScanDetail.model_validate(_find(parts, scan_id))


@scans.get("/{scan_id}/cookies")
def list_scan_cookies(scan_id: UUID, parts: PartsOf, who: Viewer) -> CookieList:
    """Every cookie and storage entry of a scan, with its category."""
    found = _find(parts, scan_id)
    return CookieList(scan_id=scan_id, items=[CookieOut.model_validate(cookie) for cookie in found.cookies])


@scans.get("/{scan_id}/diff")
def read_scan_diff(scan_id: UUID, parts: PartsOf, who: Viewer) -> ScanDiff:
    """New, gone and changed cookies since the previous scan of the same domain with the same engine."""
    found = _find(parts, scan_id)
    changes = [CookieChangeOut.model_validate(change) for change in found.changes]
    return ScanDiff(scan_id=scan_id, previous_scan_id=found.previous_scan_id, changes=changes)


def _find(parts: Parts, scan_id: UUID) -> Scan:
    scan = parts.scans.get(scan_id)
    if scan is None:
        raise not_found(f"scan {scan_id}")
    return scan
