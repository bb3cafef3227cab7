"""One schedule: outcomes, durations, recent executions, change history, and why a fire did or did not run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from nicegui import ui

from services.errors import InvalidInput
from services.insight.failures import Failures, FireCounts
from services.insight.overview import Overview
from services.insight.windows import Window
from services.jobs.credentials import without_credentials
from services.ledger.listing import ExecutionFilter, ExecutionRecord
from services.schedules.batch import ScheduleRecord
from services.schedules.changes import Change
from services.web.auth.roles import Role
from services.web.dashboard import charts
from services.web.dashboard.frame import for_visitors, frame
from services.web.dashboard.live import Ages, Live, Once, keep_fresh
from services.web.dashboard.look import ago, card, chart, chip, clock, empty, fact, fire_words, redraw, took
from services.web.dashboard.schedule_form import CATCHUP, CATCHUPS, POLICIES, unset
from services.web.dashboard.schedules_page import describe, run_now, switch
from services.web.dashboard.sure import is_sure
from services.web.dashboard.visitor import Visitor
from services.web.dashboard.window_choice import remembered_window, window_choice
from services.wording.streaks import with_streak

REFRESH_SECONDS = 5.0
EXECUTIONS, CHANGES = 100, 20
MOST_DURATIONS = 500  # points of the chart


@dataclass(frozen=True, slots=True)
class Seen:
    record: ScheduleRecord
    executions: list[ExecutionRecord]
    changes: list[Change]
    days: dict[date, dict[str, int]]
    next_fires: list[datetime]
    window: Window
    counts: FireCounts
    durations: list[ExecutionRecord]


@for_visitors("/schedules/{schedule_id}")
async def schedule(visitor: Visitor, schedule_id: str) -> None:
    window = remembered_window(visitor)
    seen = await visitor.read(lambda: _look(visitor, schedule_id, window))
    if seen is None:
        await _show_what_is_left(visitor, schedule_id)
        return
    with frame(visitor, "Schedule", "/schedules", about=seen.record.label):
        page = _Page(visitor, seen)
        keep_fresh(REFRESH_SECONDS, page.refresh)


def _look(visitor: Visitor, schedule_id: str, window: Window) -> Seen | None:
    parts = visitor.parts
    try:
        record = parts.repository.get_schedule(UUID(schedule_id))
    except ValueError:
        return None
    if record is None:
        return None
    known = record.schedule_id
    lately = ExecutionFilter(schedule_id=known, since=datetime.now(UTC) - timedelta(hours=window.hours))
    return Seen(
        record=record,
        executions=parts.history.get_executions_by_schedule(known, EXECUTIONS),
        changes=parts.repository.get_changes(known, CHANGES),
        days=Overview(parts.db).calendar(known, record.timezone),
        next_fires=[] if record.invalid_reason or not record.enabled else parts.repository.preview(known, 5),
        window=window,
        counts=Failures(parts.db).counts(window.hours, known),
        durations=[one for one in parts.history.list_executions(lately, MOST_DURATIONS).items if one.started_at],
    )


async def _show_what_is_left(visitor: Visitor, schedule_id: str) -> None:
    """The page of a deleted schedule: its last definition, and who deleted it."""
    try:
        changes = await visitor.read(lambda: visitor.parts.repository.get_changes(schedule_id, CHANGES))
    except InvalidInput:
        changes = []
    last = _definition_of(changes)
    with frame(visitor, "Schedule", "/schedules", about=_label_of(last) or "not found"):
        if not changes:
            empty("Schedule not found", "Search for it in the list of schedules.", ("All schedules", "/schedules"))
            return
        with card("This schedule was deleted"):
            ui.label(_label_of(last)).classes("text-xl es-long")
            ui.label(f"{last.get('job_type', '?')} · {last.get('domain', '?')}").classes("es-faint es-long")
            ui.link("Its executions are still in the history", f"/executions?schedule={schedule_id}")
        with card("Change history"):
            _change_rows(visitor, changes)


def _definition_of(changes: list[Change]) -> Mapping[str, Any]:
    """Its last definition, from its newest change."""
    return next((known for change in changes if (known := change.old or change.new)), {})


def _label_of(definition: Mapping[str, Any]) -> str:
    return str(definition.get("name") or definition.get("domain") or "")


class _Page:
    def __init__(self, visitor: Visitor, seen: Seen) -> None:
        self._visitor, self._seen, self._once = visitor, seen, Once()
        self._window = seen.window
        with ui.row().classes("items-center gap-3 w-full"):
            self._head()
            ui.space()
            self._buttons = Live(self._build_buttons, seen.record.enabled, classes="es-actions")
        self._timing()
        with ui.element("div").classes("es-grid"):
            with card("Outcomes by day"):
                self._calendar = chart(self._calendar_options()).classes("h-40")
            with card("Durations"):
                window_choice(self._window, self._choose)
                self._durations()
        with ui.element("div").classes("es-grid"):
            with card("Why did it run, or not run?"):
                self._build_explain()
            with card("Next fires"):
                self._next()
        with card("Recent executions"):
            self._last()
        with card("Definition"):
            self._definition()
        with card("Change history"):
            self._changes()

    async def _choose(self, window: Window) -> None:
        self._window = window
        await self.refresh()

    async def refresh(self) -> None:
        schedule_id, window = str(self._seen.record.schedule_id), self._window
        seen = await self._visitor.read(lambda: _look(self._visitor, schedule_id, window))
        if window is not self._window:
            return  # another one was chosen meanwhile, whose own answer comes
        if seen is None:
            ui.navigate.reload()  # shows the page of a deleted schedule
            return
        if _is_same(seen, self._seen):
            self._ages.tick()
            return
        self._seen = seen
        redraw(self._calendar, self._calendar_options())
        self._buttons.show(seen.record.enabled)  # the same ones whatever else changes: a click must find its button
        for part in (
            self._head, self._timing, self._durations, self._next, self._last, self._definition, self._changes,
        ):  # fmt: skip
            part.refresh()

    def _calendar_options(self) -> dict[str, Any]:
        return charts.calendar(self._seen.days, datetime.now(self._visitor.zone).date())

    @ui.refreshable_method
    def _head(self) -> None:
        record = self._seen.record
        ui.label(record.label).classes("text-xl es-long")
        chip("success" if record.enabled else "pending", "enabled" if record.enabled else "disabled")
        if record.disabled_note:
            ui.label(record.disabled_note).classes("es-long")
        if record.invalid_reason:
            chip("timed_out", "parked")
        elif record.last_status:
            last = with_streak(record.last_status.replace("_", " "), record.failures_in_a_row)
            chip(record.last_status, f"last: {last}")
        until = record.backs_off_until
        if until is not None and until > datetime.now(UTC):
            ui.label(f"backs off: its fires before {clock(self._visitor.local(until))} are skipped").classes("es-warn")
        ui.label(f"{record.job_type} · {record.domain} · revision {record.revision}").classes("es-faint es-long")

    @ui.refreshable_method
    def _timing(self) -> None:
        record = self._seen.record
        ui.label(describe(record)).classes("es-bad" if record.invalid_reason else "")

    def _build_buttons(self, enabled: bool, _: Ages) -> None:
        if not self._visitor.may(Role.OPERATOR):
            return
        edit = f"/schedules/{self._seen.record.schedule_id}/edit"
        word, icon = ("Disable", "pause") if enabled else ("Enable", "play_circle")
        with ui.row().classes("gap-2"):
            ui.button("Run now", icon="play_arrow", on_click=self._run).props("unelevated no-caps")
            ui.button("Edit", icon="edit", on_click=lambda: ui.navigate.to(edit)).props("outline no-caps")
            ui.button(word, icon=icon, on_click=self._switch).props("outline no-caps")
            if self._visitor.may(Role.ADMIN):
                ui.button(icon="delete", on_click=self._ask_delete).props('flat round aria-label="Delete"')

    @ui.refreshable_method
    def _durations(self) -> None:
        ran = [one for one in self._seen.durations if one.duration_seconds is not None and one.started_at is not None]
        if not ran:
            empty(f"No finished executions in {self._window.words}", "Choose a wider window to see more.")
            return
        chart(
            charts.durations(
                [self._visitor.local(one.started_at) for one in ran if one.started_at],
                [one.duration_seconds or 0.0 for one in ran],
                [one.status for one in ran],
            )
        ).classes("h-44")

    @ui.refreshable_method
    def _next(self) -> None:
        if not self._seen.next_fires:
            empty("No upcoming fires", _why_never(self._seen.record))
        self._ages = Ages()
        for fire in self._seen.next_fires:
            words = fire_words(fire, ZoneInfo(self._seen.record.timezone), self._visitor.zone)
            self._ages.label(partial(_in_words, words, fire)).classes("es-mono")

    @ui.refreshable_method
    def _last(self) -> None:
        words, window = self._seen.counts.words or "no failures", self._window.words
        ui.label(f"Fires in {window}: {words}.").classes("es-faint")
        if not self._seen.executions:
            hint = "Its first fire is shown above." if self._seen.next_fires else "It runs only when started manually."
            empty("No executions yet", hint)
        for one in self._seen.executions[:15]:
            with ui.row().classes("items-center gap-3 no-wrap w-full es-line"):
                chip(one.status)
                ui.link(clock(self._visitor.local(one.scheduled_for)), f"/executions/{one.execution_id}").classes(
                    "es-short"
                )
                ui.label(took(one.duration_seconds)).classes("es-faint es-short")
                ui.label(one.instance_id or "").classes("es-faint es-short")
                ui.label(one.why).classes("ellipsis grow es-words")
        if len(self._seen.executions) > 15:
            ui.link("Show all", f"/executions?schedule={self._seen.record.schedule_id}")

    @ui.refreshable_method
    def _definition(self) -> None:
        record, settings = self._seen.record, self._visitor.parts.settings
        with ui.element("dl").classes("es-facts"):
            for name, label in POLICIES.items():
                value = getattr(record, name)
                fact(label, f"default: {unset(name, settings)}" if value is None else str(value))
            fact(CATCHUP, CATCHUPS[record.catchup] if record.catchup else f"default: {unset('catchup', settings)}")
            for name, at in (("Not before", record.start_at), ("Not after", record.end_at)):
                if at is not None:
                    fact(name, fire_words(at, ZoneInfo("UTC"), self._visitor.zone))
            fact("Queue", record.queue_name)
            if record.ping_url:
                fact("Pings", without_credentials(record.ping_url, "ping_url"))
            if record.requires:
                fact("Requires", ", ".join(record.requires))
            if record.limit_keys:
                fact("Limit keys", ", ".join(record.limit_keys))
            if record.tags:
                fact("Tags", ", ".join(record.tags))
        ui.label("Configuration").classes("es-faint")
        ui.label(_config_text(record.job_config)).classes("es-mono")

    @ui.refreshable_method
    def _changes(self) -> None:
        _change_rows(self._visitor, self._seen.changes)

    # --- explain ---

    def _build_explain(self) -> None:
        with ui.row().classes("items-center gap-2 w-full"):
            at = ui.input("Fire time (empty: latest fire)", placeholder="2027-01-31T02:00")
            at.props("outlined dense").classes("grow").on("keydown.enter", lambda: self._explain(at.value))
            ui.button("Explain", on_click=lambda: self._explain(at.value)).props("outline no-caps")
        ui.label(f"Times without an offset are in {self._seen.record.timezone}.").classes("es-faint")
        self._answer = ui.column().classes("gap-1").props('aria-live="polite"')

    async def _explain(self, text: str | None) -> None:
        explainer, schedule_id = self._visitor.parts.explainer, self._seen.record.schedule_id
        self._answer.clear()
        try:
            found = await self._visitor.read(lambda: explainer.explain_text(schedule_id, (text or "").strip() or None))
        except InvalidInput as error:
            with self._answer:
                ui.label(str(error)).classes("es-bad")
            return
        with self._answer:
            local = self._visitor.local(found.at)
            ui.label(f"{clock(local)} {local:%Z}: {found.verdict.replace('_', ' ')}").classes("text-lg")
            for sentence in found.sentences:
                ui.label(sentence)
            for one in found.executions:
                ui.link(f"attempt {one.attempt}: {one.status}", f"/executions/{one.execution_id}")

    # --- actions ---

    async def _run(self) -> None:
        await self._once.do(lambda: run_now(self._visitor, self._seen.record.schedule_id))

    async def _switch(self) -> None:
        record = self._seen.record
        await switch(self._visitor, record.schedule_id, record.label, enabled=not record.enabled)
        await self.refresh()

    async def _ask_delete(self) -> None:
        record = self._seen.record
        with ui.context.client.content:  # not in a part of the page that may be redrawn
            effect = "It will not fire again. Its history remains."
            if not await is_sure("schedule", f"Delete {record.label}?", effect):
                return
            repository, actor = self._visitor.parts.repository, self._visitor.identity.actor
            if await self._visitor.act(Role.ADMIN, lambda: repository.delete_schedule(record.schedule_id, actor=actor)):
                ui.navigate.to("/schedules")


def _in_words(words: str, fire: datetime) -> str:
    return f"{words}, {ago(fire)}"


def _why_never(record: ScheduleRecord) -> str:
    if record.invalid_reason:
        return "It is parked because it is invalid; the reason is shown above. It resumes when it is corrected."
    return "It has no fires left." if record.enabled else "It is disabled."


def _config_text(config: Mapping[str, Any]) -> str:
    """Without credentials, even for operators: the screen may be visible to others, and the form shows them."""
    return json.dumps(without_credentials(config), indent=2, ensure_ascii=False, default=str)


def _change_rows(visitor: Visitor, changes: list[Change]) -> None:
    for change in changes:
        with ui.row().classes("items-baseline gap-3 w-full"):
            ui.label(clock(visitor.local(change.changed_at))).classes("es-mono")
            ui.label(change.changed_by)
            ui.label(change.operation.lower()).classes("es-faint")
            for name, (old, new) in sorted(change.differences.items()) if change.old and change.new else ():
                before, after = without_credentials(old, name), without_credentials(new, name)
                ui.label(f"{name}: {before!s} → {after!s}").classes("es-mono")


def _is_same(new: Seen, old: Seen) -> bool:
    """Nothing to redraw."""
    known = (old.record, old.executions, old.changes, old.window, old.counts, old.durations)
    return (new.record, new.executions, new.changes, new.window, new.counts, new.durations) == known
