"""The queues of the workflows: depth, age, throughput and dead letters; pause, resume, requeue."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from nicegui import ui

from services.insight.windows import Window
from services.queues.dead_letters import DeadLetters, Letter, LetterFilter
from services.queues.overview import QueueOverview, QueueView, Sample
from services.queues.queue_state import QueueStates
from services.queues.requeue import Requeue
from services.web.auth.roles import Role
from services.web.dashboard import charts
from services.web.dashboard.frame import for_visitors, frame
from services.web.dashboard.live import Ages, Live, keep_fresh
from services.web.dashboard.look import NOTHING, ago, card, chart, chip, empty, fact, redraw, took
from services.web.dashboard.visitor import Visitor
from services.web.dashboard.window_choice import remembered_window, window_choice
from services.wording.counts import counted

REFRESH_SECONDS = 5.0
POINTS = 120  # of a chart
LETTERS = 20


@dataclass(frozen=True, slots=True)
class Seen:
    queues: list[QueueView]
    samples: dict[str, list[Sample]]
    letters: list[Letter]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of a queue that determines its chips and buttons."""

    name: str
    title: str
    circuit: str
    paused_at: datetime | None
    paused_by: str | None
    paused_reason: str | None
    stale: int


@for_visitors("/queues")
async def queues(visitor: Visitor) -> None:
    with frame(visitor, "Queues", "/queues"):
        window = remembered_window(visitor)
        page = _Page(visitor, window, await visitor.read(lambda: _look(visitor, window)))
        keep_fresh(REFRESH_SECONDS, page.refresh)


def _look(visitor: Visitor, window: Window) -> Seen:
    parts = visitor.parts
    overview = QueueOverview(parts.db, parts.settings)
    since, step = datetime.now(UTC) - timedelta(hours=window.hours), window.hours * 3600 // POINTS
    views = overview.look()
    return Seen(
        queues=views,
        samples={view.name: overview.samples(view.name, since, step) for view in views},
        letters=DeadLetters(parts.db).page(limit=LETTERS),
    )


class _Page:
    def __init__(self, visitor: Visitor, window: Window, seen: Seen) -> None:
        self._visitor, self._window, self._seen = visitor, window, seen
        if not any(view.last_run_at or view.depth for view in seen.queues):
            with card():
                empty("The workflows have not run yet", "Set WORKFLOWS_ENABLED=true on the replicas and queue a row.")
        self._summary = Live(_build_summary, _summary(seen))
        with ui.row().classes("items-center gap-3 w-full"):
            ui.label("Depth and throughput of the last").classes("es-faint")
            window_choice(window, self._choose)
        with ui.element("div").classes("es-grid"):
            self._queues = {view.name: _Queue(view, self._build_state) for view in seen.queues}
        with card("Dead letters").props("id=dead-letters"):
            self._letters = Live(self._build_letters, seen.letters)
        self._draw()

    async def _choose(self, window: Window) -> None:
        self._window = window
        await self.refresh()

    async def refresh(self) -> None:
        window = self._window
        seen = await self._visitor.read(lambda: _look(self._visitor, window))
        if window is not self._window:
            return  # another one was chosen meanwhile, whose own answer comes
        self._seen = seen
        for view in self._seen.queues:
            self._queues[view.name].show(view)
        self._letters.show(self._seen.letters)
        self._summary.show(_summary(self._seen))
        self._draw()

    def _draw(self) -> None:
        for name, queue in self._queues.items():
            samples = self._seen.samples.get(name, [])
            queue.chart.set_visibility(len(samples) > 1)
            if samples != queue.samples:
                queue.samples = samples
                redraw(queue.chart, charts.queue(samples, self._visitor.local, self._window.form))

    def _build_state(self, state: State, ages: Ages) -> None:
        with ui.row().classes("items-center gap-2 w-full"):
            _state_chips(state)
            ui.space()
            self._buttons(state)
        if state.paused_reason:
            words = f"{state.paused_reason} (by {state.paused_by}, "
            ages.label(lambda: f"{words}{ago(state.paused_at)})").classes("es-warn")

    def _buttons(self, state: State) -> None:
        if not self._visitor.may(Role.OPERATOR):
            return
        word, icon = ("Resume", "play_arrow") if state.paused_at or state.circuit != "closed" else ("Pause", "pause")
        act = self._resume if word == "Resume" else self._pause
        button = ui.button(word, icon=icon, on_click=lambda: act(state.name)).props("outline no-caps")
        button.props(f'aria-label="{word} {state.title}"')

    def _build_letters(self, letters: list[Letter], ages: Ages) -> None:
        if not letters:
            empty("No dead letters", "Items that fail their last attempt appear here with their error.")
        for letter in letters:
            with ui.row().classes("items-center gap-3 no-wrap w-full"):
                with ui.column().classes("grow gap-1 es-long"):
                    with ui.row().classes("items-baseline gap-x-3 gap-y-1"):
                        chip("failed", letter.queue.replace("_", " "))
                        ui.label(letter.item_key).classes("es-mono")
                        ages.label(partial(ago, letter.died_at)).classes("es-faint")
                    _error(letter)
                if self._visitor.may(Role.OPERATOR):
                    again = ui.button(icon="replay", on_click=lambda letter=letter: self._requeue(letter))
                    again.props("flat round").tooltip("Requeue")
                    again.props["aria-label"] = f"Requeue {letter.item_key}"

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


class _Queue:
    """The card of one queue: rebuilds its state when it changes, updates its numbers in place."""

    def __init__(self, view: QueueView, build_state: Callable[[State, Ages], None]) -> None:
        self.samples: list[Sample] = []
        with card(title_of(view)):
            self._state = Live(build_state, _state(view))
            with ui.element("dl").classes("es-facts"):
                self._facts = {name: fact(name, value) for name, value in _facts(view).items()}
            self.chart = chart({}).classes("h-40")

    def show(self, view: QueueView) -> None:
        self._state.show(_state(view))
        for name, value in _facts(view).items():
            self._facts[name].text = value


def _error(letter: Letter) -> None:
    """In full, because phones have no tooltips."""
    if letter.traceback is None:
        ui.label(letter.error)
        return
    with ui.element("details"):
        with ui.element("summary"):
            ui.label(letter.error).classes("inline")
        ui.label(letter.traceback).classes("es-mono")


def _summary(seen: Seen) -> tuple[list[str], list[str], int]:
    """Paused queues, tripped circuit breakers and the number of dead letters, at the top of the page."""
    paused = [title_of(view) for view in seen.queues if view.paused_at]
    resting = [title_of(view) for view in seen.queues if view.circuit != "closed" and not view.paused_at]
    return paused, resting, sum(view.dead for view in seen.queues)


def _build_summary(found: tuple[list[str], list[str], int], _: Ages) -> None:
    paused, resting, dead = found
    with ui.column().classes("gap-1"):
        if resting:
            ui.label(f"Circuit breaker tripped: {', '.join(resting)}.").classes("es-bad")
        if paused:
            ui.label(f"Paused: {', '.join(paused)}.").classes("es-warn")
        if dead:
            ui.link(counted(dead, "dead letter"), "#dead-letters")
        if not any(found):
            ui.label("All queues are active, and there are no dead letters.").classes("es-faint")


def title_of(view: QueueView) -> str:
    """Its name as people write it: the workflows' own names speak of processors and schedulers."""
    return view.name.replace("_", " ").capitalize()


def _state(view: QueueView) -> State:
    return State(
        name=view.name,
        title=title_of(view),
        circuit=view.circuit,
        paused_at=view.paused_at,
        paused_by=view.paused_by,
        paused_reason=view.paused_reason,
        stale=view.stale,
    )


def _state_chips(state: State) -> None:
    if state.paused_at:
        chip("missed", "paused")
    elif state.circuit != "closed":
        chip("failed", f"circuit {state.circuit.replace('_', ' ')}")
    else:
        chip("success", "active")
    if state.stale:
        chip("abandoned", f"{state.stale} stale")


def _facts(view: QueueView) -> dict[str, str]:
    totals = view.totals
    return {
        "Name": view.name,
        "Job": view.display_name,
        "Waiting": f"{view.depth:,}" + (f", oldest for {took(view.oldest_seconds)}" if view.depth else ""),
        "Processing": f"{view.processing:,}",
        "Failed": f"{view.failed:,}, {counted(view.dead, 'dead letter')}",
        "Succeeded": f"{totals.get('succeeded', 0):,}, {totals.get('retried', 0):,} retries",
        "Batch size": NOTHING if view.batch_size is None else str(view.batch_size),
        "Last run": ago(view.last_run_at),
    }
