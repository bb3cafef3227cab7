"""Puts the pages onto the app. Imported only where there is a web process: NiceGUI is heavy."""

from fastapi import FastAPI, Request
from fastapi.responses import Response
from nicegui import Client, ui
from nicegui import app as pages
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import Receive, Scope, Send

from services.web.dashboard import (
    contacts_page,
    execution_page,
    executions_page,
    login,
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

# Importing a page registers it; schedule_form comes before schedule_page, for which `new` would be an id.
PAGES = (
    login,
    overview_page,
    schedules_page,
    schedule_form,
    schedule_page,
    executions_page,
    execution_page,
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
    """After every route of the API: what none of them answers goes to the pages."""
    visitor.use(parts)
    pages.on_page_exception(_show_failure)
    pages.add_exception_handler(404, _show_no_such_page)
    for path in OF_PROGRAMS:
        app.router.routes.append(Route(path, _NotInTheApi(), include_in_schema=False))
    ui.run_with(app, mount_path="/", title="Enhanced Scheduler", dark=None, show_welcome_message=False)


def _show_failure() -> None:
    """Instead of NiceGUI's own page, which shows the exception: addresses and SQL are for the log."""
    styled("Not now")
    with ui.column().classes("es-page"), card():
        empty("This page cannot be shown", "The log of the web process says why.", ("To the overview", "/"))


async def _show_no_such_page(request: Request, error: Exception) -> Response:
    """Files of NiceGUI that do not exist are for a program; everything else is for somebody who is lost."""
    if request.url.path.startswith("/_nicegui"):
        raise error
    with Client(ui.page(""), request=request) as client:
        styled("No such page")
        with ui.column().classes("es-page"), card():
            empty("There is no such page", "It may have moved, or the address has a typo.", ("To the overview", "/"))
    return client.build_response(request, 404)


class _NotInTheApi:
    """The pages would answer with a page, and never with 405. An ASGI app, because a route of one has every method."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if allowed := _allowed(request):
            raise HttpProblem(METHOD, f"this path allows {', '.join(allowed)}", headers={"Allow": ", ".join(allowed)})
        without = request.url.path.rstrip("/")
        if without != request.url.path and _allowed(Request({**scope, "path": without})):
            raise not_found(f"{request.url.path}; did you mean {without}?")
        raise not_found(request.url.path)


def _allowed(request: Request) -> list[str]:
    """The methods for which some route of the API has this path."""
    api = [route for route in request.app.routes if not isinstance(route, Mount) and not _is_ours(route)]
    scopes = {method: {**request.scope, "method": method} for method in METHODS}
    return [name for name, scope in scopes.items() if any(route.matches(scope)[0] is Match.FULL for route in api)]


def _is_ours(route: BaseRoute) -> bool:
    return isinstance(getattr(route, "endpoint", None), _NotInTheApi)
