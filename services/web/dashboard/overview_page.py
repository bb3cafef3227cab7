"""The overview: health of the parts, what needs attention, outcomes and lateness, and what is running."""

from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import groupby
from time import monotonic
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from nicegui import ui

from services.insight.failures import ErrorGroup, Failures, FireCounts, count_fires, group_errors, pattern_of
from services.insight.hourly_audit import AuditFact, last_day
from services.insight.overview import Attention, Minute, Overview, Trouble
from services.insight.replicas import Replicas, list_replicas
from services.insight.series import Series
from services.insight.windows import HOUR, Window
from services.ledger.fate_sql import Fate
from services.ledger.listing import ExecutionRecord
from services.web.dashboard import charts
from services.web.dashboard.frame import for_visitors, frame
from services.web.dashboard.live import Ages, Live, keep_fresh
from services.web.dashboard.look import ago, card, chart, chip, empty, redraw
from services.web.dashboard.visitor import Visitor
from services.web.dashboard.window_choice import SLOW_SECONDS, remembered_window, window_choice
from services.wording.commands import as_called_here
from services.wording.counts import counted
from services.wording.names import name_of

REFRESH_SECONDS = 3.0
MOST_RUNNING = 20
MOST_ERRORS = 8
UNKNOWN = ("Unknown while Postgres does not answer", "This list returns when Postgres is back.")
TOGETHER_FROM, MOST_FAILING = 3, 200
MOST_OF_A_KIND = 6  # so that many of one kind do not hide the others
TROUBLES = {
    Trouble.UNACCOUNTED: ("unaccounted", "failed"),
    Trouble.STUCK: ("stuck", "failed"),
    Trouble.LATE: ("late", "missed"),
    Trouble.IDLE: ("not claiming", "failed"),
    Trouble.SILENT: ("no heartbeat", "abandoned"),
    Trouble.UNHANDLED: ("unknown job type", "missed"),
    Trouble.UNABLE: ("nobody able", "missed"),
    Trouble.HELD: ("held by a limit", "missed"),
    Trouble.STOPPED: ("stopped", "missed"),
    Trouble.CIRCUIT: ("circuit breaker", "failed"),
    Trouble.PARKED: ("parked", "timed_out"),
    Trouble.FAILING: ("failing", "failed"),
    Trouble.DEAD: ("dead letters", "failed"),
    Trouble.PAUSED: ("paused", "missed"),
    Trouble.WAITING: ("waiting", "pending"),
}
ALL_OF_THEM = {
    Trouble.UNACCOUNTED: "/executions?within=24",
    Trouble.STUCK: "/executions?status=running",
    Trouble.LATE: "/schedules?order=next_run",
    Trouble.IDLE: "/replicas",
    Trouble.SILENT: "/replicas",
    Trouble.UNHANDLED: "/replicas",
    Trouble.UNABLE: "/executions?status=pending",
    Trouble.HELD: "/limits",
    Trouble.STOPPED: "/limits",
    Trouble.CIRCUIT: "/queues",
    Trouble.PARKED: "/schedules?last=invalid",
    Trouble.FAILING: "/schedules?last=failed",
    Trouble.DEAD: "/queues",
    Trouble.PAUSED: "/queues",
    Trouble.WAITING: "/executions?status=pending",
}


@dataclass(frozen=True, slots=True)
class History:
    """What happened in the window."""

    window: Window
    bars: list[Minute]
    counts: FireCounts
    errors: list[ErrorGroup]


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that the page shows."""

    replicas: Replicas
    history: History
    running: list[ExecutionRecord]
    attention: list[Attention]
    schedules: int
    audit: AuditFact | None


@for_visitors("/")
async def overview(visitor: Visitor) -> None:
    with frame(visitor, "Overview", "/"):
        window = remembered_window(visitor)
        page = _Page(visitor, await visitor.read(lambda: _look(visitor, _look_back(visitor, window))))
        keep_fresh(REFRESH_SECONDS, page.refresh, page.away)


def _look(visitor: Visitor, history: History) -> Seen:
    parts = visitor.parts
    return Seen(
        replicas=list_replicas(parts.db, parts.settings.heartbeat_timeout_seconds),
        history=history,
        running=parts.history.get_running(),
        attention=Overview(parts.db).attention(failing=MOST_FAILING),
        schedules=parts.repository.count_schedules(),
        audit=last_day(parts.db),
    )


def _look_back(visitor: Visitor, window: Window) -> History:
    db = visitor.parts.db
    failures = Failures(db).lately(window.hours)
    bars = Series(db).read(window, visitor.zone, failures)
    return History(window, bars, count_fires(failures), group_errors(failures)[:MOST_ERRORS])


class _Page:
    def __init__(self, visitor: Visitor, seen: Seen) -> None:
        self._visitor, self._seen, self._window = visitor, seen, seen.history.window
        self._history_at = monotonic()
        self._tiles = Live(_build_tiles, _tiles(seen))
        with card("Needs attention"):
            self._attention = Live(_build_attention, (seen.attention, calm(seen)))
        with ui.row().classes("items-center gap-3 w-full"):
            ui.label("Fires and their errors of the last").classes("es-faint")
            window_choice(self._window, self._choose)
        with card("Errors") as self._errors_card:
            self._errors = Live(_build_errors, _errors(seen.history))
        with ui.element("div").classes("es-grid"):
            with card("Fires by outcome"):
                self._outcomes = chart(_outcomes(seen.history)).classes("h-64")
            with card("Start lateness"):
                self._lateness = chart(_lateness(seen.history)).classes("h-64")
        with card("Running now"):
            self._running = Live(_build_running, _running(seen))
        self._errors_card.set_visibility(bool(seen.history.errors))

    def away(self) -> None:
        """Postgres does not answer, so the last known state may be out of date."""
        self._tiles.show(_tiles(self._seen, postgres_answers=False))
        self._attention.show((self._seen.attention, UNKNOWN))

    async def _choose(self, window: Window) -> None:
        self._window = window
        await self.refresh()

    async def refresh(self) -> None:
        seen = await self._visitor.read(lambda: _look(self._visitor, self._history()))
        if seen.history.window is not self._window:
            return  # another one was chosen meanwhile, whose own answer comes
        self._tiles.show(_tiles(seen))
        self._attention.show((seen.attention, calm(seen)))
        self._running.show(_running(seen))
        self._errors.show(_errors(seen.history))
        self._errors_card.set_visibility(bool(seen.history.errors))
        if seen.history.bars != self._seen.history.bars:
            redraw(self._outcomes, _outcomes(seen.history))
            redraw(self._lateness, _lateness(seen.history))
        self._seen = seen

    def _history(self) -> History:
        """The long windows are not read anew every time."""
        known, now = self._seen.history, monotonic()
        is_recent = self._window is not HOUR and now - self._history_at < SLOW_SECONDS
        if known.window is self._window and is_recent:
            return known
        self._history_at = now
        return _look_back(self._visitor, self._window)


def _outcomes(history: History) -> dict[str, Any]:
    return charts.outcomes(history.bars, history.window.form)


def _lateness(history: History) -> dict[str, Any]:
    return charts.lateness(history.bars, history.window.form)


@dataclass(frozen=True, slots=True)
class Tile:
    title: str
    value: str
    words: str
    good: bool
    target: str = ""


def _tiles(seen: Seen, *, postgres_answers: bool = True) -> list[Tile]:
    replicas = seen.replicas
    places = [*(each.max_workers for each in replicas.live), *(each.max_workers for each in replicas.workers)]
    workers = sum(place or 0 for place in places)
    return [
        Tile("Replicas", str(len(replicas.live)), *_health(replicas), "/replicas"),
        Tile("Postgres", *_postgres(postgres_answers)),
        Tile("Redis", *_redis(replicas)),
        Tile("Changes", *_changes(replicas), "/replicas"),
        Tile("Schedules", f"{seen.schedules:,}", "in total", True, "/schedules"),
        Tile("Running", str(len(seen.running)), f"of {workers} workers", True, "/executions?status=running"),
        _fires(seen.history),
        *_accounted(seen.audit),
    ]


def _fires(history: History) -> Tile:
    """Red only for fires that failed for good: what a retry has mended needs nobody."""
    counts, title = history.counts, f"Fires in {history.window.words}"
    within = f"/executions?within={history.window.hours}"
    if counts.failed:
        head, _, more = counts.words.partition(" ")
        return Tile(title, head, more, False, f"{within}&outcome={Fate.FAILED}")
    total = sum(sum(bar.outcomes.values()) for bar in history.bars)
    return Tile(title, f"{total:,}", counts.words or "no failures", True, within)


@dataclass(frozen=True, slots=True)
class Error:
    """A row of the errors; `target` leads to the executions that have it."""

    words: str
    numbers: str
    where: str
    target: str
    last_at: datetime
    is_open: bool


def _errors(history: History) -> list[Error]:
    return [
        Error(
            words=group.example,
            numbers=group.counts.words or counted(group.attempts, "attempt"),
            where=group.label if group.schedules == 1 else f"{group.schedules:,} schedules",
            target="/executions?" + urlencode({"within": history.window.hours, "error": group.common_text}),
            last_at=group.last_at,
            is_open=bool(group.counts.failed),
        )
        for group in history.errors
    ]


def _build_errors(errors: list[Error], ages: Ages) -> None:
    """Equal errors are one line, whatever ids, numbers and addresses they name."""
    for error in errors:
        with ui.row().classes("items-baseline w-full gap-3 no-wrap es-line"):
            chip("failed" if error.is_open else "skipped", error.numbers)
            ui.link(error.words, error.target).classes("ellipsis grow es-words").tooltip(error.words)
            ui.label(error.where).classes("ellipsis es-faint es-where")
            ages.label(partial(ago, error.last_at)).classes("es-faint whitespace-nowrap")


def _accounted(audit: AuditFact | None) -> list[Tile]:
    """The hourly audit, once there is one: every fire accounted for, with both numbers."""
    if audit is None or not audit.expected:  # a clean audit of nothing proves nothing
        return []
    both = f"{audit.accounted:,} = {audit.expected:,}"
    if not audit.is_clean:
        return [Tile("Audit", f"{audit.accounted:,} of {audit.expected:,}", audit.words, False)]
    return [Tile("Audit", both, f"every fire of {counted(audit.hours, 'hour')} accounted for", True)]


def _build_tiles(tiles: list[Tile], _: Ages) -> None:
    with ui.element("div").classes("es-tiles"):
        for tile in tiles:
            _tile(tile)


def calm(seen: Seen) -> tuple[str, str]:
    """The text when nothing needs attention; "All is well" only if it is true."""
    if not seen.replicas.live:
        start = as_called_here("No job runs until you start one: python services/enhanced_scheduler.py")
        return "No replica is live", start
    if not all(tile.good for tile in _tiles(seen) if tile.title in ("Replicas", "Redis")):
        return "No schedule needs attention", "See the red tiles above."
    if not seen.schedules:
        create = as_called_here('Create one: "New schedule" under Schedules, or manage.py schedule add --help.')
        return "No schedules yet", create
    return "All is well", "Nothing is failing, late, parked, paused or stuck."


def _build_attention(shown: tuple[list[Attention], tuple[str, str]], ages: Ages) -> None:
    found, otherwise = shown
    if not found:
        empty(*otherwise)
    for trouble, items in groupby(found, key=lambda item: item.trouble):
        alike = together(list(items))
        for item in alike[:MOST_OF_A_KIND]:
            _attention_row(item, ages)
        if len(alike) > MOST_OF_A_KIND:
            ui.link(f"More: {TROUBLES[trouble][0]}", ALL_OF_THEM[trouble])


@dataclass(frozen=True, slots=True)
class Running:
    """The shown fields of an execution; a change of its progress alone needs no redraw."""

    execution_id: UUID
    name: str
    status: str
    where: str
    since: datetime | None
    attempt: int

    def how_long(self) -> str:
        words = ago(self.since)
        return "just started" if words == "now" else f"for {words.removesuffix(' ago')}"


def _running(seen: Seen) -> list[Running]:
    return [
        Running(
            execution_id=record.execution_id,
            name=name_of(record),
            status=record.status,
            where=record.instance_id or "an external program",
            since=record.started_at or record.claimed_at,
            attempt=record.attempt,
        )
        for record in seen.running[:MOST_RUNNING]
    ]


def _build_running(found: list[Running], ages: Ages) -> None:
    if not found:
        empty("Nothing is running", "The timeline shows the next fires.")
    for one in found:
        with ui.row().classes("items-center w-full gap-3"):
            chip(one.status)
            ui.link(one.name, f"/executions/{one.execution_id}")
            ui.label(f"on {one.where}").classes("es-faint")
            ages.label(one.how_long).classes("es-faint")
            if one.attempt > 1:
                ui.label(f"attempt {one.attempt}").classes("es-faint")


def _tile(tile: Tile) -> None:
    with ui.column().classes("es-card es-tile"):
        if tile.target:
            ui.link(tile.title, tile.target).classes("es-faint")
        else:
            ui.label(tile.title).classes("es-faint")
        ui.label(tile.value).classes("es-tile-value" + ("" if tile.good else " es-bad"))
        ui.label(tile.words).classes("es-faint" if tile.good else "es-bad")


def _health(replicas: Replicas) -> tuple[str, bool]:
    """A replica without heartbeat may have been replaced long ago; a live one that does not claim is a problem."""
    if not replicas.live:
        return "no job runs", False
    silent, idle = len(replicas.items) - len(replicas.live), sum(not replica.claiming for replica in replicas.live)
    words = ["live", *([f"{idle} not claiming"] if idle else []), *([f"{silent} without heartbeat"] if silent else [])]
    return ", ".join(words), not idle


def _postgres(answers: bool) -> tuple[str, str, bool]:
    return ("up", "answered just now", True) if answers else ("down", "does not answer", False)


def _redis(replicas: Replicas) -> tuple[str, str, bool]:
    if not replicas.live:
        return "unknown", "no replica is live", False
    degraded = [replica for replica in replicas.live if replica.redis_degraded]
    return ("degraded", "running on Postgres only", False) if degraded else ("up", "all replicas connected", True)


def _changes(replicas: Replicas) -> tuple[str, str, bool]:
    """Has every live replica applied the newest change?"""
    if not replicas.live:
        return "unknown", "no replica is live", False
    words = f"newest revision {replicas.newest_revision}"
    return ("applied", words, True) if replicas.are_converged else ("pending", words, False)


def together(items: list[Attention]) -> list[Attention]:
    """Of one kind: equal failures are one line, so that they do not hide a different one."""
    if items[0].trouble is not Trouble.FAILING:
        return items
    groups: dict[str, list[Attention]] = {}
    for item in items:
        groups.setdefault(pattern_of(item.words), []).append(item)
    return [each for group in groups.values() for each in (_as_one(group) if len(group) >= TOGETHER_FROM else group)]


def _as_one(group: list[Attention]) -> list[Attention]:
    at_least = "at least " if len(group) >= MOST_FAILING else ""
    return [replace(group[0], label=f"{at_least}{len(group):,} schedules", schedule_id=None)]


def _attention_row(item: Attention, ages: Ages) -> None:
    word, tint = TROUBLES[item.trouble]
    with ui.row().classes("items-baseline w-full gap-3 no-wrap es-line"):
        chip(tint, word)
        ui.link(item.label, _place_of(item)).classes("ellipsis es-what")
        ui.label(item.words).classes("ellipsis grow es-words").tooltip(item.words)
        ages.label(lambda: ago(item.since)).classes("es-faint whitespace-nowrap")


def _place_of(item: Attention) -> str:
    """The page with the details."""
    if item.execution_id:
        return f"/executions/{item.execution_id}"
    return f"/schedules/{item.schedule_id}" if item.schedule_id else ALL_OF_THEM[item.trouble]
