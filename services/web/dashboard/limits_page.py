"""Limits across schedules: running and waiting executions of each, and a form for a new one."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from nicegui import ui

from services.insight.limits import LimitUse, LimitUses
from services.schedules.limits import LimitRecord
from services.web.auth.roles import Role
from services.web.dashboard.limit_form import LimitForm
from services.web.dashboard.list_page import ROWS, ListPage, list_at
from services.web.dashboard.look import NOTHING, card, colour, took
from services.web.dashboard.tables import columns
from services.web.dashboard.visitor import Visitor

COUNT_AGAIN_SECONDS = 60.0  # the schedules; all of them are read for it


@dataclass(frozen=True, slots=True)
class Shown:
    record: LimitRecord
    use: LimitUse
    schedules: int


@dataclass(frozen=True, slots=True)
class ShownPage:
    items: list[Shown]
    next_cursor: str | None


@list_at("/limits", "Limits")
class _Limits(ListPage[ShownPage]):
    columns = columns(
        "limit", "state", "running", "waiting", "oldest_wait", "schedules", "note",
        lead="limit", right=("running", "waiting", "oldest_wait", "schedules"), wide=("note",),
    )  # fmt: skip
    chip = "state"
    linked = "limit"
    empty = (
        "No limits yet",
        "Give schedules a key such as customer:42, and limit here how many of their executions run at once.",
    )
    refreshes_all = True

    def __init__(self, visitor: Visitor, asked: Mapping[str, str]) -> None:
        self._schedules: dict[str, int] = {}
        self._counted_at = float("-inf")
        super().__init__(visitor, asked)
        if visitor.may(Role.OPERATOR):
            with card("New limit"):
                LimitForm(visitor, None, self._added)

    def build_filters(self, _: Mapping[str, str]) -> None:
        words = "At most this many executions with the same key run at once, across all replicas; the others wait."
        ui.label(words).classes("es-faint")

    def look(self, cursor: str | None) -> ShownPage:
        parts = self.visitor.parts
        page, uses = parts.schedule_limits.page(limit=ROWS, cursor=cursor), LimitUses(parts.db)
        found = uses.look()
        if time.monotonic() - self._counted_at > COUNT_AGAIN_SECONDS:
            self._schedules, self._counted_at = uses.schedules(), time.monotonic()
        items = [
            Shown(record, found.get(record.name, LimitUse()), self._schedules.get(record.name, 0))
            for record in page.items
        ]
        return ShownPage(items, page.next_cursor)

    def row(self, shown: Shown) -> dict[str, Any]:
        record, use = shown.record, shown.use
        status, word = state_of(record, use)
        return {
            "id": record.name,
            "address": address_of(record.name),
            "limit": record.name,
            "colour": colour(status),
            "state": word,
            "running": running_words(record, use),
            "waiting": use.waiting_words,
            "oldest_wait": NOTHING if use.oldest_seconds is None else took(float(round(use.oldest_seconds))),
            "schedules": f"{shown.schedules:,}",
            "note": record.note or "",
        }

    async def _added(self, name: str) -> None:
        ui.navigate.to(address_of(name))


def address_of(name: str) -> str:
    return f"/limits/{quote(name)}"


def state_of(record: LimitRecord, use: LimitUse) -> tuple[str, str]:
    """The status whose colour it has, and its word."""
    if not record.enabled:
        return "pending", "disabled"
    if record.stops:
        return "failed", "stopped"
    return ("missed", "full") if use.waiting else ("success", "free")


def running_words(record: LimitRecord, use: LimitUse) -> str:
    """Each key of a pattern has places of its own."""
    most = f", up to {record.max_running:,} per key" if record.is_pattern else f" of {record.max_running:,}"
    return f"{use.running:,}{most}"
