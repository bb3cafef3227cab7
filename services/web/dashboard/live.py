"""A part of a page that stays while what it shows stays: nothing is replaced under a click or a selection."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from nicegui import ui
from sqlalchemy.exc import DBAPIError

from services.errors import Unavailable
from services.refusals import refusal
from services.web.dashboard.visitor import REFUSED, LoggedOut

T = TypeVar("T")


def keep_fresh(seconds: float, refresh: Callable[[], Awaitable[None]]) -> None:
    """Ask again and again. While the answer cannot be had the page says so, and keeps what it has."""
    banner = ui.label().classes("es-banner").props('role="alert"')
    banner.set_visibility(False)

    async def tick() -> None:
        try:
            await refresh()
            banner.set_visibility(False)
        except Unavailable as error:
            banner.text = f"{error.server} does not answer; this page shows what was known before."
            banner.set_visibility(True)
        except DBAPIError as error:
            if refusal(error) is None:
                raise
            banner.text = f"{REFUSED}; this page shows what was known before."
            banner.set_visibility(True)
        except LoggedOut:
            timer.deactivate()

    timer = ui.timer(seconds, tick)


class Once:
    """The second half of a double click does nothing, and neither does a click on a page that is being left."""

    def __init__(self) -> None:
        self._busy = False

    async def do(self, action: Callable[[], Awaitable[bool]]) -> None:
        """`action` says whether it leads to another page."""
        if self._busy:
            return
        self._busy, leaves = True, False
        try:
            leaves = await action()
        finally:
            self._busy = leaves


class Newest:
    """Of questions that overtake each other the last one counts."""

    def __init__(self) -> None:
        self._asked = 0

    async def of(self, question: Awaitable[T]) -> T | None:
        """Its answer; None when another question was asked meanwhile."""
        self._asked += 1
        own = self._asked
        answer = await question
        return answer if own == self._asked else None


class Ages:
    """Labels with words that time changes ("3 s ago"); they get new words in place."""

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
    """Built where it is made; `show` builds it again only for another value."""

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
