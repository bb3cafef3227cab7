"""Which stored scan a person means, and a scan that is looked at without being stored."""

from datetime import UTC, datetime
from uuid import UUID, uuid4

from sqlalchemy import select

from database.connection import DatabaseConnection
from database.models import ScanRow
from services.errors import InvalidInput, Problem
from services.scanning.diff import compare
from services.scanning.findings import Scan
from services.scanning.listing import ScanFilter
from services.scanning.outcome import ScanOutcome
from services.scanning.store import ScanStore

ID_PREFIX = 8  # characters of an id that people see and may give


def find_scan(db: DatabaseConnection, reference: str) -> Scan:
    """By its id, the beginning of its id, or a domain, which means its newest scan."""
    store, text = ScanStore(db), reference.strip()
    digits = text.lower().replace("-", "")
    looks_like_id = ID_PREFIX <= len(digits) <= 32 and not set(digits) - set("0123456789abcdef")
    found = (
        _by_id(db, digits)
        if looks_like_id
        else [item.scan_id for item in store.list_scans(ScanFilter(domain=text), limit=1).items]
    )
    scan = store.get(found[0]) if len(found) == 1 else None
    if scan is None:
        many = "more than one scan begins like" if len(found) > 1 else "there is no scan"
        of = "" if looks_like_id else "of "
        raise InvalidInput(Problem("scan", f"{many} {of}{reference:.60}"))
    return scan


def not_stored(db: DatabaseConnection, outcome: ScanOutcome) -> Scan:
    """As it would be stored now, compared with the scan before."""
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


def _by_id(db: DatabaseConnection, digits: str) -> list[UUID]:
    first, last = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    with db.transaction() as connection:
        return list(connection.scalars(select(ScanRow.scan_id).where(ScanRow.scan_id.between(first, last)).limit(2)))
