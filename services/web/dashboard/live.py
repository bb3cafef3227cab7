"""A part of a page that stays while what it shows stays: nothing is replaced under a click or a selection."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from nicegui import ui

from services.errors import Unavailable
from services.web.dashboard.visitor import LoggedOut

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
        except LoggedOut:
            timer.deactivate()

    timer = ui.timer(seconds, tick)


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
