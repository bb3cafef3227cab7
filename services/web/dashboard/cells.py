"""Fires as cells: a colour, a sign and a title for each, and a link to its execution.

Plain HTML, because a page shows a thousand of them. The sign tells statuses apart without colours.
"""

from collections.abc import Iterable
from html import escape

from services.insight.grid import RECOVERED, Cell, GridRow
from services.web.dashboard.look import clock, colour, took
from services.web.dashboard.visitor import Visitor

SIGNS = {
    "success": "\N{CHECK MARK}",
    RECOVERED: "\N{CLOCKWISE OPEN CIRCLE ARROW}",
    "failed": "\N{MULTIPLICATION X}",
    "timed_out": "T",
    "abandoned": "A",
    "cancelled": "C",
    "skipped": "\N{EN DASH}",
    "missed": "!",
    "running": "\N{BLACK RIGHT-POINTING TRIANGLE}",
    "claimed": "\N{WHITE RIGHT-POINTING TRIANGLE}",
    "pending": "\N{HORIZONTAL ELLIPSIS}",
}
WORDS = {RECOVERED: "recovered by retry"}


def row_of_cells(row: GridRow, visitor: Visitor, fires: int) -> str:
    """The cells, oldest first and aligned right, so that the newest ones of all rows are below each other."""
    gaps = '<span class="es-cell es-gap"></span>' * (fires - len(row.cells))
    return f'<span class="es-cells">{gaps}{"".join(_cell(cell, visitor) for cell in row.cells)}</span>'


def legend(statuses: Iterable[str]) -> str:
    known = set(statuses)
    signs = [f"{_sign(status)} {escape(words_of(status))}" for status in SIGNS if status in known]
    return "".join(f'<span class="es-sign">{sign}</span>' for sign in signs)


def words_of(status: str) -> str:
    return WORDS.get(status, status.replace("_", " "))


def _cell(cell: Cell, visitor: Visitor) -> str:
    parts = [clock(visitor.local(cell.scheduled_for)), words_of(cell.status)]
    if cell.duration_seconds is not None:
        parts.append(took(cell.duration_seconds))
    if cell.attempt > 1:
        parts.append(f"attempt {cell.attempt}")
    if cell.why:
        parts.append(cell.why)
    words = escape(", ".join(parts))
    return (
        f'<a class="es-cell" style="--chip: {colour(cell.status)}" href="/executions/{cell.execution_id}" '
        f'title="{words}" aria-label="{words}">{SIGNS.get(cell.status, "?")}</a>'
    )


def _sign(status: str) -> str:
    return f'<span class="es-cell" style="--chip: {colour(status)}" aria-hidden="true">{SIGNS[status]}</span>'
