"""/api/v3/sync: status of the sync from another system's API; run it now, or preview it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

from fastapi import Query

from services.api_sync.report import SyncReport
from services.api_sync.state import SyncState
from services.api_sync.sync import ApiSync, ApiSyncFailed, open_api_sync
from services.web.auth.guard import Admin, IdempotencyKey, Viewer
from services.web.parts import Parts
from services.web.problems import CONFLICT, UPSTREAM, HttpProblem
from services.web.routing import API, PartsOf, router
from services.web.schemas.sync import SyncReportOut, SyncStatusOut, SyncWish

sync = router(f"{API}/sync", "sync")

SHOWN = ("is_busy", "lease_owner", "started_at", "synced_at", "not_before")


@sync.get("", summary="Read Sync Status")
def read_sync_status(parts: PartsOf, who: Viewer) -> SyncStatusOut:
    """Last successful sync, last report, and which process is syncing right now."""
    state = SyncState(parts.db).read()
    known = {name: value for name, value in asdict(state).items() if name in SHOWN}
    return SyncStatusOut(
        configured=parts.settings.api_url is not None,
        periodic=parts.settings.syncs_from_api,
        last=None if state.last is None else _report_out(state.last),
        applied=None if state.applied is None else _report_out(state.applied),
        **known,
    )


@sync.post("/run")
def run_sync(parts: PartsOf, who: Admin, wish: SyncWish | None = None, key: IdempotencyKey = None) -> SyncReportOut:
    """Run a sync and wait for the result."""
    with _open_sync(parts, who, wish) as opened:
        return _report_out(opened.run())


@sync.post("/preview")
def preview_sync(
    parts: PartsOf,
    who: Admin,
    wish: SyncWish | None = None,
    limit: Annotated[int, Query(ge=0, le=10_000, description="Maximum number of entries in the response.")] = 1000,
) -> SyncReportOut:
    """What a sync would change. Nothing is written."""
    with _open_sync(parts, who, wish) as opened:
        report = _report_out(opened.preview())
    return report.model_copy(update={"entries": report.entries[:limit]})


@contextmanager
def _open_sync(parts: Parts, who: Admin, wish: SyncWish | None) -> Iterator[ApiSync]:
    if parts.settings.api_url is None:
        raise HttpProblem(CONFLICT, "API_URL is not set, so there is nothing to sync from")
    state = SyncState(parts.db).read()
    if state.is_busy:
        raise HttpProblem(CONFLICT, f"{state.lease_owner} is already syncing", headers={"Retry-After": "5"})
    try:
        with open_api_sync(
            parts.settings, parts.db, allow_removals=wish is not None and wish.allow_removals, actor=who.actor
        ) as opened:
            yield opened
    except ApiSyncFailed as error:
        raise HttpProblem(UPSTREAM, str(error)) from error


def _report_out(report: SyncReport) -> SyncReportOut:
    return SyncReportOut.model_validate(report.as_json())
