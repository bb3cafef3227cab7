"""The list of executions, filtered by status, cause, age, domain, job type and tag; the first page refreshes itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from nicegui import ui

from database.models import Cause, ExecutionStatus
from services.insight.failures import Failures, FireCounts
from services.ledger.fate_sql import Fate
from services.ledger.listing import ExecutionFilter, ExecutionRecord
from services.schedules.listing import ScheduleFilter
from services.web.auth.roles import Role
from services.web.bulk import MOST, Bulk, Done, ExecutionAction
from services.web.dashboard import charts
from services.web.dashboard.list_page import ROWS, ListPage, list_at, text_of
from services.web.dashboard.look import NOTHING, clock, colour, took
from services.web.dashboard.selection import Act, Selection, Wish
from services.web.dashboard.tables import columns
from services.web.dashboard.visitor import Visitor
from services.wording.names import name_of

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
OUTCOMES = {
    Fate.FAILED: "failed for good",
    Fate.RECOVERED: "recovered by retry",
    Fate.RETRYING: "being retried",
}
MENDED: dict[str | None, str] = {Fate.FAILED: "", Fate.RECOVERED: ", recovered", Fate.RETRYING: ", retrying"}
ACTS = (
    Act(ExecutionAction.RETRY, "Retry", "retried", "replay"),
    Act(ExecutionAction.CANCEL, "Cancel", "cancelled", "stop", warning="What runs is asked to stop."),
)
USUAL_HOURS = 24  # of the counts, if no age is chosen
SPANS = {"1": "1 hour", "24": "24 hours", str(7 * 24): "7 days", str(30 * 24): "30 days"}


@dataclass(frozen=True, slots=True)
class Found:
    items: list[ExecutionRecord]
    next_cursor: str | None
    fates: dict[UUID, str | None]
    counts: FireCounts
    matching: int  # on all pages, or as many as one step does


@list_at("/executions", "Executions")
class _Executions(ListPage[Found]):
    columns = SHOWN
    chip = "status"
    linked = "what"
    empty = ("No executions match", "Every fire becomes an execution when it is due. The filters may hide some.")
    refresh_seconds = 3.0

    def __init__(self, visitor: Visitor, asked: Mapping[str, str]) -> None:
        super().__init__(visitor, asked)
        self._selection: Selection | None = None
        if visitor.may(Role.ADMIN):
            with self.above:
                self._selection = Selection(
                    visitor, self.table, "execution", ACTS, self._carry_out, self.refresh, is_capped=True
                )

    def build_filters(self, asked: Mapping[str, str]) -> None:
        self._schedule_id = asked.get("schedule")
        self._status = self.choice_filter("Status", STATUSES, asked.get("status"))
        outcomes = {str(fate): words for fate, words in OUTCOMES.items()}
        self._outcome = self.choice_filter("Outcome of the fire", outcomes, asked.get("outcome"), width="w-48")
        self._cause = self.choice_filter("Cause", {str(cause): str(cause) for cause in Cause}, asked.get("cause"))
        types, tags = self.visitor.parts.repository.words_in_use()
        self._type = self.choice_filter("Job type", {word: word for word in types}, asked.get("type"))
        self._tag = self.choice_filter("Tag", {word: word for word in tags}, asked.get("tag"), width="w-36")
        self._since = self.choice_filter("Created within", SPANS, asked.get("within"))
        self._about = self.text_filter("Domain or name", asked.get("domain", ""), "w-64")
        self._error = self.text_filter("Part of the error", asked.get("error", ""), "w-56")
        if self._schedule_id:
            ui.link("Filtered by schedule; show all", "/executions")

    def build_above(self) -> None:
        self._counts = ui.label().classes("es-faint")

    def look(self, cursor: str | None) -> Found:
        history, where = self.visitor.parts.history, self._where()
        page = history.list_executions(where, ROWS, cursor)
        matching = MOST if page.next_cursor else len(page.items)
        failures = Failures(self.visitor.parts.db)
        failed = [one.execution_id for one in page.items if one.status in charts.FAILURES]
        return Found(page.items, page.next_cursor, failures.fates(failed), self._count(failures), matching)

    def _count(self, failures: Failures) -> FireCounts:
        schedule_id = UUID(self._schedule_id) if self._schedule_id else None
        return failures.counts(self._hours, schedule_id)

    @property
    def _hours(self) -> int:
        return int(self._since.value or USUAL_HOURS)

    def show(self, found: Found | None) -> None:
        self._fates = found.fates if found else {}
        super().show(found)
        words = found.counts.words if found else ""
        which = "of this schedule" if self._schedule_id else "of all schedules"
        if self._selection:
            self._selection.show(found.matching if found else 0)
        self._counts.text = f"Fires {which} in the last {SPANS[str(self._hours)]}: {words or 'no failures'}."

    def _carry_out(self, wish: Wish) -> Done:
        parts = self.visitor.parts
        bulk = Bulk(parts.repository, parts.history, self.visitor.identity.actor)
        where = self._where() if wish.ids is None else ExecutionFilter(execution_ids=wish.ids)
        return bulk.executions(ExecutionAction(wish.act.action), where, dry_run=wish.dry_run)

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
            outcome=self._outcome.value,
            error=text_of(self._error),
            job_type=self._type.value,
            tag=self._tag.value,
            since=datetime.now(UTC) - timedelta(hours=int(self._since.value)) if self._since.value else None,
        )

    def row(self, record: ExecutionRecord) -> dict[str, Any]:
        late = None
        if record.started_at is not None and record.cause not in (Cause.MANUAL, Cause.BACKFILL):
            late = (record.started_at - (record.due_at or record.scheduled_for)).total_seconds()
        mended = MENDED.get(self._fates.get(record.execution_id, Fate.FAILED), ", then failed again")
        return {
            "id": str(record.execution_id),
            "address": f"/executions/{record.execution_id}",
            "colour": colour("skipped" if mended else record.status),
            "status": record.status.replace("_", " ") + mended,
            "what": name_of(record),
            "scheduled": clock(self.visitor.local(record.scheduled_for)),
            "late": NOTHING if late is None else took(max(0.0, late)),
            "took": took(record.duration_seconds),
            "attempt": record.attempt,
            "cause": record.cause,
            "replica": record.instance_id or NOTHING,
            "why": record.why[:160],
        }
