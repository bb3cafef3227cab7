"""The window of the charts: chosen on any page, remembered by the browser, the same on all of them."""

from collections.abc import Awaitable, Callable

from nicegui import events, ui

from services.insight.windows import WINDOWS, Window, window_of
from services.web.dashboard.frame import REMEMBERED
from services.web.dashboard.visitor import Visitor

COOKIE = "window"
REMEMBER = f"document.cookie = '{COOKIE}={{}}; {REMEMBERED}'"
SLOW_SECONDS = 30.0  # a longer window changes little, and costs more to read


def remembered_window(visitor: Visitor) -> Window:
    return window_of(visitor.cookies.get(COOKIE))


def window_choice(window: Window, choose: Callable[[Window], Awaitable[None]]) -> None:
    async def chosen(event: events.ValueChangeEventArguments[str]) -> None:
        ui.run_javascript(REMEMBER.format(event.value))
        await choose(window_of(event.value))

    names = {key: known.words for key, known in WINDOWS.items()}
    toggle = ui.toggle(names, value=window.key, on_change=chosen)
    toggle.props('no-caps unelevated dense padding="2px 12px" aria-label="Time window"').classes("es-windows")
