"""Shared look of the pages: colours of statuses, cards, empty states, and how times and durations read."""

from datetime import UTC, datetime, tzinfo
from typing import Any

from nicegui import ui

from services.wording.durations import duration, one_unit

# One colour per status, the same in chips, charts and the timeline; readable in light and dark mode.
COLOURS = {
    "success": "#2e9e6b",
    "recovered": "#3b8f9e",  # of a fire: a retry succeeded
    "running": "#2f7fd6",
    "claimed": "#5b9be0",
    "pending": "#8a94a6",
    "failed": "#d64545",
    "timed_out": "#c2571a",
    "abandoned": "#a83279",
    "cancelled": "#7a6a9e",
    "skipped": "#b08a2e",
    "missed": "#d98f1f",
}
OTHER_COLOUR = "#8a94a6"
NOTHING = "\N{EN DASH}"


def colour(status: str) -> str:
    return COLOURS.get(status, OTHER_COLOUR)


def chip(status: str, word: str = "") -> None:
    """The status, or another word, in the colour of the status."""
    ui.label(word or status.replace("_", " ")).classes("es-chip").style(f"--chip: {colour(status)}")


def took(seconds: float | None) -> str:
    return NOTHING if seconds is None else duration(seconds)


def ago(at: datetime | None, now: datetime | None = None) -> str:
    """ "3 min ago", "in 2 h"; an en dash for never."""
    if at is None:
        return NOTHING
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    size = one_unit(abs(seconds))
    if size is None:
        return "now"
    return f"{size} ago" if seconds > 0 else f"in {size}"


def clock(at: datetime | None, *, with_date: bool = True, with_seconds: bool = True) -> str:
    """Formats a time that is already in the visitor's time zone."""
    if at is None:
        return NOTHING
    form = ("%Y-%m-%d " if with_date else "") + ("%H:%M:%S" if with_seconds else "%H:%M")
    return at.strftime(form)


def fire_words(fire: datetime, there: tzinfo, here: tzinfo) -> str:
    """The fire in the schedule's time zone, and in the visitor's if the offsets differ."""
    local, own = fire.astimezone(there), fire.astimezone(here)
    words = f"{local:%a} {clock(local)} {local:%Z}"
    if local.utcoffset() == own.utcoffset():
        return words
    return f"{words} ({clock(own, with_date=own.date() != local.date())} your time)"


def empty(text: str, hint: str = "", way: tuple[str, str] | None = None) -> None:
    """An empty state with a hint on what to do next; `way` is the text and target of a link."""
    with ui.column().classes("es-empty"):
        ui.label(text).classes("es-empty-text")
        if hint:
            ui.label(hint).classes("es-faint")
        if way:
            ui.link(*way)


def nothing(text: str, hint: str = "") -> ui.element:
    """An empty state that can be hidden."""
    with ui.element("div").classes("w-full") as box:
        empty(text, hint)
    return box


def fact(name: str, value: str) -> ui.label:
    """An entry of a definition list (`dl`, es-facts); returns the label of its value."""
    with ui.element("dt"):
        ui.label(name)
    with ui.element("dd"):
        return ui.label(value)


def chart(options: dict[str, Any], **more: Any) -> ui.echart:
    """Drawn as SVG, so that the stylesheet can colour its text for light and dark mode."""
    return ui.echart(options, renderer="svg", **more).classes("w-full es-chart")


def redraw(chart: ui.echart, options: dict[str, Any]) -> None:
    """Update a chart in place; a new one would flicker and lose the zoom."""
    chart.options.clear()
    chart.options.update(options)
    chart.update()


def card(title: str = "") -> ui.column:
    box = ui.column().classes("es-card")
    if title:
        with box:
            ui.label(title).classes("es-card-title").props('role="heading" aria-level="2"')
    return box
