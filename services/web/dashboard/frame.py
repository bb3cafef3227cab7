"""The frame of every page: navigation bar, theme switch, account menu and style."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from inspect import Signature, signature
from typing import Any, TypeVar

from fastapi.responses import Response
from nicegui import ui

from services.web.auth.roles import Role
from services.web.dashboard.outage_page import instead_of
from services.web.dashboard.places import PLACES, STYLE
from services.web.dashboard.visitor import UTC_COOKIE, ZONE_COOKIE, Visitor, admit

# The server reads the time zone from a cookie; the first page reloads once if the browser is not in UTC.
FIND_ZONE = f"""<script>
(() => {{
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const known = document.cookie.split("; ").find(part => part.startsWith("{ZONE_COOKIE}="));
  document.cookie = "{ZONE_COOKIE}=" + encodeURIComponent(zone) + "; path=/; max-age=31536000; SameSite=Strict";
  if (!known && zone !== "UTC" && document.cookie.includes("{ZONE_COOKIE}=")) location.reload();
}})();
</script>"""
REMEMBERED = "path=/; max-age=31536000; SameSite=Strict"
BUILD_SECONDS = 30.0
Build = TypeVar("Build", bound=Callable[..., Any])
REMEMBER_THEME = "localStorage.setItem('es-theme', '{}')"
APPLY_THEME = """
const theme = localStorage.getItem('es-theme');
theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches
"""


def shown_at(path: str) -> Callable[[Build], Build]:
    """Decorator of a page. NiceGUI's default timeout of 3 s is too short for a busy machine."""

    def register(build: Build) -> Build:
        ui.page(path, response_timeout=BUILD_SECONDS)(instead_of(build))
        return build

    return register


def for_visitors(path: str) -> Callable[[Build], Build]:
    """Decorator of a page whose first argument is the visitor. Without a session it leads to the login page."""

    def register(build: Build) -> Build:
        _, *of_page = signature(build).parameters.values()

        @wraps(build)
        async def admitted(**of_path: str) -> Response | None:
            visitor = await admit(ui.context.client.request)
            if isinstance(visitor, Response):
                return visitor
            await build(visitor, **of_path)
            return None

        admitted.__signature__ = Signature(of_page)  # type: ignore[attr-defined]
        shown_at(path)(admitted)
        return build

    return register


@contextmanager
def frame(visitor: Visitor, title: str, here: str, about: str = "") -> Iterator[ui.column]:
    """The page's content goes inside. `here` is the path of its entry in the navigation.

    `about` names what the page shows, so that browser tabs can be told apart.
    """
    styled(f"{about} · {title}" if about else title)
    dark = ui.dark_mode(value=None)
    with ui.left_drawer(value=False, bordered=True).props("overlay behavior=mobile").classes("es-drawer") as drawer:
        _links(visitor, here)
    with ui.header().classes("es-bar"):
        menu = ui.button(icon="menu", on_click=drawer.toggle)
        menu.props('flat round aria-label="Menu"').classes("es-menu")
        ui.link("Enhanced Scheduler", "/").classes("es-brand")
        with ui.row().classes("es-nav").props('role="navigation" aria-label="Pages"'):
            _links(visitor, here)
        ui.space()
        _zone_button(visitor)
        restore_theme = _theme_button(dark)
        _account(visitor)
    with ui.column().classes("es-page").props('role="main"') as content:
        ui.label(title).classes("es-title").props('role="heading" aria-level="1"')
        yield content
    # By timer: waiting for the browser earlier would make NiceGUI send an incomplete page.
    ui.timer(0.01, restore_theme, once=True)


def styled(title: str) -> None:
    ui.page_title(f"{title} · Enhanced Scheduler")
    ui.colors(primary="#2f5fd0")
    ui.add_css(STYLE)
    ui.add_head_html(FIND_ZONE)


def _links(visitor: Visitor, here: str) -> None:
    for place in PLACES:
        if place.of_workflows and not visitor.has_workflows and place.path != here:
            continue
        with ui.link(target=place.path).classes("es-link") as link:
            ui.icon(place.icon)
            ui.label(place.title)
        if place.path == here:
            link.classes("es-here").props('aria-current="page"')


def _theme_button(dark: ui.dark_mode) -> Callable[[], Awaitable[None]]:
    """Returns the function that restores the theme saved in the browser."""

    def toggle() -> None:
        dark.value = not dark.value
        ui.run_javascript(REMEMBER_THEME.format("dark" if dark.value else "light"))

    async def restore() -> None:
        try:
            dark.value = bool(await ui.run_javascript(APPLY_THEME, timeout=5))
        finally:
            button.enable()

    button = ui.button(icon="dark_mode", on_click=toggle).props('flat round aria-label="Toggle dark mode"')
    button.disable()  # until the browser has answered, which would undo a click
    return restore


def _zone_button(visitor: Visitor) -> None:
    """All times of a page are in one zone: the browser's, or UTC."""
    is_utc = visitor.cookies.get(UTC_COOKIE) == "1"
    other = "your browser's time zone" if is_utc else "UTC"
    switch = f"document.cookie = '{UTC_COOKIE}={0 if is_utc else 1}; {REMEMBERED}'; location.reload()"
    with ui.button(on_click=lambda: ui.run_javascript(switch)) as button:
        ui.label(str(visitor.zone)).classes("es-faint es-zone")
        ui.label(f"{datetime.now(visitor.zone):%Z}").classes("es-faint es-zone-short")
    button.props(f'flat dense no-caps aria-label="Times are in {visitor.zone}; show them in {other}"')
    button.tooltip(f"Show all times in {other}.")


def _account(visitor: Visitor) -> None:
    with ui.button(icon="account_circle").props('flat round aria-label="Account"'), ui.menu():
        ui.label(visitor.identity.actor).classes("es-menu-text")
        ui.label(f"Role: {visitor.identity.role or Role.VIEWER}").classes("es-menu-text es-faint")
        ui.label(f"Time zone: {visitor.zone}").classes("es-menu-text es-faint")
        ui.separator()
        ui.menu_item("Log out", on_click=lambda: ui.navigate.to("/logout"))
