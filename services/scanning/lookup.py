"""Looks up a stored scan by what a person types, and shows a scan without storing it."""

from datetime import UTC, datetime
from uuid import UUID, uuid4

from sqlalchemy import select

from database.connection import DatabaseConnection
from database.models import ScanRow
from services.errors import InvalidInput, Problem
from services.scanning.cookies.diff import compare
from services.scanning.findings import Scan
from services.scanning.listing import ScanFilter
from services.scanning.outcome import ScanOutcome
from services.scanning.store import ScanStore
from services.wording.short_ids import ids_that_begin


def find_scan(db: DatabaseConnection, reference: str) -> Scan:
    """By id, by the beginning of an id, or by domain (its newest scan)."""
    store, text = ScanStore(db), reference.strip()
    ids = ids_that_begin(text)
    found = (
        [item.scan_id for item in store.list_scans(ScanFilter(domain=text), limit=1).items]
        if ids is None
        else _by_id(db, *ids)
    )
    scan = store.get(found[0]) if len(found) == 1 else None
    if scan is None:
        many = "more than one scan begins like" if len(found) > 1 else "there is no scan"
        of = "of " if ids is None else ""
        raise InvalidInput(Problem("scan", f"{many} {of}{reference:.60}"))
    return scan


def not_stored(db: DatabaseConnection, outcome: ScanOutcome) -> Scan:
    """The scan as it would be stored now, compared with the previous one."""
    store = ScanStore(db)
    previous = store.previous(outcome.domain, outcome.engine)
    before = None if previous is None else store.get(previous)
    changes = () if before is None else compare(before.cookies, outcome.cookies)
    return Scan(
        scan_id=uuid4(),
        execution_id=None,
        schedule_id=None,
        domain=outcome.domain,
        engine=outcome.engine,
        started_at=outcome.started_at,
        finished_at=datetime.now(UTC),
        previous_scan_id=None if before is None else before.scan_id,
        config=outcome.config,
        summary=outcome.summary(changes),
        pages=outcome.pages,
        cookies=outcome.cookies,
        changes=changes,
    )


def _by_id(db: DatabaseConnection, first: UUID, last: UUID) -> list[UUID]:
    with db.transaction() as connection:
        return list(connection.scalars(select(ScanRow.scan_id).where(ScanRow.scan_id.between(first, last)).limit(2)))
