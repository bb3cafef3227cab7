"""Places for curation, newest first, and a search of the directory for more."""

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from database.workflow_statuses import DeepScanStatus, PlaceStatus
from services.web.auth.roles import Role
from services.web.dashboard.list_page import ROWS, ListPage, list_at, text_of
from services.web.dashboard.look import NOTHING, card, clock
from services.web.dashboard.tables import columns
from services.web.dashboard.visitor import Visitor
from services.wording.counts import counted
from services.workflows.curation import Curation
from services.workflows.place_search import MAX_QUERY, PlaceSearch, SearchResult
from services.workflows.row_lists import PLACES, RowFilter, RowPage, list_rows

SHOWN = columns(
    "name", "address", "rating", "status", "deep_scan", "error", "place_id", "added",
    lead="name", short=("added", "place_id"), right=("rating",), wide=("address", "error"),
)  # fmt: skip


@list_at("/places", "Places")
class _Places(ListPage[RowPage]):
    columns = SHOWN
    empty = ("No places match", "Search the directory to add places. The filters may hide some.")

    def __init__(self, visitor: Visitor, asked: Mapping[str, str]) -> None:
        curates = visitor.may(Role.OPERATOR)
        if curates:
            self._build_search()
        super().__init__(visitor, asked)
        if curates:
            self.table.props('selection="multiple"')
            with self.card:
                self._build_words()

    def build_filters(self, _: Mapping[str, str]) -> None:
        self._text = self.text_filter("Name or address contains")
        self._status = self.choice_filter("Status", {word.value: word.value for word in PlaceStatus})
        self._deep_scan = self.choice_filter("Deep scan", {word.value: word.value for word in DeepScanStatus})

    def look(self, cursor: str | None) -> RowPage:
        wanted = RowFilter(
            search=text_of(self._text),
            words={"status": self._status.value, "deep_scan_status": self._deep_scan.value},
        )
        return list_rows(self.visitor.parts.db, PLACES, wanted, limit=ROWS, cursor=cursor)

    def row(self, item: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": str(item["id"]),
            "name": item["name"] or item["place_id"],
            "address": item["formatted_address"] or NOTHING,
            "rating": NOTHING if item["rating"] is None else f"{item['rating']:g}",
            "status": item["status"],
            "deep_scan": item["deep_scan_status"] or NOTHING,
            "error": item["deep_scan_error"] or NOTHING,
            "place_id": item["place_id"],
            "added": clock(self.visitor.local(item["created_at"]), with_seconds=False),
        }

    def _build_search(self) -> None:
        with card("Search the directory"), ui.row().classes("items-center gap-3 w-full"):
            query = ui.input("For example: dentists in Berlin", on_change=self._offer_search)
            self._query = query.props(f'outlined dense maxlength={MAX_QUERY} aria-label="Search query"')
            self._query.classes("grow").on("keydown.enter", self._search_directory)
            self._go = ui.button("Search", icon="travel_explore", on_click=self._search_directory).props("no-caps")
            self._go.disable()
            ui.label("Results are staged as New. Each search uses quota.").classes("es-faint")

    def _build_words(self) -> None:
        """Buttons that set the status of the checked rows."""
        with ui.row().classes("items-center gap-2"):
            ui.label("Set checked places to").classes("es-faint")
            for word in PlaceStatus:
                button = ui.button(word.value, on_click=lambda word=word: self._curate(word))
                button.props("outline no-caps dense")

    def _offer_search(self) -> None:
        self._go.set_enabled(len((self._query.value or "").strip()) > 1)

    async def _search_directory(self) -> None:
        query, parts, actor = self._query.value or "", self.visitor.parts, self.visitor.identity.actor
        if not self._go.enabled:
            return
        self._go.disable()
        try:
            search = PlaceSearch(parts.db, parts.settings, actor)
            found = await self.visitor.act(Role.OPERATOR, lambda: search.run(query))
        finally:
            self._offer_search()
        if found is not None:
            ui.notify(found_in_words(found), type="positive" if found.places else "warning", multi_line=True)
            await self.search()

    async def _curate(self, word: PlaceStatus) -> None:
        ids = [int(row["id"]) for row in self.table.selected]
        if not ids:
            ui.notify("Check at least one place first.", type="warning")
            return
        curation = Curation(self.visitor.parts.db, self.visitor.identity.actor)
        done = await self.visitor.act(Role.OPERATOR, lambda: curation.places(ids, word))
        if done is not None:
            queued = f", {counted(done.queued_count, 'deep scan')} queued" if done.queued_count else ""
            ui.notify(f"{counted(done.updated_count, 'place')} set to {word.value}{queued}", type="positive")
            self.table.selected = []
            await self.refresh()


def found_in_words(found: SearchResult) -> str:
    if not found.places:
        return f"No places found for {found.query!r}"
    told = f"{counted(len(found.places), 'place')} found: {found.created} new, {found.known} already known"
    return f"{told}; there may be more: {found.incomplete}" if found.incomplete else told
