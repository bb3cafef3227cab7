"""One limit: its keys, the executions that run and wait, its form and its changes."""

from dataclasses import dataclass
from functools import partial

from nicegui import ui

from services.errors import LimitNotFound
from services.insight.limits import KeyUse, LimitedExecution, LimitUse, LimitUses
from services.schedules.limits import LimitChanged, LimitRecord
from services.web.auth.roles import Role
from services.web.dashboard.frame import for_visitors, frame
from services.web.dashboard.limit_form import LimitForm
from services.web.dashboard.limits_page import running_words, state_of
from services.web.dashboard.live import Ages, Live, keep_fresh
from services.web.dashboard.look import ago, card, chip, clock, empty, fact, took
from services.web.dashboard.sure import is_sure
from services.web.dashboard.visitor import Visitor

REFRESH_SECONDS = 5.0
KEYS = 50


@dataclass(frozen=True, slots=True)
class Seen:
    record: LimitRecord
    use: LimitUse
    executions: list[LimitedExecution]
    changes: list[LimitChanged]


@for_visitors("/limits/{name:path}")
async def limit(visitor: Visitor, name: str) -> None:
    seen = await visitor.read(lambda: _look(visitor, name))
    with frame(visitor, "Limit", "/limits", about=name[:200]):
        if isinstance(seen, list):
            empty("Limit not found", way=("All limits", "/limits"))
            if seen:
                with card("Change history"):
                    _change_rows(visitor, seen)
            return
        page = _Page(visitor, seen)
        keep_fresh(REFRESH_SECONDS, page.refresh)


def _look(visitor: Visitor, name: str) -> Seen | list[LimitChanged]:
    """For a deleted limit, only its changes."""
    limits, uses = visitor.parts.schedule_limits, LimitUses(visitor.parts.db)
    changes = limits.changes(name)
    try:
        record = limits.find(name)
    except LimitNotFound:
        return changes
    use = uses.look().get(name, LimitUse())
    return Seen(record, use, uses.executions(key.key for key in use.keys[:KEYS]), changes)


class _Page:
    def __init__(self, visitor: Visitor, seen: Seen) -> None:
        self._visitor, self._name = visitor, seen.record.name
        with ui.row().classes("items-center gap-3 w-full"):
            self._head = Live(_build_head, (seen.record, seen.use), classes="grow")
            if visitor.may(Role.ADMIN):
                ui.button(icon="delete", on_click=self._ask_delete).props('flat round aria-label="Delete"')
        with ui.element("div").classes("es-grid"):
            with card("Runs now"):
                self._running = Live(self._build_executions, _those(seen, waiting=False))
            with card("Waits"):
                self._waiting = Live(self._build_executions, _those(seen, waiting=True))
        if seen.record.is_pattern:
            with card("Keys"):
                self._keys = Live(_build_keys, seen.use.keys)
        if visitor.may(Role.OPERATOR):
            with card("Change it"):
                LimitForm(visitor, seen.record, self._changed)
        with card("Change history"):
            self._changes = Live(lambda changes, _: _change_rows(visitor, changes), seen.changes)

    async def refresh(self) -> None:
        seen = await self._visitor.read(lambda: _look(self._visitor, self._name))
        if isinstance(seen, list):
            ui.navigate.reload()  # shows what is left of a deleted limit
            return
        self._head.show((seen.record, seen.use))
        self._running.show(_those(seen, waiting=False))
        self._waiting.show(_those(seen, waiting=True))
        if seen.record.is_pattern:
            self._keys.show(seen.use.keys)
        self._changes.show(seen.changes)

    def _build_executions(self, executions: list[LimitedExecution], ages: Ages) -> None:
        if not executions:
            ui.label("Nothing").classes("es-faint")
        for one in executions:
            with ui.row().classes("items-center gap-3 no-wrap w-full es-line"):
                chip(one.status, "waits" if one.status == "pending" else "")
                ui.link(one.label, f"/executions/{one.execution_id}").classes("ellipsis es-what")
                since = one.started_at or one.due_at
                ages.label(partial(ago, since)).classes("es-faint es-short")
                ui.label(one.key if one.status == "pending" else one.instance_id or "").classes("es-faint ellipsis")

    async def _changed(self, _: str) -> None:
        ui.notify("Saved. It applies from the next start on.", type="positive")
        await self.refresh()

    async def _ask_delete(self) -> None:
        db, limits = self._visitor.parts.db, self._visitor.parts.schedule_limits
        freed = await self._visitor.read(lambda: LimitUses(db).freed_without(limits.find(self._name)))
        with ui.context.client.content:
            effect = f"{freed.words}. Executions that wait for it start as soon as nothing else holds them back."
            if not await is_sure("limit", f"Delete {self._name}?", effect):
                return
            actor = self._visitor.identity.actor
            if await self._visitor.act(Role.ADMIN, lambda: limits.delete(self._name, actor)):
                ui.navigate.to("/limits")


def _those(seen: Seen, *, waiting: bool) -> list[LimitedExecution]:
    return [one for one in seen.executions if (one.status == "pending") is waiting]


def _build_head(shown: tuple[LimitRecord, LimitUse], ages: Ages) -> None:
    record, use = shown
    with ui.row().classes("items-center gap-3"):
        ui.label(record.name).classes("text-xl es-long")
        chip(*state_of(record, use))
        if record.note:
            ui.label(record.note).classes("es-long")
    with ui.element("dl").classes("es-facts"):
        fact("Running", running_words(record, use))
        fact("Waiting", use.waiting_words)
        if use.oldest_due_at is not None:
            with ui.element("dt"):
                ui.label("Oldest")
            with ui.element("dd"):
                ages.label(lambda: f"due {ago(use.oldest_due_at)}")


def _build_keys(keys: list[KeyUse], _: Ages) -> None:
    if not keys:
        ui.label("None of its keys is in use.").classes("es-faint")
    for key in keys[:KEYS]:
        with ui.row().classes("items-center gap-3 w-full es-line"):
            ui.label(key.key).classes("es-mono es-what")
            ui.label(f"{key.running} of {key.max_running} running").classes("es-short")
            waited = "" if key.oldest_seconds is None else f", oldest for {took(float(round(key.oldest_seconds)))}"
            ui.label(f"{key.waiting:,} waiting{waited}").classes("es-faint")
    if len(keys) > KEYS:
        ui.label(f"and {len(keys) - KEYS} more keys").classes("es-faint")


def _change_rows(visitor: Visitor, changes: list[LimitChanged]) -> None:
    for change in changes:
        with ui.row().classes("items-baseline gap-3 w-full"):
            ui.label(clock(visitor.local(change.changed_at))).classes("es-mono")
            ui.label(change.changed_by)
            ui.label(change.operation).classes("es-faint")
            for name, (before, after) in change.differences.items() if change.old and change.new else ():
                ui.label(f"{name}: {before!s} → {after!s}").classes("es-mono")
