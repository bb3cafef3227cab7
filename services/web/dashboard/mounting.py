"""Puts the pages onto the app. Imported only where there is a web process: NiceGUI is heavy."""

from fastapi import FastAPI, Request
from fastapi.responses import Response
from nicegui import app as pages
from nicegui import ui
from starlette.routing import BaseRoute, Match, Mount

from services.errors import Unavailable
from services.web.dashboard import (
    contacts_page,
    execution_page,
    executions_page,
    login,
    overview_page,
    queues_page,
    replicas_page,
    scans_page,
    schedule_form,
    schedule_page,
    schedules_page,
    timeline_page,
    visitor,
)
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
    queues_page,
    contacts_page,
    replicas_page,
)
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
OF_PROGRAMS = ("/api/{rest:path}", "/healthz", "/readyz", "/metrics")


def mount_dashboard(app: FastAPI, parts: Parts) -> None:
    """After every route of the API: what none of them answers goes to the pages."""
    visitor.use(parts)
    pages.on_page_exception(_show_failure)
    for path in OF_PROGRAMS:
        app.add_route(path, _not_in_the_api, METHODS, include_in_schema=False)
    ui.run_with(app, mount_path="/", title="Enhanced Scheduler", dark=None, show_welcome_message=False)


def _show_failure(error: Exception) -> None:
    """Instead of NiceGUI's own page, which shows the exception: addresses and SQL are for the log."""
    styled("Not now")
    with ui.column().classes("es-page"), card():
        if isinstance(error, Unavailable):
            empty(
                f"{error.server} does not answer", "Nothing can be shown until it does. Replicas go on by themselves."
            )
        else:
            empty("This page cannot be shown", "The log of the web process says why.")


async def _not_in_the_api(request: Request) -> Response:
    """The pages would answer with a page, and never with 405."""
    if allowed := _allowed(request):
        raise HttpProblem(METHOD, f"this path has {', '.join(allowed)}", headers={"Allow": ", ".join(allowed)})
    raise not_found(request.url.path)


def _allowed(request: Request) -> list[str]:
    """The methods for which some route of the API has this path."""
    api = [route for route in request.app.routes if not isinstance(route, Mount) and not _is_ours(route)]
    scopes = {method: {**request.scope, "method": method} for method in METHODS}
    return [name for name, scope in scopes.items() if any(route.matches(scope)[0] is Match.FULL for route in api)]


def _is_ours(route: BaseRoute) -> bool:
    return getattr(route, "endpoint", None) is _not_in_the_api
