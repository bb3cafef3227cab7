"""Tables of the dashboard: rows are plain values; a cell can be a link or the chip of an outcome. Pages are keyset."""

from collections.abc import Callable, Coroutine
from typing import Any

from nicegui import ui

# `data-label`: on a phone each row becomes a small card, in which the cells say what they are.
CELL = """<q-td :props="props" :data-label="props.col.label">{{ props.value }}</q-td>"""
CHIP_CELL = """<q-td :props="props" :data-label="props.col.label">
  <span class="es-chip" :style="{'--chip': props.row.colour}">{{ props.value }}</span>
</q-td>"""
LINK_CELL = """<q-td :props="props" :data-label="props.col.label">
  <a :href="props.row.%s">{{ props.value }}</a>
</q-td>"""
# To a page that is not ours; without an address it is plain text.
OUTSIDE_CELL = """<q-td :props="props" :data-label="props.col.label">
  <a v-if="props.row.outside" :href="props.row.outside" target="_blank" rel="noopener noreferrer">{{ props.value }}</a>
  <span v-else>{{ props.value }}</span>
</q-td>"""


def columns(
    *names: str, lead: str, right: tuple[str, ...] = (), short: tuple[str, ...] = (), wide: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """A column for each name; `_` becomes a space in its head. What is `short` keeps to one line.

    On a phone `lead` is the head of the row's card, and what is `wide` takes a whole line of it.
    """
    short += right
    return [
        {
            "name": name,
            "label": name.replace("_", " "),
            "field": name,
            "align": "right" if name in right else "left",
            "classes": " ".join(
                word
                for word, those in (("es-short", short), ("es-lead", (lead,)), ("es-wide-cell", wide))
                if name in those
            ),
        }
        for name in names
    ]


def table(shown: list[dict[str, Any]], *, chip: str = "", links: dict[str, str] | None = None) -> ui.table:
    """`chip` names the column that shows an outcome, `links` the field that holds a column's address."""
    made = ui.table(columns=shown, rows=[], row_key="id").classes("w-full es-table")
    made.props("flat dense wrap-cells").add_slot("body-cell", CELL)
    made.props("hide-pagination :rows-per-page-options=[0]")
    if chip:
        made.add_slot(f"body-cell-{chip}", CHIP_CELL)
    for name, address in (links or {}).items():
        made.add_slot(f"body-cell-{name}", LINK_CELL % address)
    return made


def fill(shown: ui.table, nothing: ui.element, rows: list[dict[str, Any]]) -> None:
    """Show the rows, or that there are none. What is the same already stays: somebody may be clicking on it."""
    if shown.rows != rows:
        shown.rows = rows
    shown.set_visibility(bool(rows))
    nothing.set_visibility(not rows)


class Pager:
    """Forward and back through keyset pages: the cursors of the pages before are kept."""

    def __init__(self, turn: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._turn = turn
        self._cursors: list[str | None] = [None]
        self._next: str | None = None
        with ui.row().classes("items-center gap-2") as self._box:
            self._back = ui.button(icon="chevron_left", on_click=self._go_back).props('flat round aria-label="Back"')
            self._number = ui.label("page 1").classes("es-faint")
            self._forth = ui.button(icon="chevron_right", on_click=self._go_on).props('flat round aria-label="Next"')

    @property
    def cursor(self) -> str | None:
        return self._cursors[-1]

    @property
    def is_first(self) -> bool:
        return len(self._cursors) == 1

    def show(self, next_cursor: str | None) -> None:
        self._next = next_cursor
        self._number.text = f"page {len(self._cursors)}"
        self._back.set_enabled(not self.is_first)
        self._forth.set_enabled(next_cursor is not None)
        self._box.set_visibility(not self.is_first or next_cursor is not None)

    def restart(self) -> None:
        """Another question: its first page."""
        self._cursors = [None]

    async def _go_on(self) -> None:
        if self._next is not None:
            self._cursors.append(self._next)
            await self._turn()

    async def _go_back(self) -> None:
        if not self.is_first:
            self._cursors.pop()
            await self._turn()
