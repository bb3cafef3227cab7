"""A list of the dashboard: filters above a table with keyset pages, an empty state, and a refresh by itself.

A list is a subclass: it names its columns, builds its filters, asks for a page of records and makes a row of each.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from nicegui import events, ui

from services.errors import InvalidInput
from services.web.dashboard.frame import for_visitors, frame
from services.web.dashboard.live import Newest, keep_fresh
from services.web.dashboard.look import card, nothing
from services.web.dashboard.tables import Pager, fill, table
from services.web.dashboard.visitor import Visitor

ROWS = 50


ORDER_CELL = """<q-th :props="props">
  <button class="es-order" @click="$parent.$emit('order', props.col.order)">{{ props.col.label }}
    <span aria-hidden="true">\u2195</span></button>
</q-th>"""


class Found(Protocol):
    """One page of records."""

    @property
    def items(self) -> Sequence[Any]: ...

    @property
    def next_cursor(self) -> str | None: ...


F = TypeVar("F", bound=Found)


class ListPage(ABC, Generic[F]):
    columns: ClassVar[list[dict[str, Any]]]
    chip: ClassVar[str] = ""  # the column that shows a status
    linked: ClassVar[str] = ""  # the column that leads to the row's `address`
    empty: ClassVar[tuple[str, str]]  # the text and the hint of the empty state
    refresh_seconds: ClassVar[float] = 5.0
    refreshes_all: ClassVar[bool] = False  # otherwise later pages do not change while they are being read

    def __init__(self, visitor: Visitor, asked: Mapping[str, str]) -> None:
        """`asked` are the parameters of the page's URL, which preset the filters."""
        self.visitor, self._newest = visitor, Newest()
        with ui.row().classes("items-center gap-3 w-full es-filters"):
            self.build_filters(asked)
        with card() as self.card:
            self.build_above()
            with ui.element("div").classes("es-above") as self.above:
                self._problem = ui.label().classes("es-bad")
            with ui.element("div").classes("es-wide"):
                self.table = table(self.columns, chip=self.chip, linked=self.linked)
            self.nothing = nothing(*self.empty)
            self._pager = Pager(self.refresh)

    @abstractmethod
    def build_filters(self, asked: Mapping[str, str]) -> None: ...

    def build_above(self) -> None:
        """What stands above the table; most lists have nothing there."""

    @abstractmethod
    def look(self, cursor: str | None) -> F:
        """The page at the cursor; runs outside the event loop. Raises InvalidInput."""

    @abstractmethod
    def row(self, record: Any) -> dict[str, Any]: ...

    async def refresh(self) -> None:
        answer = await self._newest.of(self._ask(self._pager.cursor))
        if answer is not None:  # else the filters or the page have changed meanwhile
            found, self._problem.text = answer
            self.show(found)

    async def _ask(self, cursor: str | None) -> tuple[F | None, str]:
        try:
            return await self.visitor.read(lambda: self.look(cursor)), ""
        except InvalidInput as error:
            return None, str(error)

    async def keep_up(self) -> None:
        if self._pager.is_first or self.refreshes_all:
            await self.refresh()

    async def search(self) -> None:
        """Show the first page, after a change of the filters."""
        self._pager.restart()
        await self.refresh()

    def show(self, found: F | None) -> None:
        """`found` is None if the filters were refused."""
        fill(self.table, self.nothing, [self.row(record) for record in found.items] if found else [])
        self._pager.show(found.next_cursor if found else None)

    def order_by_headings(self, order: ui.select) -> None:
        """The headings of columns with an `order` choose it, too: a second click turns it round."""

        def turn(event: events.GenericEventArguments) -> None:
            wanted = str(event.args)
            options = list(order.options)
            order.value = _turned(wanted) if order.value == wanted and _turned(wanted) in options else wanted

        for column in self.columns:
            if column.get("order"):
                self.table.add_slot(f"header-cell-{column['name']}", ORDER_CELL)
        self.table.on("order", turn)

    def text_filter(self, label: str, value: str = "", width: str = "w-56") -> ui.input:
        field = ui.input(label, value=value, on_change=self.search)
        return field.props('outlined dense clearable debounce="400"').classes(width)

    def choice_filter(
        self, label: str, options: dict[str, str], value: str | None = None, *, usual: str = "", width: str = "w-40"
    ) -> ui.select:
        """An unknown value counts as none. Without a `usual` choice the filter can be empty."""
        chosen = value if value in options else usual or None
        field = ui.select(options, label=label, value=chosen, clearable=not usual, on_change=self.search)
        return field.props("outlined dense").classes(width)


L = TypeVar("L", bound=ListPage[Any])


def list_at(path: str, title: str) -> Callable[[type[L]], type[L]]:
    """Decorator of a list: serves it at the path."""

    def register(page: type[L]) -> type[L]:
        @for_visitors(path)
        async def show(visitor: Visitor) -> None:
            with frame(visitor, title, path):
                shown = page(visitor, ui.context.client.request.query_params)
                await shown.refresh()
                keep_fresh(page.refresh_seconds, shown.keep_up)

        return page

    return register


def _turned(order: str) -> str:
    return order[1:] if order.startswith("-") else f"-{order}"


def text_of(field: ui.input) -> str | None:
    return (field.value or "").strip() or None
