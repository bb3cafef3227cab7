"""The list of schedules: search, filter, sort; enable, disable or run a schedule from its row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from nicegui import events, ui

from services.schedules.batch import ScheduleRecord
from services.schedules.field_rules import NOTE
from services.schedules.listing import ScheduleFilter
from services.schedules.spec import ScheduleFields
from services.web.auth.roles import Role
from services.web.bulk import Bulk, Done, ScheduleAction
from services.web.dashboard.list_page import ROWS, ListPage, list_at, text_of
from services.web.dashboard.live import Once
from services.web.dashboard.look import NOTHING, ago, clock, colour
from services.web.dashboard.selection import Act, Selection, Wish
from services.web.dashboard.tables import columns
from services.web.dashboard.visitor import Visitor
from services.wording.commands import as_called_here
from services.wording.counts import counted
from services.wording.streaks import with_streak

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
    orders={"what": "name", "next_run": "next_run", "last_run": "-last_run"},
)
ACTS = (
    Act(ScheduleAction.RUN, "Run", "run", "play_arrow"),
    Act(ScheduleAction.ENABLE, "Enable", "enabled", "play_circle"),
    Act(ScheduleAction.DISABLE, "Disable", "disabled", "pause", asks_why=True),
    Act(ScheduleAction.DELETE, "Delete", "deleted", "delete", warning="They never fire again. Their history remains."),
)
ORDERS = {
    "domain": "domain",
    "name": "name",
    "-name": "name, descending",
    "next_run": "next run",
    "-next_run": "next run, latest first",
    "-last_run": "last run",
    "last_run": "last run, oldest first",
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


@dataclass(frozen=True, slots=True)
class Found:
    items: list[ScheduleRecord]
    next_cursor: str | None
    total: int
    search: str | None
    deleted: UUID | None  # the deleted schedule that had the searched name


@list_at("/schedules", "Schedules")
class _Schedules(ListPage[Found]):
    columns = SHOWN
    chip = "last_status"
    linked = "what"
    empty = (
        "No schedules match",
        as_called_here('Change the filters, or create one: "New schedule", or manage.py schedule add --help.'),
    )
    refreshes_all = True

    def __init__(self, visitor: Visitor, asked: Mapping[str, str]) -> None:
        super().__init__(visitor, asked)
        self._once = Once()
        self._selection: Selection | None = None
        with self.card:
            self._count = ui.label().classes("es-faint")
            self._count.move(target_index=0)
        with self.above:
            if visitor.may(Role.ADMIN):
                self._selection = Selection(visitor, self.table, "schedule", ACTS, self._carry_out, self.refresh)
        self.order_by_headings(self._order)
        with self.nothing:
            self._deleted = ui.link("", "").classes("es-deleted")
        self.table.add_slot("body-cell-enabled", SWITCH_CELL)
        self.table.add_slot("body-cell-actions", RUN_CELL)
        self.table.on("switch", self._switch)
        self.table.on("run", self._run)

    def build_filters(self, asked: Mapping[str, str]) -> None:
        states = {status: _word(status) for status in STATUSES}
        self._search = self.text_filter("Search", asked.get("search", ""), "w-64")
        types, tags = self.visitor.parts.repository.words_in_use()
        self._type = self.choice_filter("Job type", {word: word for word in types}, asked.get("type"))
        self._tag = self.choice_filter("Tag", {word: word for word in tags}, asked.get("tag"), width="w-36")
        self._state = self.choice_filter("State", STATES, usual="all", width="w-36")
        self._last = self.choice_filter("Last status", states, asked.get("last"), width="w-44")
        self._order = self.choice_filter("Sort by", ORDERS, asked.get("order"), usual="domain", width="w-44")
        ui.space()
        if self.visitor.may(Role.OPERATOR):
            new = ui.button("New schedule", icon="add", on_click=lambda: ui.navigate.to("/schedules/new"))
            new.props("unelevated no-caps")

    def look(self, cursor: str | None) -> Found:
        repository, where = self.visitor.parts.repository, self._where()
        page = repository.list_schedules(where, sort=self._order.value, limit=ROWS, cursor=cursor)
        deleted = repository.find_deleted(where.search) if where.search and not page.items else None
        return Found(page.items, page.next_cursor, repository.count_schedules(where), where.search, deleted)

    def _where(self) -> ScheduleFilter:
        return ScheduleFilter(
            search=text_of(self._search),
            job_type=self._type.value,
            tag=self._tag.value,
            enabled={"on": True, "off": False}.get(self._state.value),
            last_status=self._last.value,
        )

    def _carry_out(self, wish: Wish) -> Done:
        parts = self.visitor.parts
        bulk = Bulk(parts.repository, parts.history, self.visitor.identity.actor)
        return bulk.all_schedules(
            ScheduleAction(wish.act.action),
            self._where() if wish.ids is None else ScheduleFilter(schedule_ids=wish.ids),
            note=wish.note,
            dry_run=wish.dry_run,
            expected=wish.expected,
        )

    def show(self, found: Found | None) -> None:
        super().show(found)
        self._count.text = counted(found.total if found else 0, "schedule")
        if self._selection:
            self._selection.show(found.total if found else 0)
        name, schedule_id = (found.search, found.deleted) if found else (None, None)
        self._deleted.set_visibility(schedule_id is not None)
        self._deleted.text = f"{name} was deleted: show its last definition and who deleted it"
        self._deleted.props(f'href="/schedules/{schedule_id}"')

    def row(self, record: ScheduleRecord) -> dict[str, Any]:
        status = "invalid" if record.invalid_reason else record.last_status or "never ran"
        return {
            "id": str(record.schedule_id),
            "address": f"/schedules/{record.schedule_id}",
            "may": self.visitor.may(Role.OPERATOR),
            "enabled": record.enabled,
            "note": record.disabled_note,
            "what": record.label,
            "job": record.job_type,
            "when": describe(record),
            "next_run": NOTHING if record.next_run is None else clock(self.visitor.local(record.next_run)),
            "last_run": ago(record.last_run),
            "last_status": with_streak(_word(status), record.failures_in_a_row),
            "colour": colour("timed_out" if status == "invalid" else status),
        }

    async def _switch(self, event: events.GenericEventArguments) -> None:
        schedule_id, enabled, label = event.args
        await switch(self.visitor, UUID(schedule_id), str(label), enabled=bool(enabled))
        await self.refresh()

    async def _run(self, event: events.GenericEventArguments) -> None:
        await self._once.do(lambda: run_now(self.visitor, UUID(event.args)))


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
        why = ui.input("Reason (optional)").props(f"outlined dense autofocus maxlength={NOTE.longest}").classes("w-72")
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
