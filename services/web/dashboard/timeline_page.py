"""The timeline: schedules with their last fires as a grid, those with trouble first; executions as bars per replica
over a short range; and a forecast that shows load peaks in advance.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from nicegui import events, ui

from services.insight.forecast import Load, forecast
from services.insight.grid import FIRES, SCHEDULES, Grid, GridRow
from services.insight.overview import Bar, Overview
from services.insight.windows import Window
from services.web.dashboard import charts
from services.web.dashboard.cells import legend, row_of_cells
from services.web.dashboard.frame import for_visitors, frame
from services.web.dashboard.live import Ages, Live, keep_fresh
from services.web.dashboard.look import COLOURS, card, chart, chip, clock, nothing, redraw
from services.web.dashboard.visitor import Visitor
from services.web.dashboard.window_choice import remembered_window, window_choice

REFRESH_SECONDS = 10.0
WINDOWS = {15: "15 minutes", 60: "1 hour", 360: "6 hours"}
FIRST_WINDOW = 60
MOST_BARS = 2000


@dataclass(frozen=True, slots=True)
class Seen:
    at: datetime
    rows: list[GridRow]
    minutes: int
    bars: list[Bar]
    loads: list[Load]


@for_visitors("/timeline")
async def timeline(visitor: Visitor) -> None:
    with frame(visitor, "Timeline", "/timeline"):
        window = remembered_window(visitor)
        page = _Page(visitor, window, await visitor.read(lambda: _look(visitor, window, FIRST_WINDOW)))
        keep_fresh(REFRESH_SECONDS, page.refresh)


def _look(visitor: Visitor, window: Window, minutes: int) -> Seen:
    db = visitor.parts.db
    bars = Overview(db).timeline(minutes, MOST_BARS)
    return Seen(datetime.now(UTC), Grid(db).rows(window.hours), minutes, bars, forecast(db, minutes))


class _Page:
    def __init__(self, visitor: Visitor, window: Window, seen: Seen) -> None:
        self._visitor, self._window, self._seen = visitor, window, seen
        with card(f"Last {FIRES} fires by schedule"):
            with ui.row().classes("items-center gap-3 w-full"):
                ui.label("Trouble first, of the last").classes("es-faint")
                window_choice(window, self._choose_window)
            self._nothing_fired = nothing("No fires yet", "Each fire of a schedule becomes a cell here.")
            self._grid = _GridCard(visitor)
        chosen = ui.toggle(WINDOWS, value=seen.minutes, on_change=self._choose)
        chosen.props('no-caps unelevated aria-label="Time window"')
        with card("Executions by replica"):
            self._nothing_ran = nothing("No executions in this window", "Choose a wider window to see more.")
            self._past = chart(self._past_options(), on_point_click=_open)
            self._legend = Live(_build_legend, _statuses(seen.bars))
            self._note = ui.label().classes("es-faint")
        with card("Forecast by minute"):
            self._nothing_comes = nothing("No fires in this window", "Choose a wider window to see more.")
            self._coming = chart(self._coming_options()).classes("h-64")
            self._peak = ui.label()
        self._show()

    async def refresh(self) -> None:
        window, minutes = self._window, self._seen.minutes
        seen = await self._visitor.read(lambda: _look(self._visitor, window, minutes))
        if (window, minutes) != (self._window, self._seen.minutes):
            return  # another one was chosen meanwhile, whose own answer comes
        self._seen = seen
        redraw(self._past, self._past_options())
        redraw(self._coming, self._coming_options())
        self._show()

    async def _choose_window(self, window: Window) -> None:
        self._window = window
        await self.refresh()

    async def _choose(self, event: events.ValueChangeEventArguments[int]) -> None:
        self._seen = replace(self._seen, minutes=int(event.value))
        await self.refresh()

    def _past_options(self) -> dict[str, Any]:
        return charts.timeline(self._seen.bars, self._visitor.local, self._seen.at, self._seen.minutes)

    def _coming_options(self) -> dict[str, Any]:
        return charts.forecast(self._seen.loads, self._visitor.local)

    def _show(self) -> None:
        bars, busy = self._seen.bars, [load for load in self._seen.loads if load.fires]
        self._grid.show(self._seen.rows)
        self._nothing_fired.set_visibility(not self._seen.rows)
        self._past.set_visibility(bool(bars))
        self._past.style(f"height: {64 + 48 * len({bar.instance_id for bar in bars})}px")
        self._nothing_ran.set_visibility(not bars)
        self._legend.show(_statuses(bars))
        self._note.text = self._limit_in_words(bars[-1]) if len(bars) == MOST_BARS else ""
        self._coming.set_visibility(bool(busy))
        self._nothing_comes.set_visibility(not busy)
        self._peak.text = self._peak_in_words(max(busy, key=lambda load: load.fires)) if busy else ""

    def _limit_in_words(self, oldest: Bar) -> str:
        since = self._visitor.local(oldest.started_at)
        return f"Only the newest {MOST_BARS:,} executions are shown, since {clock(since, with_date=False)}."

    def _peak_in_words(self, peak: Load) -> str:
        at = self._visitor.local(peak.at).strftime("%H:%M")
        names = ", ".join(label for label, _ in peak.labels.most_common(3))
        words = f"Peak at {at}: {peak.fires:,.0f} fires, {peak.seconds:,.0f} s of work ({names})."
        usual = sum(load.fires for load in self._seen.loads) / len(self._seen.loads)
        return words + (" Set spread_seconds on these schedules to flatten it." if peak.fires > 3 * usual else "")


class _GridCard:
    """A line per schedule; only what has changed is replaced, so that the focus stays on its cell."""

    def __init__(self, visitor: Visitor) -> None:
        self._visitor = visitor
        self._lines: list[tuple[ui.link, ui.html, ui.element]] = []
        with ui.element("div").classes("es-grid-rows") as self._box:
            pass
        self._legend = ui.html("", sanitize=False).classes("es-legend")
        self._more = ui.link("All schedules", "/schedules")

    def show(self, rows: list[GridRow]) -> None:
        while len(self._lines) < len(rows):
            with self._box:
                name = ui.link("", "").classes("ellipsis")
                with ui.element("div").classes("es-scroll") as place:
                    self._lines.append((name, ui.html("", sanitize=False), place))
        for number, (name, cells, place) in enumerate(self._lines):
            name.set_visibility(number < len(rows))
            place.set_visibility(number < len(rows))
            if number < len(rows):
                _fill(name, cells, rows[number], self._visitor)
        words = legend(cell.status for row in rows for cell in row.cells)
        if self._legend.content != words:
            self._legend.content = words
        self._more.set_visibility(len(rows) >= SCHEDULES)


def _fill(name: ui.link, cells: ui.html, row: GridRow, visitor: Visitor) -> None:
    if name.text != row.label:
        name.text = row.label
        name.props(f'href="/schedules/{row.schedule_id}"')
    content = row_of_cells(row, visitor, FIRES)
    if cells.content != content:
        cells.content = content


def _statuses(bars: list[Bar]) -> list[str]:
    return sorted({bar.status for bar in bars}, key=list(COLOURS).index)


def _build_legend(statuses: list[str], _: Ages) -> None:
    """The legend of the colours; the chart has none, because its bars are one series."""
    with ui.row().classes("gap-2"):
        for status in statuses:
            chip(status)


def _open(event: events.EChartPointClickEventArguments) -> None:
    if isinstance(event.value, list):
        ui.navigate.to(f"/executions/{event.value[4]}")
