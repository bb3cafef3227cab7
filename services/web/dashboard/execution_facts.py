"""An execution at a glance: how long so far and how long usually, the next attempt, the configuration it used."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median
from typing import Any

from nicegui import ui

from services.jobs.credentials import without_credentials
from services.ledger.listing import ExecutionRecord
from services.web.dashboard.live import Ages
from services.web.dashboard.look import ago, card, fact, took
from services.web.dashboard.visitor import Visitor

FORMER = 50  # executions from which the usual duration is taken
CHANGES = 100
CANCELLED_BY = "cancel_requested_by"


@dataclass(frozen=True, slots=True)
class Facts:
    record: ExecutionRecord
    usual_seconds: float | None  # the median of former successes
    next_attempt: tuple[int, datetime] | None
    config: Mapping[str, Any] | None


def read_facts(visitor: Visitor, record: ExecutionRecord, attempts: list[ExecutionRecord]) -> Facts:
    # What waits for a limit says so above.
    waiting = [one for one in attempts if one.status == "pending" and one.due_at is not None and one.reason is None]
    next_attempt = (waiting[-1].attempt, waiting[-1].due_at) if waiting and waiting[-1].due_at else None
    return Facts(record, _usual(visitor, record), next_attempt, _config(visitor, record))


def _usual(visitor: Visitor, record: ExecutionRecord) -> float | None:
    if record.schedule_id is None:
        return None
    former = visitor.parts.history.get_executions_by_schedule(record.schedule_id, FORMER)
    took = [
        one.duration_seconds
        for one in former
        if one.status == "success" and one.duration_seconds is not None and one.execution_id != record.execution_id
    ]
    return median(took) if took else None


def _config(visitor: Visitor, record: ExecutionRecord) -> Mapping[str, Any] | None:
    """That of the schedule when the execution began, from the change log; None if it is no longer known."""
    if record.schedule_id is None:
        return None
    at = record.started_at or record.completed_at or record.created_at
    for change in visitor.parts.repository.get_changes(record.schedule_id, CHANGES):
        if change.changed_at <= at and change.new is not None:
            known = change.new.get("job_config")
            return known if isinstance(known, Mapping) else None
    return None


def build_facts(facts: Facts, ages: Ages) -> None:
    record = facts.record
    with card("At a glance"):
        if record.cancel_requested_at is not None and not record.is_terminal:
            asker = (record.details or {}).get(CANCELLED_BY)
            by = f" (asked by {asker})" if asker else ""
            ui.label(f"Cancelling \N{HORIZONTAL ELLIPSIS}{by}").classes("es-warn")
        with ui.element("dl").classes("es-facts"):
            _durations(facts, ages)
            if facts.next_attempt is not None:
                number, due_at = facts.next_attempt
                with ui.element("dt"):
                    ui.label(f"Attempt {number}")
                with ui.element("dd"):
                    ages.label(lambda: _when(due_at))
            with ui.element("dt"):
                ui.label("Id")
            with ui.element("dd"), ui.row().classes("items-center gap-2"):
                ui.label(str(record.execution_id)).classes("es-mono")
                ui.button("Copy", icon="content_copy", on_click=lambda: _copy(str(record.execution_id))).props(
                    'flat dense no-caps size=sm aria-label="Copy the id"'
                )
        if facts.config is not None:
            with ui.element("details"):
                with ui.element("summary"):
                    ui.label("Configuration used").classes("inline")
                shown = without_credentials(facts.config)
                ui.label(json.dumps(shown, indent=2, ensure_ascii=False, default=str)).classes("es-mono")


def _durations(facts: Facts, ages: Ages) -> None:
    record, usual = facts.record, facts.usual_seconds
    if record.duration_seconds is not None:
        fact("Took", took(record.duration_seconds))
    elif record.started_at is not None and not record.is_terminal:
        started_at = record.started_at
        with ui.element("dt"):
            ui.label("Elapsed")
        with ui.element("dd"):
            ages.label(lambda: took(_since(started_at)))
        if usual is not None:
            with ui.element("dt"):
                ui.label("Time left")
            with ui.element("dd"):
                ages.label(lambda: time_left(usual, _since(started_at)))
    if usual is not None:
        fact("Usually takes", took(usual))


def time_left(usual_seconds: float, elapsed_seconds: float) -> str:
    if elapsed_seconds < usual_seconds:
        return f"about {took(usual_seconds - elapsed_seconds)}"
    return f"longer than usual, by {took(elapsed_seconds - usual_seconds)}"


def without_askers(record: ExecutionRecord) -> ExecutionRecord:
    """The timeline and the facts name them."""
    return replace(record, details={key: value for key, value in (record.details or {}).items() if key != CANCELLED_BY})


def _since(at: datetime) -> float:
    return max(0.0, (datetime.now(UTC) - at).total_seconds())


def _when(due_at: datetime) -> str:
    return ago(due_at) if due_at > datetime.now(UTC) else "as soon as a worker is free"


def _copy(text: str) -> None:
    ui.clipboard.write(text)
    ui.notify("Copied", type="positive")
