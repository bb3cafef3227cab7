"""The queues of the workflows: how deep, how old, how fast, what failed for good; pause, resume, try again."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from nicegui import ui

from services.web.auth.roles import Role
from services.web.dashboard import charts
from services.web.dashboard.frame import frame, shown_at
from services.web.dashboard.look import NOTHING, ago, card, chip, duration, empty, redraw
from services.web.dashboard.visitor import Visitor, admit
from services.workflows.dead_letters import DeadLetters, Letter, LetterFilter
from services.workflows.overview import QueueOverview, QueueView, Sample
from services.workflows.queue_state import QueueStates
from services.workflows.requeue import Requeue

REFRESH_SECONDS = 5.0
HOURS = 6
LETTERS = 20


@dataclass(frozen=True, slots=True)
class Seen:
    queues: list[QueueView]
    samples: dict[str, list[Sample]]
    letters: list[Letter]


@shown_at("/queues")
async def queues(request: Request) -> Response | None:
    visitor = await admit(request)
    if isinstance(visitor, Response):
        return visitor
    with frame(visitor, "Queues", "/queues"):
        page = _Page(visitor, await visitor.read(lambda: _look(visitor)))
        ui.timer(REFRESH_SECONDS, page.refresh)
    return None


def _look(visitor: Visitor) -> Seen:
    parts = visitor.parts
    overview = QueueOverview(parts.db, parts.settings)
    since = datetime.now(UTC) - timedelta(hours=HOURS)
    views = overview.look()
    return Seen(
        queues=views,
        samples={view.name: overview.samples(view.name, since) for view in views},
        letters=DeadLetters(parts.db).page(limit=LETTERS),
    )


class _Page:
    def __init__(self, visitor: Visitor, seen: Seen) -> None:
        self._visitor, self._seen = visitor, seen
        if not any(view.last_run_at or view.depth for view in seen.queues):
            with card():
                empty("The workflows have not run yet", "Set WORKFLOWS_ENABLED=true for the replicas, and queue a row.")
        with ui.element("div").classes("es-grid"):
            self._charts = {view.name: self._queue(view) for view in seen.queues}
        with card("Dead letters"):
            self._letters()
        self._draw()

    async def refresh(self) -> None:
        self._seen = await self._visitor.read(lambda: _look(self._visitor))
        self._state.refresh()
        self._letters.refresh()
        self._draw()

    def _draw(self) -> None:
        for name, chart in self._charts.items():
            samples = self._seen.samples.get(name, [])
            chart.set_visibility(len(samples) > 1)
            redraw(chart, charts.queue(samples, self._visitor.local))

    def _queue(self, view: QueueView) -> ui.echart:
        with card(view.display_name):
            self._state(view.name)
            return ui.echart({}).classes("w-full h-40")

    @ui.refreshable_method
    def _state(self, name: str) -> None:
        view = next(view for view in self._seen.queues if view.name == name)
        with ui.row().classes("items-center gap-2 w-full"):
            _state_chips(view)
            ui.space()
            self._buttons(view)
        if view.paused_reason:
            ui.label(f"{view.paused_reason} (by {view.paused_by}, {ago(view.paused_at)})").classes("es-warn")
        with ui.element("dl").classes("es-facts"):
            for fact, value in _facts(view).items():
                with ui.element("dt"):
                    ui.label(fact)
                with ui.element("dd"):
                    ui.label(value)

    def _buttons(self, view: QueueView) -> None:
        if not self._visitor.may(Role.OPERATOR):
            return
        word, icon = ("Resume", "play_arrow") if view.paused_at or view.circuit != "closed" else ("Pause", "pause")
        act = self._resume if word == "Resume" else self._pause
        button = ui.button(word, icon=icon, on_click=lambda: act(view.name)).props("outline dense no-caps")
        button.props(f'aria-label="{word} {view.display_name}"')

    @ui.refreshable_method
    def _letters(self) -> None:
        if not self._seen.letters:
            empty("None", "Items whose last attempt failed would be here, with their error.")
        for letter in self._seen.letters:
            with ui.row().classes("items-center gap-3 no-wrap w-full"):
                chip("failed", letter.queue.replace("_", " "))
                ui.label(letter.item_key).classes("es-mono")
                ui.label(letter.error).classes("ellipsis grow").tooltip(letter.traceback or letter.error)
                ui.label(ago(letter.died_at)).classes("es-faint whitespace-nowrap")
                if self._visitor.may(Role.OPERATOR):
                    again = ui.button(icon="replay", on_click=lambda letter=letter: self._requeue(letter))
                    again.props(f'flat round dense aria-label="Queue {letter.item_key} again"')

    async def _pause(self, name: str) -> None:
        states, actor = QueueStates(self._visitor.parts.db), self._visitor.identity.actor
        await self._act(lambda: states.pause(name, "paused in the dashboard", actor))

    async def _resume(self, name: str) -> None:
        states = QueueStates(self._visitor.parts.db)
        await self._act(lambda: states.resume(name))

    async def _requeue(self, letter: Letter) -> None:
        requeue = Requeue(self._visitor.parts.db, self._visitor.identity.actor)
        await self._act(lambda: requeue.letters(LetterFilter(ids=[letter.id]), 1))

    async def _act(self, action: Any) -> None:
        await self._visitor.act(Role.OPERATOR, action)
        await self.refresh()


def _state_chips(view: QueueView) -> None:
    if view.paused_at:
        chip("missed", "paused")
    elif view.circuit != "closed":
        chip("failed", f"circuit {view.circuit.replace('_', ' ')}")
    else:
        chip("success", "open for work")
    if view.stale:
        chip("abandoned", f"{view.stale} stale")


def _facts(view: QueueView) -> dict[str, str]:
    totals = view.totals
    return {
        "waiting": f"{view.depth:,}" + (f", the oldest for {duration(view.oldest_seconds)}" if view.depth else ""),
        "in work": f"{view.processing:,}",
        "failed": f"{view.failed:,} ({view.dead:,} dead letters)",
        "done so far": f"{totals.get('succeeded', 0):,}, {totals.get('retried', 0):,} retries",
        "batch": NOTHING if view.batch_size is None else str(view.batch_size),
        "last run": ago(view.last_run_at),
    }
