"""A scan as JSON for programs and as CSV for spreadsheets. Pure; page.py makes the HTML report for people."""

import csv
import io
import json
import re
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from services.scanning.findings import Scan
from services.scanning.report.words import changes_of, lifetime
from services.wording.visible import visible

BYTE_ORDER_MARK = "\ufeff"  # without it some spreadsheets do not recognise UTF-8

COLUMNS = (
    "name", "kind", "domain", "path", "category", "category_rule", "party", "consent", "lifetime", "lifetime_seconds",
    "expires_at", "secure", "http_only", "same_site", "host_only", "page_url", "request_url", "pages_seen", "change",
)  # fmt: skip

# A cell that starts like this is a formula. A spreadsheet that splits at semicolons sees a new cell after each one.
_FORMULA = re.compile(r"""((?:\A|;)[\s"']*)([=+\-@\uff1d\uff0b\uff0d\uff20])""")


def as_document(scan: Scan) -> dict[str, Any]:
    """The complete scan in plain JSON types."""
    document: dict[str, Any] = json.loads(json.dumps(asdict(scan), default=_plain))
    return document


def json_report(scan: Scan) -> str:
    return json.dumps(as_document(scan), indent=2) + "\n"


def csv_report(scan: Scan) -> str:
    """One line per cookie found. Cookies gone since the previous scan are in the other reports."""
    changes = changes_of(scan)
    stream = io.StringIO()
    stream.write(BYTE_ORDER_MARK)
    writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
    writer.writerow(COLUMNS)
    for cookie in scan.cookies:
        known = {"kind": cookie.storage, "change": changes.get(cookie.key, ""), "lifetime": lifetime(cookie)}
        writer.writerow(cell(known.get(column, getattr(cookie, column, None))) for column in COLUMNS)
    return stream.getvalue()


def cell(value: Any) -> str:
    """Text on one line that no spreadsheet interprets as a formula."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return value.isoformat()
        case _:
            return _FORMULA.sub(r"\1'\2", visible(str(value)))


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")
