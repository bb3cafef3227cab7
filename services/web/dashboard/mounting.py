"""Puts the pages onto the app. Imported only where there is a web process: NiceGUI is heavy."""

from fastapi import FastAPI, Request
from fastapi.responses import Response
from nicegui import ui
from starlette.routing import BaseRoute, Match, Mount

from services.web.dashboard import (
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
    replicas_page,
)
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def mount_dashboard(app: FastAPI, parts: Parts) -> None:
    """After every route of the API: what none of them answers goes to the pages."""
    visitor.use(parts)
    app.add_route("/api/{rest:path}", _not_in_the_api, METHODS, include_in_schema=False)
    ui.run_with(app, mount_path="/", title="Enhanced Scheduler", dark=None, show_welcome_message=False)


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
