"""Cookie scans: the list, and one scan with its findings, its changes and the reports to download."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from nicegui import ui

from services.scanning.findings import ChangeKind, Consent, Cookie, Scan
from services.scanning.listing import ScanFilter, ScanPage, ScanRecord
from services.scanning.report import words
from services.scanning.report.files import csv_report, json_report
from services.scanning.report.page import html_report
from services.scanning.store import ScanStore
from services.web.dashboard.frame import for_visitors, frame
from services.web.dashboard.list_page import ROWS, ListPage, list_at, text_of
from services.web.dashboard.look import card, chip, clock, empty
from services.web.dashboard.tables import columns, table
from services.web.dashboard.visitor import Visitor
from services.wording.commands import as_called_here

SCANS = columns(
    "domain",
    "finished",
    "engine",
    "pages",
    "cookies",
    "changes",
    lead="domain",
    right=("pages", "cookies", "changes"),
    short=("finished",),
)
COOKIES = columns(
    "name",
    "domain",
    "category",
    "party",
    "consent",
    "lifetime",
    "protection",
    "seen_on",
    lead="name",
    wide=("protection", "seen_on"),
)
REPORTS = (("Report", "html", html_report), ("CSV", "csv", csv_report), ("JSON", "json", json_report))
TINTS = {ChangeKind.NEW: "missed", ChangeKind.GONE: "pending", ChangeKind.CHANGED: "claimed"}


@list_at("/scans", "Scans")
class _Scans(ListPage[ScanPage]):
    columns = SCANS
    linked = "domain"
    empty = (
        "No scans found",
        as_called_here("Create a schedule with the job type cookie_scan, or run: python manage.py scan example.com"),
    )

    def build_filters(self, asked: Mapping[str, str]) -> None:
        self._domain = self.text_filter("Domain", asked.get("domain", ""), "w-64")

    def look(self, cursor: str | None) -> ScanPage:
        wanted = ScanFilter(domain=text_of(self._domain))
        return ScanStore(self.visitor.parts.db).list_scans(wanted, limit=ROWS, cursor=cursor)

    def row(self, record: ScanRecord) -> dict[str, Any]:
        summary = record.summary
        return {
            "id": str(record.scan_id),
            "address": f"/scans/{record.scan_id}",
            "domain": record.domain,
            "finished": clock(self.visitor.local(record.finished_at)),
            "engine": record.engine,
            "pages": _count(summary["pages"]),
            "cookies": _count(summary["cookies"]),
            "changes": "first scan" if record.previous_scan_id is None else _count(summary["changes"]),
        }


def _count(value: Any) -> int:
    return (
        sum(number for number in value.values() if isinstance(number, int)) if isinstance(value, dict) else value or 0
    )


@for_visitors("/scans/{scan_id}")
async def scan(visitor: Visitor, scan_id: str) -> None:
    found = await visitor.read(lambda: _find(visitor, scan_id))
    with frame(visitor, "Scan", "/scans", about=found.domain if found else ""):
        if found is None:
            empty(
                "Scan not found",
                "Scans are kept as long as the history; the latest scan of each domain is kept forever.",
                ("All scans", "/scans"),
            )
        else:
            _show(visitor, found)


def _find(visitor: Visitor, scan_id: str) -> Scan | None:
    try:
        return ScanStore(visitor.parts.db).get(UUID(scan_id))
    except ValueError:
        return None


def _show(visitor: Visitor, found: Scan) -> None:
    with ui.row().classes("items-center gap-3 w-full"):
        ui.label(found.domain).classes("text-xl")
        at = visitor.local(found.finished_at)
        ui.label(f"{clock(at)} {at:%Z} · {found.engine} engine").classes("es-faint")
        if found.execution_id is not None:
            ui.link("Execution", f"/executions/{found.execution_id}")
        if found.previous_scan_id is not None:
            ui.link("Previous scan", f"/scans/{found.previous_scan_id}")
        ui.space()
        _downloads(found)
    with card():
        for sentence in words.summary_sentences(found):
            ui.label(sentence)
    with card("Changes since the previous scan"):
        _changes(found)
    with card("Cookies and storage"):
        _cookies(found)
    with card("Pages"):
        for page in found.pages:
            with ui.row().classes("items-center gap-3 no-wrap w-full es-line"):
                chip("failed" if page.error else "success", str(page.status_code or "failed"))
                ui.label(page.url).classes("es-mono es-long")
                ui.label(page.error or "; ".join(page.notes)).classes("es-faint es-long grow es-words")


def _downloads(found: Scan) -> None:
    name = f"scan-{found.domain}-{found.finished_at:%Y-%m-%d}"
    with ui.row().classes("gap-2 es-actions"):
        for title, form, make in REPORTS:
            button = ui.button(
                title,
                icon="download",
                on_click=lambda form=form, make=make: ui.download.content(make(found), f"{name}.{form}"),
            )
            button.props("outline no-caps")


def _changes(found: Scan) -> None:
    if found.previous_scan_id is None:
        empty("This is the first scan", "The next scan will show new, gone and changed cookies.")
    elif not found.changes:
        empty("No changes")
    for change in found.changes:
        with ui.row().classes("items-baseline gap-3"):
            chip(TINTS[change.kind], change.kind)
            ui.label(change.name).classes("es-mono")
            ui.label(change.domain).classes("es-faint")
            ui.label("; ".join(words.change_words(change))).classes("es-faint")


def _cookies(found: Scan) -> None:
    if not found.cookies:
        empty("No cookies found")
        return
    with ui.element("div").classes("es-wide"):
        table(COOKIES).rows = [_cookie(number, cookie) for number, cookie in enumerate(found.cookies)]


def _cookie(number: int, cookie: Cookie) -> dict[str, Any]:
    return {
        "id": number,
        "name": words.short(cookie.name),
        "domain": cookie.domain,
        "category": words.CATEGORIES[cookie.category][0],
        "party": cookie.party,
        "consent": "before consent" if cookie.consent is Consent.BEFORE else "after consent",
        "lifetime": words.lifetime(cookie),
        "protection": ", ".join(words.protections(cookie)),
        "seen_on": cookie.page_url,
    }
