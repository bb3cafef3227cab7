"""Rows of `scans`, `scan_pages` and `scan_cookies`: saved once, in one transaction, and never changed.

The scan of an execution is stored only while that execution runs under its fencing token, so a fenced replica stores
nothing. Scans of one domain and engine are saved one after the other: each refers to the previous one.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Row, select, text

from database.connection import DatabaseConnection, get_db_connection
from database.models import ScanCookieRow, ScanPageRow, ScanRow
from services.scanning.cookies.diff import compare
from services.scanning.failures import ScanRefused
from services.scanning.findings import (
    Category,
    ChangeKind,
    Consent,
    Cookie,
    CookieChange,
    EngineName,
    Page,
    Party,
    Scan,
    Storage,
)
from services.scanning.listing import NEWEST_FIRST, ScanFilter, ScanPage, ScanRecord, select_page
from services.scanning.outcome import ScanOutcome

STILL_OURS = text(
    "SELECT true FROM job_executions "
    "WHERE execution_id = :execution_id AND fencing_token = :token AND status = 'running' FOR SHARE"
)
ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtextextended(:what, 0))")

_REFUSED_BY_POSTGRES = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Execution:
    """The execution that a scan belongs to, with the token that proves it still runs."""

    execution_id: UUID
    schedule_id: UUID | None
    fencing_token: int


class ScanStore:
    """Safe to share between threads. Every method may raise Unavailable."""

    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def save(self, outcome: ScanOutcome, execution: Execution | None = None) -> Scan:
        """Compare with the previous scan and store both; raises ScanRefused when the execution has lost its claim."""
        scan_id = uuid4()
        with self._db.transaction() as connection:
            if execution is not None:
                _check_fence(connection, execution)
            connection.execute(ONE_AT_A_TIME, {"what": f"scan/{outcome.engine}/{outcome.domain}"})
            previous = _previous(connection, outcome.domain, outcome.engine)
            before = [] if previous is None else _cookies(connection, previous)
            # A first scan has no changes.
            changes = () if previous is None else compare(before, outcome.cookies)
            row = {
                "scan_id": scan_id,
                "execution_id": execution and execution.execution_id,
                "schedule_id": execution and execution.schedule_id,
                "domain": outcome.domain,
                "engine": outcome.engine,
                "started_at": outcome.started_at,
                "previous_scan_id": previous,
                "config": outcome.config,
                "summary": outcome.summary(changes),
                "changes": [asdict(change) for change in changes],
            }
            _insert(connection, "scans", [row])
            _insert(connection, "scan_pages", _with_numbers(scan_id, outcome.pages))
            _insert(connection, "scan_cookies", _with_numbers(scan_id, outcome.cookies))
            return _scan(connection, scan_id)

    def get(self, scan_id: UUID) -> Scan | None:
        with self._db.transaction() as connection:
            found = connection.scalar(select(ScanRow.scan_id).where(ScanRow.scan_id == scan_id))
            return None if found is None else _scan(connection, scan_id)

    def previous(self, domain: str, engine: EngineName) -> UUID | None:
        """The scan of this domain and engine that the next one is compared with."""
        with self._db.transaction() as connection:
            return _previous(connection, domain, engine)

    def list_scans(self, wanted: ScanFilter = ScanFilter(), *, limit: int = 50, cursor: str | None = None) -> ScanPage:
        """Newest first; raises InvalidInput for a bad filter, limit or cursor."""
        query = select_page(wanted, limit, cursor)
        with self._db.transaction() as connection:
            records = [ScanRecord(**row._mapping) for row in connection.execute(query)]
        return NEWEST_FIRST.cut(records, limit)


def _check_fence(connection: Connection, execution: Execution) -> None:
    proof = {"execution_id": execution.execution_id, "token": execution.fencing_token}
    if connection.execute(STILL_OURS, proof).first() is None:
        raise ScanRefused(f"execution {execution.execution_id} was abandoned in the meantime; its scan is not saved")


def _previous(connection: Connection, domain: str, engine: str) -> UUID | None:
    """The last complete one, because cookies that an incomplete scan did not reach would seem new. Otherwise the
    newest.
    """
    query = select(ScanRow.scan_id).where(ScanRow.domain == domain, ScanRow.engine == engine)
    is_complete = ScanRow.summary["complete"].astext.is_distinct_from("false")
    newest = (ScanRow.finished_at.desc(), ScanRow.scan_id.desc())
    return connection.scalar(query.order_by(is_complete.desc(), *newest).limit(1))


# --- values -> rows: all of them are sent as one JSON parameter ---


def _insert(connection: Connection, table: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        columns = ", ".join(rows[0])
        connection.execute(
            text(
                f"INSERT INTO {table} ({columns}) SELECT {columns} "  # noqa: S608 - names of this module
                f"FROM json_populate_recordset(NULL::{table}, CAST(:rows AS json))"
            ),
            {"rows": json.dumps(_storable(rows), default=str)},
        )


def _with_numbers(scan_id: UUID, found: Iterable[Page | Cookie]) -> list[dict[str, Any]]:
    return [{"scan_id": scan_id, "number": number, **asdict(one)} for number, one in enumerate(found, 1)]


def _storable(value: Any) -> Any:
    """Names in local storage may contain what Postgres refuses: NUL and unpaired surrogates."""
    match value:
        case str():
            return _REFUSED_BY_POSTGRES.sub("\ufffd", value)
        case Mapping():
            return {_storable(key): _storable(item) for key, item in value.items()}
        case list() | tuple():
            return [_storable(item) for item in value]
        case _:
            return value


# --- rows -> values ---


def _scan(connection: Connection, scan_id: UUID) -> Scan:
    query = select(*ScanRow.__table__.columns).where(ScanRow.scan_id == scan_id)
    row = dict(connection.execute(query).one()._mapping)
    row["engine"] = EngineName(row["engine"])
    row["changes"] = tuple(map(_change, row["changes"]))
    return Scan(**row, pages=_pages(connection, scan_id), cookies=tuple(_cookies(connection, scan_id)))


def _pages(connection: Connection, scan_id: UUID) -> tuple[Page, ...]:
    columns = [getattr(ScanPageRow, item.name) for item in fields(Page)]
    query = select(*columns).where(ScanPageRow.scan_id == scan_id).order_by(ScanPageRow.number)
    return tuple(Page(**{**row._mapping, "notes": tuple(row.notes)}) for row in connection.execute(query))


def _cookies(connection: Connection, scan_id: UUID) -> list[Cookie]:
    columns = [getattr(ScanCookieRow, item.name) for item in fields(Cookie)]
    query = select(*columns).where(ScanCookieRow.scan_id == scan_id).order_by(ScanCookieRow.number)
    return [_cookie(row) for row in connection.execute(query)]


def _cookie(row: Row[Any]) -> Cookie:
    words = {
        "storage": Storage(row.storage),
        "party": Party(row.party),
        "consent": Consent(row.consent),
        "category": Category(row.category),
    }
    return Cookie(**{**row._mapping, **words})


def _change(stored: Mapping[str, Any]) -> CookieChange:
    words = {
        "kind": ChangeKind(stored["kind"]),
        "storage": Storage(stored["storage"]),
        "category": Category(stored["category"]),
        "fields": {name: (before, after) for name, (before, after) in stored["fields"].items()},
    }
    return CookieChange(**{**stored, **words})


@cache
def get_scan_store() -> ScanStore:
    """The scans of this process's database."""
    return ScanStore(get_db_connection())
