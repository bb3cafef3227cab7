"""Mounts the dashboard on the app. Imported only in a web process, because NiceGUI is heavy."""

from fastapi import FastAPI, Request
from fastapi.responses import Response
from nicegui import Client, ui
from nicegui import app as pages
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import Receive, Scope, Send

from services.web.dashboard import (
    contacts_page,
    delivery_page,
    execution_page,
    executions_page,
    limit_page,
    limits_page,
    login,
    notifications_page,
    overview_page,
    places_page,
    queues_page,
    replicas_page,
    scans_page,
    schedule_form,
    schedule_page,
    schedules_page,
    timeline_page,
    visitor,
)
from services.web.dashboard.door import PageDoor, guard_sockets
from services.web.dashboard.frame import styled
from services.web.dashboard.look import card, empty
from services.web.parts import Parts
from services.web.problems import METHOD, HttpProblem, not_found

# Importing a page registers it; schedule_form precedes schedule_page, which would take `new` for an id.
PAGES = (
    login,
    overview_page,
    schedules_page,
    schedule_form,
    schedule_page,
    executions_page,
    execution_page,
    limits_page,
    limit_page,
    notifications_page,
    delivery_page,
    timeline_page,
    scans_page,
    places_page,
    queues_page,
    contacts_page,
    replicas_page,
)
pages.add_middleware(PageDoor)
guard_sockets()

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
OF_PROGRAMS = ("/api/{rest:path}", "/healthz", "/readyz", "/metrics")


def mount_dashboard(app: FastAPI, parts: Parts) -> None:
    """Called after the routes of the API are added; the pages get every other path."""
    visitor.use(parts)
    pages.on_page_exception(_show_failure)
    pages.add_exception_handler(404, _show_no_such_page)
    for path in OF_PROGRAMS:
        app.router.routes.append(Route(path, _NotInTheApi(), include_in_schema=False))
    ui.run_with(app, mount_path="/", title="Enhanced Scheduler", dark=None, show_welcome_message=False)


def _show_failure() -> None:
    """Replaces NiceGUI's error page, which shows the exception; addresses and SQL belong in the log."""
    styled("Page unavailable")
    with ui.column().classes("es-page"), card():
        empty("This page could not be shown", "See the log of the web process.", ("Back to the overview", "/"))


async def _show_no_such_page(request: Request, error: Exception) -> Response:
    """A readable page for unknown paths; missing files of NiceGUI keep the plain 404."""
    if request.url.path.startswith("/_nicegui"):
        raise error
    with Client(ui.page(""), request=request) as client:
        styled("Page not found")
        with ui.column().classes("es-page"), card():
            empty("Page not found", "It may have moved, or the address has a typo.", ("Back to the overview", "/"))
    return client.build_response(request, 404)


class _NotInTheApi:
    """404 and 405 for paths of the API, which the pages would answer with HTML. An ASGI app, to get every method."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if allowed := _api_methods(request):
            raise HttpProblem(METHOD, f"this path allows {', '.join(allowed)}", headers={"Allow": ", ".join(allowed)})
        without = request.url.path.rstrip("/")
        if without != request.url.path and _api_methods(Request({**scope, "path": without})):
            raise not_found(f"{request.url.path}; did you mean {without}?")
        raise not_found(request.url.path)


def _api_methods(request: Request) -> list[str]:
    """The methods that the API supports for this path."""
    api = [route for route in request.app.routes if not isinstance(route, Mount) and not _is_ours(route)]
    scopes = {method: {**request.scope, "method": method} for method in METHODS}
    return [name for name, scope in scopes.items() if any(route.matches(scope)[0] is Match.FULL for route in api)]


def _is_ours(route: BaseRoute) -> bool:
    return isinstance(getattr(route, "endpoint", None), _NotInTheApi)
