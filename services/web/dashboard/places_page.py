"""Places for curation, newest first, and a search of the directory for more."""

from typing import Any

from fastapi import Request
from fastapi.responses import Response
from nicegui import ui

from database.workflow_statuses import DeepScanStatus, PlaceStatus
from services.errors import InvalidInput
from services.web.auth.roles import Role
from services.web.dashboard.frame import frame, shown_at
from services.web.dashboard.live import keep_fresh
from services.web.dashboard.look import NOTHING, card, clock, counted, nothing
from services.web.dashboard.tables import Pager, columns, fill, table
from services.web.dashboard.visitor import Visitor, admit
from services.workflows.curation import Curation
from services.workflows.place_search import MAX_QUERY, PlaceSearch, SearchResult
from services.workflows.row_lists import PLACES, RowFilter, RowPage, list_rows

ROWS = 50
REFRESH_SECONDS = 5.0
SHOWN = columns(
    "name", "address", "rating", "status", "deep_scan", "error", "place_id", "added",
    lead="name", short=("added", "place_id"), right=("rating",), wide=("address", "error"),
)  # fmt: skip


@shown_at("/places")
async def places(request: Request) -> Response | None:
    visitor = await admit(request)
    if isinstance(visitor, Response):
        return visitor
    with frame(visitor, "Places", "/places"):
        page = _Page(visitor)
        await page.refresh()
        keep_fresh(REFRESH_SECONDS, page.refresh_first)
    return None


class _Page:
    def __init__(self, visitor: Visitor) -> None:
        self._visitor = visitor
        if visitor.may(Role.OPERATOR):
            self._build_search()
        with ui.row().classes("items-center gap-3 w-full es-filters"):
            text = ui.input("Name or address contains", on_change=self._ask_again)
            self._text = text.props('outlined dense clearable debounce="400"').classes("w-56")
            self._status = self._choice("Status", PlaceStatus)
            self._deep_scan = self._choice("Deep scan", DeepScanStatus)
        with card():
            self._problem = ui.label().classes("es-bad")
            with ui.element("div").classes("es-wide"):
                self._table = table(SHOWN)
                if visitor.may(Role.OPERATOR):
                    self._table.props('selection="multiple"')
            self._nothing = nothing("No places match", "Search the directory to add places. The filters may hide some.")
            self._pager = Pager(self.refresh)
            if visitor.may(Role.OPERATOR):
                self._build_words()

    def _build_search(self) -> None:
        with card("Search the directory"), ui.row().classes("items-center gap-3 w-full"):
            query = ui.input("For example: dentists in Berlin", on_change=self._typed)
            self._query = query.props(f'outlined dense maxlength={MAX_QUERY} aria-label="Search query"')
            self._query.classes("grow").on("keydown.enter", self._search)
            self._go = ui.button("Search", icon="travel_explore", on_click=self._search).props("no-caps")
            self._go.disable()
            ui.label("Results are staged as New. Each search uses quota.").classes("es-faint")

    def _build_words(self) -> None:
        """Buttons that set the status of the checked rows."""
        with ui.row().classes("items-center gap-2"):
            ui.label("Set checked places to").classes("es-faint")
            for word in PlaceStatus:
                button = ui.button(word.value, on_click=lambda word=word: self._curate(word))
                button.props("outline no-caps dense")

    def _choice(self, label: str, words: type[PlaceStatus] | type[DeepScanStatus]) -> ui.select:
        chosen = ui.select([word.value for word in words], label=label, clearable=True, on_change=self._ask_again)
        return chosen.props("outlined dense").classes("w-40")

    def _typed(self) -> None:
        self._go.set_enabled(len((self._query.value or "").strip()) > 1)

    async def _search(self) -> None:
        query, parts, actor = self._query.value or "", self._visitor.parts, self._visitor.identity.actor
        if not self._go.enabled:
            return
        self._go.disable()
        try:
            search = PlaceSearch(parts.db, parts.settings, actor)
            found = await self._visitor.act(Role.OPERATOR, lambda: search.run(query))
        finally:
            self._typed()
        if found is not None:
            ui.notify(found_in_words(found), type="positive" if found.places else "warning", multi_line=True)
            await self._ask_again()

    async def _curate(self, word: PlaceStatus) -> None:
        ids = [int(row["id"]) for row in self._table.selected]
        if not ids:
            ui.notify("Check at least one place first.", type="warning")
            return
        curation = Curation(self._visitor.parts.db, self._visitor.identity.actor)
        done = await self._visitor.act(Role.OPERATOR, lambda: curation.places(ids, word))
        if done is not None:
            queued = f", {counted(done.queued_count, 'deep scan')} queued" if done.queued_count else ""
            ui.notify(f"{counted(done.updated_count, 'place')} set to {word.value}{queued}", type="positive")
            self._table.selected = []
            await self.refresh()

    async def refresh(self) -> None:
        cursor, db = self._pager.cursor, self._visitor.parts.db
        wanted = RowFilter(
            search=(self._text.value or "").strip() or None,
            words={"status": self._status.value, "deep_scan_status": self._deep_scan.value},
        )
        try:
            page = await self._visitor.read(lambda: list_rows(db, PLACES, wanted, limit=ROWS, cursor=cursor))
            self._problem.text = ""
        except InvalidInput as error:
            page, self._problem.text = RowPage([], None), str(error)
        fill(self._table, self._nothing, [self._row(item) for item in page.items])
        self._pager.show(page.next_cursor)

    async def refresh_first(self) -> None:
        if self._pager.is_first:
            await self.refresh()

    async def _ask_again(self) -> None:
        self._pager.restart()
        await self.refresh()

    def _row(self, item: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": str(item["id"]),
            "name": item["name"] or item["place_id"],
            "address": item["formatted_address"] or NOTHING,
            "rating": NOTHING if item["rating"] is None else f"{item['rating']:g}",
            "status": item["status"],
            "deep_scan": item["deep_scan_status"] or NOTHING,
            "error": item["deep_scan_error"] or NOTHING,
            "place_id": item["place_id"],
            "added": clock(self._visitor.local(item["created_at"]), with_seconds=False),
        }


def found_in_words(found: SearchResult) -> str:
    if not found.places:
        return f"No places found for {found.query!r}"
    told = f"{counted(len(found.places), 'place')} found: {found.created} new, {found.known} already known"
    return f"{told}; there may be more: {found.incomplete}" if found.incomplete else told
