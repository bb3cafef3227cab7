"""Rows of a list that are chosen by hand, or all that match its filters, and what can be done with them at once."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from uuid import UUID

from nicegui import ui

from services.schedules.field_rules import NOTE
from services.web.auth.roles import Role
from services.web.bulk import MOST, Done
from services.web.dashboard.live import Once
from services.web.dashboard.visitor import Visitor
from services.wording.counts import counted

ROW_CELL = """<q-checkbox v-model="props.selected" dense :aria-label="'Select ' + props.row.what"/>"""
HEAD_CELL = """<q-checkbox v-model="props.selected" dense aria-label="Select all of this page"/>"""
REASONS = 5


@dataclass(frozen=True, slots=True)
class Act:
    action: StrEnum
    word: str
    past: str
    icon: str
    asks_why: bool = False
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Wish:
    """`ids` is None for all that match the filters."""

    act: Act
    ids: list[UUID] | None
    dry_run: bool
    note: str | None = None
    expected: int | None = None


class Selection:
    """The bar above the table. `carry_out` does what is wished, or says what it would do; it runs in a thread."""

    def __init__(
        self,
        visitor: Visitor,
        table: ui.table,
        noun: str,
        acts: tuple[Act, ...],
        carry_out: Callable[[Wish], Done],
        refresh: Callable[[], Awaitable[None]],
        *,
        is_capped: bool = False,
    ) -> None:
        self._visitor, self._table, self._noun = visitor, table, noun
        self._carry_out, self._refresh, self._once = carry_out, refresh, Once()
        self._is_all, self._matching, self._caps = False, 0, is_capped
        table.props("selection=multiple hide-selected-banner")
        table.add_slot("body-selection", ROW_CELL)
        table.add_slot("header-selection", HEAD_CELL)
        table.on_select(self._changed)
        with ui.row().classes("items-center gap-2 w-full es-selection").props('role="status"') as self._bar:
            self._number = ui.label()
            self._all = ui.button(on_click=self._choose_all).props("flat dense no-caps")
            for act in acts:
                button = ui.button(act.word, icon=act.icon, on_click=partial(self._start, act))
                button.props("outline dense no-caps" + (" color=negative" if act.warning else ""))
            ui.button("Clear", on_click=self.clear).props("flat dense no-caps")
        self._show()

    def show(self, matching: int) -> None:
        """`matching` rows are found by the filters, on all pages."""
        self._matching = matching
        known = {row["id"] for row in self._table.rows}
        if any(row["id"] not in known for row in self._table.selected):
            self._table.selected = [row for row in self._table.selected if row["id"] in known]
        self._show()

    def clear(self) -> None:
        self._is_all, self._table.selected = False, []
        self._show()

    def _changed(self) -> None:
        self._is_all = False
        self._show()

    def _choose_all(self) -> None:
        self._is_all, self._table.selected = True, list(self._table.rows)
        self._show()

    def _show(self) -> None:
        number = len(self._ids)
        self._bar.set_visibility(bool(number))
        at_most = "at most " if self._is_all and self._is_capped else ""
        chosen = self._matching if self._is_all else number
        words = f"{at_most}{counted(chosen, self._noun)} selected" + (", on all pages" if self._is_all else "")
        self._number.text = words[:1].upper() + words[1:]
        which = f"the newest {self._matching:,}" if self._is_capped else f"all {self._matching:,}"
        self._all.text = f"Select {which} that match"
        self._all.set_visibility(not self._is_all and number < self._matching)

    @property
    def _ids(self) -> list[str]:
        """NiceGUI adds a row again when the whole page is selected."""
        return list(dict.fromkeys(row["id"] for row in self._table.selected))

    @property
    def _is_capped(self) -> bool:
        return self._caps and self._matching >= MOST

    async def _start(self, act: Act) -> None:
        await self._once.do(lambda: self._ask_and_do(act))

    async def _ask_and_do(self, act: Act) -> bool:
        ids = None if self._is_all else [UUID(each) for each in self._ids]
        with ui.context.client.content:  # not in a part of the page that may be redrawn
            foreseen = await self._visitor.act(Role.ADMIN, lambda: self._carry_out(Wish(act, ids, dry_run=True)))
            if foreseen is None:
                return False
            note = await self._ask(act, foreseen)
            if note is None:
                return False
            expected = foreseen.matched if ids is None else None
            wish = Wish(act, ids, dry_run=False, note=note or None, expected=expected)
            done = await self._visitor.act(Role.ADMIN, lambda: self._carry_out(wish))
            if done is not None:
                words = f"{counted(len(done.changed), self._noun)} {act.past}" + _others(done)
                ui.notify(words, type="warning" if done.refused else "positive", multi_line=True, timeout=10_000)
                self.clear()
            await self._refresh()
        return False

    async def _ask(self, act: Act, foreseen: Done) -> str | None:
        """The reason, which may be empty; None if the visitor thinks better of it."""
        with ui.dialog() as dialog, ui.card():
            question = f"{act.word} {counted(len(foreseen.changed), self._noun)}?"
            dialog.props["aria-label"] = question
            ui.label(question).classes("text-lg")
            ui.label(f"{len(foreseen.changed):,} would be {act.past}{_others(foreseen)}.")
            for why in list(dict.fromkeys(problem.reason for (problem, *_) in foreseen.refused.values()))[:REASONS]:
                ui.label(f"Refused: {why}").classes("es-faint es-long")
            if act.warning:
                ui.label(act.warning)
            note = ui.input("Reason (optional)").props(f"outlined dense maxlength={NOTE.longest}").classes("w-72")
            note.set_visibility(act.asks_why)
            with ui.row():
                yes = ui.button(act.word, on_click=lambda: dialog.submit(note.value or ""))
                yes.props("unelevated no-caps" + (" color=negative" if act.warning else ""))
                yes.set_enabled(bool(foreseen.changed))
                ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
        answer: str | None = await dialog
        dialog.delete()
        return answer


def _others(done: Done) -> str:
    """What is not done, in words; empty if there is nothing."""
    parts = (
        (len(done.unchanged), "unchanged"),
        (len(done.refused), "refused"),
        (len(done.missing), "gone meanwhile"),
    )
    words = "".join(f", {number:,} {what}" for number, what in parts if number)
    return words + ("; more match than one step does" if done.next_after else "")
