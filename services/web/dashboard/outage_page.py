"""The outage page: replaces any page with a 503 while Postgres does not answer, and reloads when it is back.

Plain HTML without NiceGUI: visitors cannot be authenticated now, so the page has no socket and shows only the outage
and the navigation.
"""

from collections.abc import Callable
from functools import wraps
from html import escape
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from nicegui import ui
from sqlalchemy.exc import DBAPIError

from services.errors import Unavailable
from services.web.dashboard import outage
from services.web.dashboard.places import PLACES, STYLE
from services.web.dashboard.visitor import zone_of
from services.wording.commands import as_called_here
from services.wording.refusals import refusal

RETRY_SECONDS = 3
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{headline} · Enhanced Scheduler</title>
<style>{style}
* {{ box-sizing: border-box; }}
body {{ margin: 0; font-family: Roboto, system-ui, sans-serif; }}
.es-bar {{ display: flex; flex-wrap: wrap; }} .es-nav {{ display: flex; flex-wrap: wrap; }}
</style>
<script>
const theme = localStorage.getItem("es-theme");
const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
addEventListener("DOMContentLoaded", () => document.body.classList.toggle("body--dark", dark));
const look = async () => {{
  try {{
    if ((await fetch(location.href)).status !== 503) return location.reload();
  }} catch {{ /* the web process does not answer either */ }}
  setTimeout(look, {retry_ms});
}};
setTimeout(look, {retry_ms});
</script>
</head>
<body>
<header class="es-bar"><a class="es-brand" href="/">Enhanced Scheduler</a>
<nav class="es-nav" aria-label="Pages">{links}</nav></header>
<main class="es-page"><div class="es-card es-alert" role="alert">
<h1 class="es-title">{headline}</h1>
<p>{meaning}</p>
<p class="es-faint">This page reloads automatically when Postgres answers again.
To diagnose: <span class="es-mono">{doctor}</span></p>
</div></main>
</body>
</html>
"""


def instead_of(build: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the page, or the outage page while Postgres does not answer."""

    @wraps(build)
    async def built(*arguments: Any, **more: Any) -> Response | None:
        try:
            shown: Response | None = await build(*arguments, **more)
            return shown
        except Unavailable as error:
            return outage_page(ui.context.client.request, error)
        except DBAPIError as error:
            if refusal(error) is None:
                raise
            return outage_page(ui.context.client.request, error)

    return built


def outage_page(request: Request, error: Exception) -> HTMLResponse:
    headers = {"Retry-After": str(RETRY_SECONDS), "Cache-Control": "no-store"}
    content = PAGE.format(
        headline=escape(outage.headline(error, zone_of(request))),
        meaning=escape(outage.MEANING),
        style=STYLE,
        links=" ".join(_link(place.path, place.title, request.url.path) for place in PLACES if not place.of_workflows),
        retry_ms=1000 * RETRY_SECONDS,
        doctor=as_called_here("python manage.py doctor"),
    )
    return HTMLResponse(content, 503, headers)


def _link(path: str, title: str, here: str) -> str:
    mark = ' es-here" aria-current="page' if path == here else ""
    return f'<a class="es-link{mark}" href="{path}">{title}</a>'
