"""One execution: its timeline, attempts, error, log and result; cancel or retry it."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from nicegui import ui

from database.models import ExecutionStatus
from services.errors import ScheduleNotFound
from services.insight.limits import LimitUses, key_waited_for
from services.job_history import Retry
from services.ledger.limits_sql import MARK
from services.ledger.listing import ExecutionRecord
from services.ledger.log_following import REPORTED
from services.ledger.timeline import timeline
from services.web.auth.roles import Role
from services.web.bulk import WHY_NOT
from services.web.dashboard.execution_facts import Facts, build_facts, read_facts, without_askers
from services.web.dashboard.frame import for_visitors, frame
from services.web.dashboard.limits_page import address_of
from services.web.dashboard.live import Ages, Live, keep_fresh
from services.web.dashboard.live_log import LiveLog
from services.web.dashboard.look import card, chip, clock, empty, took
from services.web.dashboard.visitor import Visitor
from services.wording.durations import duration
from services.wording.names import name_of

REFRESH_SECONDS = 0.8  # lines are written once a second and must be here after two
CANCEL, RETRY = "Cancel", "Retry"
NOT_RUN = (ExecutionStatus.SKIPPED, ExecutionStatus.MISSED)


@for_visitors("/executions/{execution_id}")
async def execution(visitor: Visitor, execution_id: str) -> None:
    record = await visitor.read(lambda: _find(visitor, execution_id))
    with frame(visitor, "Execution", "/executions", about=name_of(record) if record else ""):
        if record is None:
            kept = visitor.parts.settings.history_retention_days
            empty("Execution not found", f"History is kept for {kept} days.", ("All executions", "/executions"))
            return
        page = _Page(visitor, record)
        await page.refresh()
        await page.refresh_live()
        keep_fresh(REFRESH_SECONDS, page.refresh_live)


def _find(visitor: Visitor, execution_id: str) -> ExecutionRecord | None:
    try:
        return visitor.parts.history.get_execution(UUID(execution_id))
    except ValueError:
        return None


class _Page:
    def __init__(self, visitor: Visitor, record: ExecutionRecord) -> None:
        self._visitor, self._record = visitor, record
        self._attempts: list[ExecutionRecord] = [record]
        self._sentences: list[str] = []
        self._facts = Facts(record, None, None, None)
        self._shown: tuple[ExecutionRecord, list[ExecutionRecord]] = (record, [])
        with ui.row().classes("items-center gap-3 w-full"):
            self._head()
            ui.space()
            self._button = Live(self._build_button, _next_action(record), classes="")
        with ui.row().classes("items-center gap-3"):
            self._waited, self._limit = ui.label(), Live(_build_limit, "", classes="")
        self._content()
        self._log = LiveLog(visitor, record.execution_id)

    async def refresh(self) -> None:
        history, execution_id = self._visitor.parts.history, self._record.execution_id
        found = await self._visitor.read(lambda: history.get_execution(execution_id))
        self._record = self._record if found is None else found  # retention may have deleted it
        attempts = await self._visitor.read(lambda: history.get_attempts(self._record))
        # One consistent read: otherwise the record could change a moment later and replace its buttons under a click.
        self._record = next((one for one in attempts if one.execution_id == execution_id), self._record)
        if (self._record, attempts) != self._shown:
            self._sentences = await self._visitor.read(lambda: _explanation(self._visitor, self._record))
            self._facts = await self._visitor.read(lambda: read_facts(self._visitor, self._record, attempts))
            self._attempts, self._shown = attempts, (self._record, attempts)
            self._head.refresh()
            self._button.show(_next_action(self._record))  # unchanged while it is pending and running
            self._content.refresh()
        else:
            self._ages.tick()
        await self._show_limit()

    async def _show_limit(self) -> None:
        """What it waits, or waited, for; told anew as long as it waits."""
        key = key_waited_for(self._record.reason, self._record.details)
        if key is not None:
            uses, record = LimitUses(self._visitor.parts.db), self._record
            words, limit = await self._visitor.read(lambda: _wait_in_words(uses, record, key))
            self._waited.text = words
            self._limit.show(limit)

    async def refresh_live(self) -> None:
        if not all(attempt.is_terminal for attempt in self._attempts):
            await self.refresh()
        await self._log.refresh(self._record)

    @ui.refreshable_method
    def _content(self) -> None:
        self._ages = Ages()
        with ui.element("div").classes("es-grid"):
            with ui.column().classes("gap-4"):
                build_facts(self._facts, self._ages)
                with card("Attempts"):
                    for attempt in self._attempts:
                        self._attempt(attempt)
            with card("Timeline"):
                self._moments()
        _error(self._record, self._sentences)
        _details(without_askers(self._record))

    @ui.refreshable_method
    def _head(self) -> None:
        record = self._record
        chip(record.status)
        if record.schedule_id:
            ui.link(name_of(record), f"/schedules/{record.schedule_id}").classes("text-lg es-long")
        else:
            ui.label(name_of(record)).classes("text-lg es-long")
        ui.label(f"{record.cause}, attempt {record.attempt}").classes("es-faint")
        if record.scan_id is not None:
            ui.link("scan result", f"/scans/{record.scan_id}")

    def _build_button(self, what: str, _: Ages) -> None:
        if not self._visitor.may(Role.OPERATOR):
            return
        if what == CANCEL:
            ui.button(CANCEL, icon="stop", on_click=self._cancel).props("outline no-caps color=negative")
        elif what == RETRY:
            ui.button(RETRY, icon="replay", on_click=self._retry).props("outline no-caps")

    def _moments(self) -> None:
        moments = timeline(self._record)
        with ui.element("div").classes("es-moments"):
            for before, moment in zip([None, *moments], moments, strict=False):
                gap = None if before is None else (moment.at - before.at).total_seconds()
                ui.label(clock(self._visitor.local(moment.at))).classes("es-mono")
                ui.label("" if gap is None else f"+{took(gap)}").classes("es-faint es-short text-right")
                ui.label(moment.text).classes("es-words")

    def _attempt(self, attempt: ExecutionRecord) -> None:
        with ui.row().classes("items-center gap-3"):
            chip(attempt.status)
            if attempt.execution_id == self._record.execution_id:
                ui.label(f"attempt {attempt.attempt} (this one)")
            else:
                ui.link(f"attempt {attempt.attempt}", f"/executions/{attempt.execution_id}")
            ui.label(took(attempt.duration_seconds)).classes("es-faint")
            ui.label(attempt.instance_id or "").classes("es-faint")

    async def _cancel(self) -> None:
        history, execution_id = self._visitor.parts.history, self._record.execution_id
        actor = self._visitor.identity.actor
        asked = await self._visitor.act(Role.OPERATOR, lambda: history.request_cancel(execution_id, actor))
        if asked is not None:
            ui.notify("Cancellation requested." if asked else "The execution has already ended.")
        await self.refresh()

    async def _retry(self) -> None:
        history, execution_id, actor = (
            self._visitor.parts.history,
            self._record.execution_id,
            self._visitor.identity.actor,
        )
        retry: Retry | None = await self._visitor.act(Role.OPERATOR, lambda: history.request_retry(execution_id, actor))
        if retry is None:
            return
        if retry.execution_id is None:
            ui.notify(f"The execution cannot be retried: {WHY_NOT.get(retry.outcome, retry.outcome)}.", type="warning")
            return
        ui.navigate.to(f"/executions/{retry.execution_id}")


def _next_action(record: ExecutionRecord) -> str:
    if not record.is_terminal:
        return CANCEL
    return RETRY if record.status != "success" and record.schedule_id is not None else ""


def _explanation(visitor: Visitor, record: ExecutionRecord) -> list[str]:
    """Why it did not run, in sentences; a code such as `overlap` is for programs."""
    if record.status not in NOT_RUN or record.schedule_id is None:
        return []
    try:
        return visitor.parts.explainer.explain(record.schedule_id, record.scheduled_for).sentences
    except ScheduleNotFound:
        return []


def _wait_in_words(uses: LimitUses, record: ExecutionRecord, key: str) -> tuple[str, str]:
    """The words, and the limit that counts for the key now."""
    found, due_at = uses.of_key(key), record.due_at or record.scheduled_for
    limit = found.limit if found else ""
    until = record.started_at or record.completed_at
    if until is not None:
        return f"waited {duration(round((until - due_at).total_seconds()))} for limit {key}", limit
    return f"waiting {uses.waits_in_words(key, (datetime.now(UTC) - due_at).total_seconds())}", limit


def _build_limit(limit: str, _: Ages) -> None:
    if limit:
        ui.link("Show the limit", address_of(limit))


def _error(record: ExecutionRecord, sentences: list[str]) -> None:
    if not record.error_message and not record.reason:
        return
    with card("Reason"):
        for sentence in sentences:
            ui.label(sentence)
        if record.error_message or not sentences:
            ui.label(record.why)
        details = dict(record.error_details or {})
        trace = details.pop("traceback", None)
        if trace:
            ui.label(str(trace)).classes("es-mono")
        _json(details)


def _details(record: ExecutionRecord) -> None:
    details = dict(record.details or {})
    result = details.pop("result", None)
    for elsewhere in (*REPORTED, MARK, "requested_by"):  # shown by the live log, the limit and the timeline
        details.pop(elsewhere, None)
    if result or details:
        with card("Result"):
            _json(result or {})
            _json(details)


def _json(value: Any) -> None:
    if value:
        ui.label(json.dumps(value, indent=2, ensure_ascii=False, default=str)).classes("es-mono")
