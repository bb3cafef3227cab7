"""Contacts: the results of the pipeline, newest first, each with the page where it was found."""

from typing import Any

from fastapi import Request
from fastapi.responses import Response
from nicegui import ui

from database.workflow_statuses import ContactCurationStatus, EmailType
from services.errors import InvalidInput
from services.web.dashboard.frame import frame, shown_at
from services.web.dashboard.live import keep_fresh
from services.web.dashboard.look import NOTHING, card, clock, nothing
from services.web.dashboard.tables import OUTSIDE_CELL, Pager, columns, fill, table
from services.web.dashboard.visitor import Visitor, admit
from services.workflows.contact_store import ContactFilter, ContactPage, ContactRecord, ContactStore

ROWS = 50
REFRESH_SECONDS = 5.0
SHOWN = columns(
    "email",
    "type",
    "name",
    "phone",
    "domain",
    "found_on",
    "status",
    "found_at",
    lead="email",
    short=("phone", "found_at"),
    wide=("found_on",),
)


@shown_at("/contacts")
async def contacts(request: Request) -> Response | None:
    visitor = await admit(request)
    if isinstance(visitor, Response):
        return visitor
    with frame(visitor, "Contacts", "/contacts"):
        page = _Page(visitor, dict(request.query_params))
        await page.refresh()
        keep_fresh(REFRESH_SECONDS, page.refresh_first)
    return None


class _Page:
    def __init__(self, visitor: Visitor, asked: dict[str, str]) -> None:
        self._visitor, self._store = visitor, ContactStore(visitor.parts.db)
        with ui.row().classes("items-center gap-3 w-full es-filters"):
            self._email = self._text("Email contains", asked.get("email", ""))
            self._domain = self._text("Domain", asked.get("domain", ""))
            self._type = self._choice("Type", {word.value: word.lower() for word in EmailType})
            self._status = self._choice("Status", {word.value: word.value for word in ContactCurationStatus})
        with card():
            self._problem = ui.label().classes("es-bad")
            with ui.element("div").classes("es-wide"):
                self._table = table(SHOWN)
                self._table.add_slot("body-cell-found_on", OUTSIDE_CELL)
            self._nothing = nothing(
                "No contacts match",
                "The last workflow finds contacts on pages set to Selected. The filters may hide some.",
            )
            self._pager = Pager(self.refresh)

    def _text(self, label: str, value: str) -> ui.input:
        field = ui.input(label, value=value, on_change=self._ask_again)
        return field.props('outlined dense clearable debounce="400"').classes("w-56")

    def _choice(self, label: str, words: dict[str, str]) -> ui.select:
        chosen = ui.select(words, label=label, clearable=True, on_change=self._ask_again)
        return chosen.props("outlined dense").classes("w-40")

    async def refresh(self) -> None:
        cursor = self._pager.cursor
        try:
            wanted = self._wanted()
            page = await self._visitor.read(lambda: self._store.list(wanted, limit=ROWS, cursor=cursor))
            self._problem.text = ""
        except InvalidInput as error:
            page, self._problem.text = ContactPage([], None), str(error)
        fill(self._table, self._nothing, [self._row(record) for record in page.items])
        self._pager.show(page.next_cursor)

    async def refresh_first(self) -> None:
        if self._pager.is_first:
            await self.refresh()

    async def _ask_again(self) -> None:
        self._pager.restart()
        await self.refresh()

    def _wanted(self) -> ContactFilter:
        kind, status = self._type.value, self._status.value
        return ContactFilter(
            email=(self._email.value or "").strip() or None,
            domain=(self._domain.value or "").strip() or None,
            email_type=EmailType(kind) if kind else None,
            contact_curation_status=ContactCurationStatus(status) if status else None,
        )

    def _row(self, record: ContactRecord) -> dict[str, Any]:
        return {
            "id": str(record.id),
            "email": record.email,
            "type": record.email_type.lower(),
            "name": record.name or NOTHING,
            "phone": record.phone_number or NOTHING,
            "domain": record.domain,
            "found_on": record.source_url or NOTHING,
            "outside": outside_address(record.source_url),
            "status": record.contact_curation_status,
            "found_at": clock(self._visitor.local(record.created_at), with_seconds=False),
        }


def outside_address(url: str | None) -> str | None:
    """A safe link target: whoever may write contacts could have stored a script instead of a URL."""
    return url if url and url.lower().startswith(("http://", "https://")) else None
