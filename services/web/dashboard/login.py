"""The login page, which exchanges a token for a session cookie, and /logout, which ends the session."""

import json

from fastapi import Request
from nicegui import ui

from services.web.dashboard.frame import shown_at, styled
from services.web.dashboard.visitor import safe_path
from services.wording.commands import as_called_here

# The cookie is HttpOnly: only a response of the API can set it, so the browser itself sends the request.
LOG_IN = """
const answer = await fetch('/api/v3/session', {{method: 'POST', headers: {{'Content-Type': 'application/json'}},
                                                body: JSON.stringify({{token: {token}}})}});
if (answer.ok) return '';
const problem = await answer.json().catch(() => ({{}}));
return problem.detail || problem.title || ('the server responded with ' + answer.status);
"""
LOG_OUT = "await fetch('/api/v3/session', {method: 'DELETE'})"


@shown_at("/login")
async def login(request: Request) -> None:
    styled("Log in")
    back_to = safe_path(request.query_params.get("to", "/"))

    async def log_in() -> None:
        problem = await ui.run_javascript(LOG_IN.format(token=json.dumps((token.value or "").strip())), timeout=15)
        if problem:
            token.props(f'error error-message="{_attribute(str(problem))}"')
        else:
            ui.navigate.to(back_to)

    with ui.column().classes("es-card es-login"):
        ui.label("Enhanced Scheduler").classes("es-title").props('role="heading" aria-level="1"')
        token = ui.input("Token", password=True, password_toggle_button=True).classes("w-full")
        token.props('autofocus outlined autocomplete="current-password"').on("keydown.enter", log_in)
        ui.button("Log in", on_click=log_in).props("unelevated no-caps").classes("w-full")
        ui.label("Create a token:").classes("es-faint")
        ui.label(as_called_here("python manage.py token create --name me --role operator")).classes("es-mono es-faint")
        ui.label(as_called_here("With no token configured, `manage.py web` prints one at startup.")).classes("es-faint")


@shown_at("/logout")
async def logout() -> None:
    styled("Log out")
    ui.label("Logging out …").classes("es-page")

    async def leave() -> None:
        await ui.run_javascript(LOG_OUT, timeout=15)
        ui.navigate.to("/login")

    ui.timer(0.05, leave, once=True)


def _attribute(text: str) -> str:
    return text.replace('"', "'")
