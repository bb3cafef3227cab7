"""The list of executions, filtered by status, cause, age and domain; the first page refreshes itself."""

from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from nicegui import ui

from database.models import Cause, ExecutionStatus
from services.errors import InvalidInput
from services.ledger.listing import ExecutionFilter, ExecutionPage, ExecutionRecord
from services.schedules.listing import ScheduleFilter
from services.web.dashboard import charts
from services.web.dashboard.frame import frame, shown_at
from services.web.dashboard.live import keep_fresh
from services.web.dashboard.look import NOTHING, card, clock, colour, nothing, took
from services.web.dashboard.tables import Pager, columns, fill, table
from services.web.dashboard.visitor import Visitor, admit

REFRESH_SECONDS = 3.0
ROWS = 50
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


@shown_at("/executions")
async def executions(request: Request) -> Response | None:
    visitor = await admit(request)
    if isinstance(visitor, Response):
        return visitor
    with frame(visitor, "Executions", "/executions"):
        page = _Page(visitor, dict(request.query_params))
        await page.refresh()
        keep_fresh(REFRESH_SECONDS, page.refresh_first)
    return None


class _Page:
    def __init__(self, visitor: Visitor, asked: dict[str, str]) -> None:
        self._visitor = visitor
        self._schedule_id = asked.get("schedule")
        with ui.row().classes("items-center gap-3 w-full es-filters"):
            self._status = _choice("Status", STATUSES, asked.get("status"), self._search)
            self._cause = _choice(
                "Cause", {str(cause): str(cause) for cause in Cause}, asked.get("cause"), self._search
            )
            self._since = _choice("Created within", SPANS, asked.get("within"), self._search)
            self._about = ui.input("Domain or name", value=asked.get("domain", ""), on_change=self._search)
            self._about.props('outlined dense clearable debounce="400"').classes("w-64")
            if self._schedule_id:
                ui.link("Filtered by schedule; show all", "/executions")
        with card():
            self._problem = ui.label().classes("es-bad")
            with ui.element("div").classes("es-wide"):
                self._table = table(SHOWN, chip="status", links={"what": "address"})
            self._nothing = nothing(
                "No executions match", "Every fire becomes an execution when it is due. The filters may hide some."
            )
            self._pager = Pager(self.refresh)

    async def refresh(self) -> None:
        history, cursor = self._visitor.parts.history, self._pager.cursor
        try:
            page = await self._visitor.read(lambda: history.list_executions(self._where(), ROWS, cursor))
            self._problem.text = ""
        except InvalidInput as error:
            page, self._problem.text = ExecutionPage([], None), str(error)
        fill(self._table, self._nothing, [_row(record, self._visitor) for record in page.items])
        self._pager.show(page.next_cursor)

    def _where(self) -> ExecutionFilter:
        about, schedule_id = (self._about.value or "").strip() or None, self._schedule_id or None
        if about and not schedule_id:
            named = self._visitor.parts.repository.list_schedules(ScheduleFilter(name=about), limit=1).items
            about, schedule_id = (None, str(named[0].schedule_id)) if named else (about, None)
        return ExecutionFilter(
            schedule_id=schedule_id,
            domain=about,
            status=self._status.value,
            cause=self._cause.value,
            since=datetime.now(UTC) - timedelta(hours=int(self._since.value)) if self._since.value else None,
        )

    async def refresh_first(self) -> None:
        """Older pages do not refresh while they are being read."""
        if self._pager.is_first:
            await self.refresh()

    async def _search(self) -> None:
        self._pager.restart()
        await self.refresh()


def _choice(name: str, options: dict[str, str], value: str | None, on_change: Any) -> ui.select:
    chosen = ui.select(
        options, label=name, value=value if value in options else None, clearable=True, on_change=on_change
    )
    return chosen.props("outlined dense").classes("w-40")


def _row(record: ExecutionRecord, visitor: Visitor) -> dict[str, Any]:
    late = None
    if record.started_at is not None and record.cause not in (Cause.MANUAL, Cause.BACKFILL):
        late = (record.started_at - (record.due_at or record.scheduled_for)).total_seconds()
    return {
        "id": str(record.execution_id),
        "address": f"/executions/{record.execution_id}",
        "colour": colour(record.status),
        "status": record.status.replace("_", " "),
        "what": name_of(record),
        "scheduled": clock(visitor.local(record.scheduled_for)),
        "late": NOTHING if late is None else took(max(0.0, late)),
        "took": took(record.duration_seconds),
        "attempt": record.attempt,
        "cause": record.cause,
        "replica": record.instance_id or NOTHING,
        "why": record.why[:160],
    }


def name_of(record: ExecutionRecord) -> str:
    return record.domain if record.job_id == str(record.schedule_id) else record.job_id
