"""Tables of the dashboard: rows are plain values; a cell can be a link or a status chip. Keyset pagination."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from nicegui import ui

# `data-label`: on a phone each row becomes a card whose cells show their headings.
CELL = """<q-td :props="props" :data-label="props.col.label">{{ props.value }}</q-td>"""
CHIP_CELL = """<q-td :props="props" :data-label="props.col.label">
  <span class="es-chip" :style="{'--chip': props.row.colour}">{{ props.value }}</span>
</q-td>"""
LINK_CELL = """<q-td :props="props" :data-label="props.col.label">
  <a :href="props.row.address">{{ props.value }}</a>
</q-td>"""
# An external link; plain text without a URL.
OUTSIDE_CELL = """<q-td :props="props" :data-label="props.col.label">
  <a v-if="props.row.outside" :href="props.row.outside" target="_blank" rel="noopener noreferrer">{{ props.value }}</a>
  <span v-else>{{ props.value }}</span>
</q-td>"""


HEADINGS = {"what": "Schedule", "late": "Lateness", "took": "Duration", "why": "Reason", "job": "Job type"}


def columns(
    *names: str,
    lead: str,
    right: tuple[str, ...] = (),
    short: tuple[str, ...] = (),
    wide: tuple[str, ...] = (),
    orders: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """A column for each name, with a heading from HEADINGS or from its name. A `short` column stays on one line.

    `orders` are the orders that the headings of columns stand for.
    On a phone `lead` is the title of the row's card, and a `wide` column takes a whole line of it.
    """
    short += right
    return [
        {
            "name": name,
            "label": HEADINGS.get(name) or name.replace("_", " ").capitalize(),
            "field": name,
            "order": (orders or {}).get(name),
            "align": "right" if name in right else "left",
            "classes": " ".join(
                word
                for word, those in (("es-short", short), ("es-lead", (lead,)), ("es-wide-cell", wide))
                if name in those
            ),
        }
        for name in names
    ]


def table(shown: list[dict[str, Any]], *, chip: str = "", linked: str = "") -> ui.table:
    """`chip` names the column that shows a status, `linked` the one that leads to the row's `address`."""
    made = ui.table(columns=shown, rows=[], row_key="id").classes("w-full es-table")
    made.props("flat dense wrap-cells").add_slot("body-cell", CELL)
    made.props("hide-pagination :rows-per-page-options=[0]")
    if chip:
        made.add_slot(f"body-cell-{chip}", CHIP_CELL)
    if linked:
        made.add_slot(f"body-cell-{linked}", LINK_CELL)
    return made


def fill(shown: ui.table, nothing: ui.element, rows: list[dict[str, Any]]) -> None:
    """Show the rows, or the empty state. Unchanged rows are not replaced under a click."""
    if shown.rows != rows:
        shown.rows = rows
    shown.set_visibility(bool(rows))
    nothing.set_visibility(not rows)


class Pager:
    """Previous and next page with keyset cursors; keeps the cursors of the previous pages."""

    def __init__(self, turn: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._turn = turn
        self._cursors: list[str | None] = [None]
        self._next: str | None = None
        with ui.row().classes("items-center gap-2") as self._box:
            self._back = ui.button(icon="chevron_left", on_click=self._go_back).props(
                'flat round aria-label="Previous page"'
            )
            self._number = ui.label("Page 1").classes("es-faint")
            self._forth = ui.button(icon="chevron_right", on_click=self._go_on).props(
                'flat round aria-label="Next page"'
            )

    @property
    def cursor(self) -> str | None:
        return self._cursors[-1]

    @property
    def is_first(self) -> bool:
        return len(self._cursors) == 1

    def show(self, next_cursor: str | None) -> None:
        self._next = next_cursor
        self._number.text = f"Page {len(self._cursors)}"
        self._back.set_enabled(not self.is_first)
        self._forth.set_enabled(next_cursor is not None)
        self._box.set_visibility(not self.is_first or next_cursor is not None)

    def restart(self) -> None:
        """Back to the first page, after a change of the filters."""
        self._cursors = [None]

    async def _go_on(self) -> None:
        if self._next is not None:
            self._cursors.append(self._next)
            await self._turn()

    async def _go_back(self) -> None:
        if not self.is_first:
            self._cursors.pop()
            await self._turn()
