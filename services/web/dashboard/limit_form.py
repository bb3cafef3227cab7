"""The fields of a limit, new or existing, with errors at the fields."""

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.validation_element import ValidationElement

from services.errors import InvalidInput, Problem
from services.schedules.limits import RULES, LimitRecord
from services.web.auth.roles import Role
from services.web.dashboard.live import Once
from services.web.dashboard.schedule_form import range_of
from services.web.dashboard.visitor import Visitor


class LimitForm:
    """`saved` is called with the name of the limit after it was written."""

    def __init__(self, visitor: Visitor, record: LimitRecord | None, saved: Callable[[str], Awaitable[None]]) -> None:
        self._visitor, self._record, self._saved, self._once = visitor, record, saved, Once()
        self._fields: dict[str, ValidationElement[Any]] = {}
        with ui.element("div").classes("es-fields"):
            if record is None:
                name = ui.input("Key, or pattern ending in *", placeholder="customer:42")
                self._put("name", name)
            self._put("max_running", ui.number("At most at once", value=record.max_running if record else 2))
            self._put("note", ui.input("Note (optional)", value=(record.note or "") if record else ""))
        self._fields["max_running"].props["hint"] = f"{range_of(RULES['max_running'])}; 0 stops them"
        with ui.row().classes("items-center gap-3"):
            self._enabled = ui.switch("Enabled", value=record.enabled if record else True)
            word, icon = ("Add", "add") if record is None else ("Save", "save")
            ui.button(word, icon=icon, on_click=lambda: self._once.do(self._save)).props("unelevated no-caps")
        self._problem = ui.label().classes("es-bad").props('role="alert"')

    def _put(self, name: str, field: ValidationElement[Any]) -> None:
        self._fields[name] = field.props("outlined dense").classes("w-full")

    def _given(self) -> dict[str, Any]:
        values = {name: field.value for name, field in self._fields.items()}
        most = values["max_running"]
        whole = int(most) if isinstance(most, float) and most.is_integer() else most
        name = {"name": (values["name"] or "").strip()} if "name" in values else {}
        return {**name, "max_running": whole, "note": values["note"] or "", "enabled": self._enabled.value}

    async def _save(self) -> bool:
        """Returns whether it was saved."""
        given = self._given()
        found = await self._visitor.act(Role.OPERATOR, lambda: self._write(given))
        if isinstance(found, LimitRecord):
            self._show_problems([])
            await self._saved(found.name)
        elif found is not None:
            self._show_problems(found)
        return False  # the page stays

    def _write(self, given: dict[str, Any]) -> LimitRecord | list[Problem]:
        limits, actor = self._visitor.parts.schedule_limits, self._visitor.identity.actor
        try:
            if self._record is None:
                return limits.add(given, actor)
            return limits.edit(self._record.name, given, actor)[1]
        except InvalidInput as error:
            return list(error.problems)

    def _show_problems(self, problems: list[Problem]) -> None:
        reasons = {problem.field: problem.reason for problem in problems}
        for name, field in self._fields.items():
            field.error = reasons.pop(name, None)
        self._problem.text = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
