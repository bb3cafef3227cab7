"""Live parts of a page: rebuilt only when their data changes, never under a click or a selection."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Generic, TypeVar

from nicegui import ui
from sqlalchemy.exc import DBAPIError

from services.errors import Unavailable
from services.web.dashboard import outage
from services.web.dashboard.visitor import LoggedOut, zone_of
from services.wording.refusals import refusal

PATIENCE_SECONDS = 8.0

T = TypeVar("T")


def keep_fresh(seconds: float, refresh: Callable[[], Awaitable[None]], away: Callable[[], None] = lambda: None) -> None:
    """Refresh periodically. During an outage the page shows a notice, turns grey and keeps its data.

    `away` is called when the outage starts, so that the page does not present old data as current.
    """
    notice = _Notice(away)

    async def tick() -> None:
        late = asyncio.create_task(notice.appear_later())  # a stalled server does not even return an error
        try:
            await refresh()
            notice.disappear()
        except Unavailable as error:
            notice.appear(error)
        except DBAPIError as error:
            if refusal(error) is None:
                raise
            notice.appear(error)
        except LoggedOut:
            timer.deactivate()
        finally:
            late.cancel()

    timer = ui.timer(seconds, tick)


class _Notice:
    """The outage notice above the content, which is out of date as long as the notice is visible."""

    def __init__(self, away: Callable[[], None]) -> None:
        self._away, self._zone = away, zone_of(ui.context.client.request)
        self._page = ui.context.slot.parent
        self._fresh_at = datetime.now(UTC)
        with ui.column().classes("es-card es-alert").props('role="alert"') as self._box:
            self._headline = ui.label().classes("es-card-title es-bad")
            ui.label(outage.MEANING)
            self._as_of = ui.label().classes("es-faint")
        self._box.move(target_index=1)  # below the title
        self._box.set_visibility(False)

    async def appear_later(self) -> None:
        await asyncio.sleep(PATIENCE_SECONDS)
        self.appear()

    def appear(self, error: Exception | None = None) -> None:
        self._headline.text = outage.headline(error, self._zone)
        self._as_of.text = f"Everything below is as of {self._fresh_at.astimezone(self._zone):%H:%M:%S}."
        if not self._box.visible:
            self._box.set_visibility(True)
            self._page.classes(add="es-old")
            self._away()

    def disappear(self) -> None:
        self._fresh_at = datetime.now(UTC)
        if self._box.visible:
            self._box.set_visibility(False)
            self._page.classes(remove="es-old")


class Once:
    """Ignores the second half of a double click, and clicks on a page that is being left."""

    def __init__(self) -> None:
        self._busy = False

    async def do(self, action: Callable[[], Awaitable[bool]]) -> None:
        """`action` returns whether it leads to another page."""
        if self._busy:
            return
        self._busy, leaves = True, False
        try:
            leaves = await action()
        finally:
            self._busy = leaves


class Newest:
    """Of overlapping requests only the latest counts."""

    def __init__(self) -> None:
        self._asked = 0

    async def of(self, question: Awaitable[T]) -> T | None:
        """The result; None if a newer request was started in the meantime."""
        self._asked += 1
        own = self._asked
        answer = await question
        return answer if own == self._asked else None


class Ages:
    """Labels with relative times ("3 s ago"), updated in place."""

    def __init__(self) -> None:
        self._labels: list[tuple[ui.label, Callable[[], str]]] = []

    def label(self, words: Callable[[], str]) -> ui.label:
        made = ui.label(words())
        self._labels.append((made, words))
        return made

    def tick(self) -> None:
        for label, words in self._labels:
            label.text = words()


class Live(Generic[T]):
    """Built where it is created; `show` rebuilds it only for a different value."""

    def __init__(self, build: Callable[[T, Ages], None], value: T, classes: str = "w-full") -> None:
        self._build, self._value = build, value
        self._ages = Ages()
        self._box = ui.column().classes(f"{classes} gap-2")
        self._fill()

    def show(self, value: T) -> None:
        if value == self._value:
            self._ages.tick()
            return
        self._value, self._ages = value, Ages()
        self._box.clear()
        self._fill()

    def _fill(self) -> None:
        with self._box:
            self._build(self._value, self._ages)
