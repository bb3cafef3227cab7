"""Puts the pages onto the app. Imported only where there is a web process: NiceGUI is heavy."""

from fastapi import FastAPI
from nicegui import ui

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

PAGES = (
    login,
    overview_page,
    schedules_page,
    schedule_form,  # before schedule_page: /schedules/new is not the id of one
    schedule_page,
    executions_page,
    execution_page,
    timeline_page,
    scans_page,
    queues_page,
    replicas_page,
)


def mount_dashboard(app: FastAPI, parts: Parts) -> None:
    """After every route of the API: what none of them answers goes to the pages."""
    visitor.use(parts)
    ui.run_with(app, mount_path="/", title="Enhanced Scheduler", dark=None, show_welcome_message=False)
