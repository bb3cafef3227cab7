"""The first page: is everything all right, what runs, what went how, and what needs attention."""

from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import Response
from nicegui import ui

from services.execution_listing import ExecutionRecord
from services.overview import Attention, Minute, Overview, Trouble
from services.replica_listing import Replicas, list_replicas
from services.web.dashboard import charts
from services.web.dashboard.executions_page import name_of
from services.web.dashboard.frame import frame, shown_at
from services.web.dashboard.look import ago, card, chip, empty, redraw
from services.web.dashboard.visitor import Visitor, admit

REFRESH_SECONDS = 3.0
TROUBLES = {
    Trouble.STUCK: ("stuck", "failed"),
    Trouble.LATE: ("late", "missed"),
    Trouble.PARKED: ("parked", "timed_out"),
    Trouble.FAILING: ("failing", "failed"),
    Trouble.WAITING: ("waiting", "pending"),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that the page shows, read together."""

    replicas: Replicas
    minutes: list[Minute]
    running: list[ExecutionRecord]
    attention: list[Attention]
    schedules: int


@shown_at("/")
async def overview(request: Request) -> Response | None:
    visitor = await admit(request)
    if isinstance(visitor, Response):
        return visitor
    with frame(visitor, "Overview", "/"):
        page = _Page(visitor, await visitor.read(lambda: _look(visitor)))
        ui.timer(REFRESH_SECONDS, page.refresh)
    return None


def _look(visitor: Visitor) -> Seen:
    parts = visitor.parts
    overview = Overview(parts.db)
    return Seen(
        replicas=list_replicas(parts.db, parts.settings.heartbeat_timeout_seconds),
        minutes=overview.minutes(),
        running=parts.history.get_running(),
        attention=overview.attention(),
        schedules=parts.repository.count_schedules(),
    )


class _Page:
    def __init__(self, visitor: Visitor, seen: Seen) -> None:
        self._visitor, self._seen = visitor, seen
        self._tiles()
        with card("Needs attention"):
            self._attention()
        with ui.element("div").classes("es-grid"):
            with card("Executions per minute"):
                self._outcomes = ui.echart(charts.outcomes(seen.minutes, visitor.local)).classes("w-full h-64")
            with card("Lateness of starts"):
                self._lateness = ui.echart(charts.lateness(seen.minutes, visitor.local)).classes("w-full h-64")
        with card("Running now"):
            self._running()

    async def refresh(self) -> None:
        self._seen = await self._visitor.read(lambda: _look(self._visitor))
        self._tiles.refresh()
        self._attention.refresh()
        self._running.refresh()
        redraw(self._outcomes, charts.outcomes(self._seen.minutes, self._visitor.local))
        redraw(self._lateness, charts.lateness(self._seen.minutes, self._visitor.local))

    @ui.refreshable_method
    def _tiles(self) -> None:
        replicas, last_hour = self._seen.replicas, self._seen.minutes
        live = replicas.live
        failed = sum(minute.outcomes.get(status, 0) for minute in last_hour for status in charts.FAILURES)
        ended = sum(sum(minute.outcomes.values()) for minute in last_hour)
        with ui.element("div").classes("es-tiles"):
            _tile("Replicas", str(len(live)), "live" if live else "nothing is run", bool(live), "/replicas")
            _tile("Redis", *_redis(replicas))
            _tile(
                "Changes",
                "applied" if replicas.are_converged else "pending",
                f"newest revision {replicas.newest_revision}",
                replicas.are_converged,
                "/replicas",
            )
            _tile("Schedules", f"{self._seen.schedules:,}", "in the table", True, "/schedules")
            _tile("Running", str(len(self._seen.running)), _workers(replicas), True, "/executions?status=running")
            _tile("Last hour", f"{ended:,}", f"{failed:,} went wrong", failed == 0, "/executions")

    @ui.refreshable_method
    def _attention(self) -> None:
        if not self._seen.attention:
            empty("All is well", "Nothing is failing, late, parked or stuck.")
        for item in self._seen.attention:
            _attention_row(item)

    @ui.refreshable_method
    def _running(self) -> None:
        if not self._seen.running:
            empty("Nothing runs right now", "The next fires are in the timeline.")
        for record in self._seen.running[:20]:
            with ui.row().classes("items-center w-full gap-3"):
                chip(record.status)
                ui.link(name_of(record), f"/executions/{record.execution_id}")
                ui.label(f"on {record.instance_id or 'a program of its own'}").classes("es-faint")
                ui.label(f"since {ago(record.started_at or record.claimed_at).removesuffix(' ago')}").classes(
                    "es-faint"
                )
                if record.attempt > 1:
                    ui.label(f"attempt {record.attempt}").classes("es-faint")


def _tile(title: str, value: str, words: str, good: bool, target: str = "") -> None:
    with ui.column().classes("es-card gap-1"):
        if target:
            ui.link(title, target).classes("es-faint")
        else:
            ui.label(title).classes("es-faint")
        ui.label(value).classes("es-tile-value" + ("" if good else " es-bad"))
        ui.label(words).classes("es-faint" if good else "es-bad")


def _redis(replicas: Replicas) -> tuple[str, str, bool]:
    if not replicas.live:
        return "unknown", "no replica is live", False
    degraded = [replica for replica in replicas.live if replica.redis_degraded]
    return ("degraded", "Postgres decides alone", False) if degraded else ("fine", "answers all replicas", True)


def _workers(replicas: Replicas) -> str:
    return f"of {sum(replica.max_workers or 0 for replica in replicas.live)} workers"


def _attention_row(item: Attention) -> None:
    word, tint = TROUBLES[item.trouble]
    with ui.row().classes("items-baseline w-full gap-3 no-wrap"):
        chip(tint, word)
        target = f"/executions/{item.execution_id}" if item.execution_id else f"/schedules/{item.schedule_id}"
        ui.link(item.label, target).classes("whitespace-nowrap")
        ui.label(item.words).classes("ellipsis grow").tooltip(item.words)
        ui.label(ago(item.since)).classes("es-faint whitespace-nowrap")
