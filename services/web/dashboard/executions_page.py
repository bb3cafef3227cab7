"""The list of executions, filtered by status, cause, age and domain; the first page refreshes itself."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from nicegui import ui

from database.models import Cause, ExecutionStatus
from services.ledger.listing import ExecutionFilter, ExecutionPage, ExecutionRecord
from services.schedules.listing import ScheduleFilter
from services.web.dashboard import charts
from services.web.dashboard.list_page import ROWS, ListPage, list_at, text_of
from services.web.dashboard.look import NOTHING, clock, colour, took
from services.web.dashboard.tables import columns

SHOWN = columns(
    "status",
    "what",
    "scheduled",
    "late",
    "took",
    "attempt",
    "cause",
    "replica",
    "why",
    lead="what",
    right=("late", "took"),
    short=("scheduled", "replica"),
    wide=("why",),
)
WENT_WRONG = ",".join(charts.FAILURES)
STATUSES = {WENT_WRONG: "any failure", **{str(status): status.replace("_", " ") for status in ExecutionStatus}}
SPANS = {"1": "1 hour", "24": "24 hours", str(7 * 24): "7 days", str(30 * 24): "30 days"}


@list_at("/executions", "Executions")
class _Executions(ListPage[ExecutionPage]):
    columns = SHOWN
    chip = "status"
    linked = "what"
    empty = ("No executions match", "Every fire becomes an execution when it is due. The filters may hide some.")
    refresh_seconds = 3.0

    def build_filters(self, asked: Mapping[str, str]) -> None:
        self._schedule_id = asked.get("schedule")
        self._status = self.choice_filter("Status", STATUSES, asked.get("status"))
        self._cause = self.choice_filter("Cause", {str(cause): str(cause) for cause in Cause}, asked.get("cause"))
        self._since = self.choice_filter("Created within", SPANS, asked.get("within"))
        self._about = self.text_filter("Domain or name", asked.get("domain", ""), "w-64")
        if self._schedule_id:
            ui.link("Filtered by schedule; show all", "/executions")

    def look(self, cursor: str | None) -> ExecutionPage:
        return self.visitor.parts.history.list_executions(self._where(), ROWS, cursor)

    def _where(self) -> ExecutionFilter:
        about, schedule_id = text_of(self._about), self._schedule_id or None
        if about and not schedule_id:
            named = self.visitor.parts.repository.list_schedules(ScheduleFilter(name=about), limit=1).items
            about, schedule_id = (None, str(named[0].schedule_id)) if named else (about, None)
        return ExecutionFilter(
            schedule_id=schedule_id,
            domain=about,
            status=self._status.value,
            cause=self._cause.value,
            since=datetime.now(UTC) - timedelta(hours=int(self._since.value)) if self._since.value else None,
        )

    def row(self, record: ExecutionRecord) -> dict[str, Any]:
        late = None
        if record.started_at is not None and record.cause not in (Cause.MANUAL, Cause.BACKFILL):
            late = (record.started_at - (record.due_at or record.scheduled_for)).total_seconds()
        return {
            "id": str(record.execution_id),
            "address": f"/executions/{record.execution_id}",
            "colour": colour(record.status),
            "status": record.status.replace("_", " "),
            "what": name_of(record),
            "scheduled": clock(self.visitor.local(record.scheduled_for)),
            "late": NOTHING if late is None else took(max(0.0, late)),
            "took": took(record.duration_seconds),
            "attempt": record.attempt,
            "cause": record.cause,
            "replica": record.instance_id or NOTHING,
            "why": record.why[:160],
        }


def name_of(record: ExecutionRecord) -> str:
    return record.domain if record.job_id == str(record.schedule_id) else record.job_id
