"""The list of schedules: search, filter, sort; enable, disable or run a schedule from its row."""

from typing import Any
from uuid import UUID

from fastapi import Request
from fastapi.responses import Response
from nicegui import events, ui

from services.errors import InvalidInput
from services.schedule_repository import Page
from services.schedules.batch import ScheduleRecord
from services.schedules.listing import ScheduleFilter
from services.schedules.spec import ScheduleFields
from services.web.auth.roles import Role
from services.web.dashboard.frame import frame, shown_at
from services.web.dashboard.live import Once, keep_fresh
from services.web.dashboard.look import NOTHING, ago, card, clock, colour, counted, nothing
from services.web.dashboard.tables import Pager, columns, fill, table
from services.web.dashboard.visitor import Visitor, admit

ROWS = 50
REFRESH_SECONDS = 5.0
SHOWN = columns(
    "enabled",
    "what",
    "last_status",
    "when",
    "next_run",
    "last_run",
    "job",
    "actions",
    lead="what",
    short=("next_run", "last_run"),
    wide=("when",),
)
ORDERS = {
    "domain": "domain",
    "name": "name",
    "next_run": "next run",
    "-last_run": "last run",
    "-updated_at": "last change",
    "-priority": "priority",
}
STATES = {"all": "all", "on": "enabled", "off": "disabled"}
STATUSES = ("success", "failed", "timed_out", "abandoned", "skipped", "missed", "invalid")

SWITCH_CELL = """<q-td :props="props" :data-label="props.col.label">
  <q-toggle dense :model-value="props.value" :disable="!props.row.may" :aria-label="'Enabled: ' + props.row.what"
            @update:model-value="on => $parent.$emit('switch', props.row.id, on, props.row.what)"/>
  <div v-if="props.row.note" class="ellipsis es-faint" style="max-width: 10rem" :title="props.row.note">
    {{ props.row.note }}
  </div>
</q-td>"""
RUN_CELL = """<q-td :props="props" :data-label="props.col.label">
  <q-btn flat round dense icon="play_arrow" :disable="!props.row.may" :aria-label="'Run ' + props.row.what + ' now'"
         @click="$parent.$emit('run', props.row.id)"><q-tooltip>Run now</q-tooltip></q-btn>
</q-td>"""


@shown_at("/schedules")
async def schedules(request: Request) -> Response | None:
    visitor = await admit(request)
    if isinstance(visitor, Response):
        return visitor
    with frame(visitor, "Schedules", "/schedules"):
        page = _Page(visitor, dict(request.query_params))
        await page.refresh()
        keep_fresh(REFRESH_SECONDS, page.refresh)
    return None


class _Page:
    def __init__(self, visitor: Visitor, asked: dict[str, str]) -> None:
        self._visitor, self._once = visitor, Once()
        self._build_filters(asked)
        with card():
            self._count = ui.label().classes("es-faint")
            self._problem = ui.label().classes("es-bad")
            with ui.element("div").classes("es-wide"):
                self._table = table(SHOWN, chip="last_status", links={"what": "address"})
                self._table.add_slot("body-cell-enabled", SWITCH_CELL)
                self._table.add_slot("body-cell-actions", RUN_CELL)
                self._table.on("switch", self._switch)
                self._table.on("run", self._run)
            self._nothing = nothing(
                "No schedules match",
                'Change the filters, or create one: "New schedule", or manage.py schedule add --help.',
            )
            with self._nothing:
                self._deleted = ui.link("", "").classes("es-deleted")
            self._pager = Pager(self.refresh)

    def _build_filters(self, asked: dict[str, str]) -> None:
        with ui.row().classes("items-center gap-3 w-full es-filters"):
            self._search = ui.input("Search", value=asked.get("search", ""), on_change=self._ask_again)
            self._search.props('outlined dense clearable debounce="300"').classes("w-64")
            self._state = ui.select(STATES, label="State", value="all", on_change=self._ask_again)
            self._state.props("outlined dense").classes("w-36")
            states = {status: _word(status) for status in STATUSES}
            chosen = asked.get("last") if asked.get("last") in states else None
            self._last = ui.select(states, label="Last status", value=chosen, clearable=True, on_change=self._ask_again)
            self._last.props("outlined dense").classes("w-44")
            order = asked.get("order") if asked.get("order") in ORDERS else "domain"
            self._order = ui.select(ORDERS, label="Sort by", value=order, on_change=self._ask_again)
            self._order.props("outlined dense").classes("w-44")
            ui.space()
            if self._visitor.may(Role.OPERATOR):
                new = ui.button("New schedule", icon="add", on_click=lambda: ui.navigate.to("/schedules/new"))
                new.props("unelevated no-caps")

    async def refresh(self) -> None:
        where = ScheduleFilter(
            search=(self._search.value or "").strip() or None,
            enabled={"on": True, "off": False}.get(self._state.value),
            last_status=self._last.value,
        )
        order, cursor = self._order.value, self._pager.cursor
        repository = self._visitor.parts.repository

        def look() -> tuple[Page, int, UUID | None]:
            page = repository.list_schedules(where, sort=order, limit=ROWS, cursor=cursor)
            gone = repository.find_deleted(where.search) if where.search and not page.items else None
            return page, repository.count_schedules(where), gone

        try:
            (page, total, gone), self._problem.text = await self._visitor.read(look), ""
        except InvalidInput as error:
            (page, total, gone), self._problem.text = (Page([], None), 0, None), str(error)
        self._show_deleted(where.search or "", gone)
        self._count.text = counted(total, "schedule")
        fill(self._table, self._nothing, [self._row(record) for record in page.items])
        self._pager.show(page.next_cursor)

    def _show_deleted(self, name: str, schedule_id: UUID | None) -> None:
        self._deleted.set_visibility(schedule_id is not None)
        self._deleted.text = f"{name} was deleted: show its last definition and who deleted it"
        self._deleted.props(f'href="/schedules/{schedule_id}"')

    async def _ask_again(self) -> None:
        self._pager.restart()
        await self.refresh()

    def _row(self, record: ScheduleRecord) -> dict[str, Any]:
        status = "invalid" if record.invalid_reason else record.last_status or "never ran"
        return {
            "id": str(record.schedule_id),
            "address": f"/schedules/{record.schedule_id}",
            "may": self._visitor.may(Role.OPERATOR),
            "enabled": record.enabled,
            "note": record.disabled_note,
            "what": record.label,
            "job": record.job_type,
            "when": describe(record),
            "next_run": NOTHING if record.next_run is None else clock(self._visitor.local(record.next_run)),
            "last_run": ago(record.last_run),
            "last_status": _word(status),
            "colour": colour("timed_out" if status == "invalid" else status),
        }

    async def _switch(self, event: events.GenericEventArguments) -> None:
        schedule_id, enabled, label = event.args
        await switch(self._visitor, UUID(schedule_id), str(label), enabled=bool(enabled))
        await self.refresh()

    async def _run(self, event: events.GenericEventArguments) -> None:
        await self._once.do(lambda: run_now(self._visitor, UUID(event.args)))


def _word(status: str) -> str:
    """The pages call an invalid schedule parked."""
    return "parked" if status == "invalid" else status.replace("_", " ")


async def run_now(visitor: Visitor, schedule_id: UUID) -> bool:
    """Returns whether the run was requested, so that the page is left for that of the execution."""
    history, actor = visitor.parts.history, visitor.identity.actor
    execution_id = await visitor.act(Role.OPERATOR, lambda: history.request_run(schedule_id, actor))
    if execution_id is None:
        return False
    ui.navigate.to(f"/executions/{execution_id}")
    return True


async def switch(visitor: Visitor, schedule_id: UUID, label: str, *, enabled: bool) -> None:
    """Enables at once; asks for an optional reason before disabling."""
    change: ScheduleFields = {"enabled": enabled}
    with ui.context.client.content:  # not in a part of the page that may be redrawn
        if not enabled:
            note = await _ask_why(label)
            if note is None:
                return
            change["disabled_note"] = note
        repository, actor = visitor.parts.repository, visitor.identity.actor
        await visitor.act(Role.OPERATOR, lambda: repository.update_schedule(schedule_id, actor=actor, **change))


async def _ask_why(label: str) -> str | None:
    """None if the user cancels."""
    with ui.dialog() as dialog, ui.card():
        ui.label(f"Disable {label}?").classes("text-lg es-long")
        why = ui.input("Reason (optional)").props("outlined dense autofocus maxlength=500").classes("w-72")
        why.on("keydown.enter", lambda: dialog.submit(why.value or ""))
        with ui.row():
            off = ui.button("Disable", on_click=lambda: dialog.submit(why.value or ""))
            off.props("unelevated no-caps")
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
    note: str | None = await dialog
    dialog.delete()
    return note


def describe(record: ScheduleRecord) -> str:
    """The timing in words, or the reason why the schedule is parked."""
    return record.invalid_reason or record.trigger.describe()
