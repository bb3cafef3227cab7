"""A job's configuration in the form of a schedule: the fields of the job type's model, and the same as JSON.

The JSON text is what is saved. A field writes its part of it; the fields show what is in it whenever their tab is
opened. What the model does not know stays as it is.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from nicegui import events, ui
from nicegui.elements.mixins.validation_element import ValidationElement

from services.checks import strict_json
from services.errors import Problem, UnknownJobType
from services.jobs import default_registry
from services.jobs.schema import Control, Shape, controls_of

FIELDS, AS_JSON = "Fields", "JSON"
UNREADABLE = "The JSON cannot be read. Correct it in the other tab; then the fields are here again."
NO_MODEL = "This job type declares no fields of its own; the other tab takes any JSON."
UNKNOWN_TYPE = "This process does not know the fields of this job type; the other tab takes them as JSON."
FLAGS = {"true": True, "false": False}


class ConfigEditor:
    """`changed` is called after each change."""

    def __init__(self, job_type: str, config: Mapping[str, Any], changed: Callable[[], Awaitable[None]]) -> None:
        self._job_type, self._changed = job_type, changed
        self._fields: dict[str, ValidationElement[Any]] = {}
        self._broken: dict[str, str] = {}  # by field: why its text is not JSON
        self._problems: list[Problem] = []
        with ui.column().classes("w-full gap-0"):
            with ui.tabs().props('dense no-caps align="left"') as tabs:
                ui.tab(FIELDS)
                ui.tab(AS_JSON)
            with ui.tab_panels(tabs, value=FIELDS, animated=False, on_change=self._look).classes("es-panels"):
                with ui.tab_panel(AS_JSON).classes("px-0"):
                    self._text = ui.textarea("Configuration (JSON)", value=_text_of(config), on_change=changed)
                    self._text.props('outlined dense debounce="300" autogrow input-class="es-mono"').classes("w-full")
                with ui.tab_panel(FIELDS).classes("px-0"):
                    self._build()

    async def choose(self, job_type: str) -> None:
        self._job_type = job_type
        await self._look()
        await self._changed()

    def read(self) -> tuple[Any, list[Problem]]:
        """The configuration, None if it cannot be read, and the problems with how it is written."""
        problems = [Problem(f"job_config.{name}", f"is not JSON: {reason}") for name, reason in self._broken.items()]
        try:
            return strict_json.loads(self._text.value or "{}"), problems
        except strict_json.DuplicateKey as error:
            return None, [*problems, Problem("job_config", str(error))]
        except (ValueError, RecursionError) as error:
            return None, [*problems, Problem("job_config", f"is not JSON: {error}")]

    def show_problems(self, problems: list[Problem]) -> None:
        """At the JSON all of them; in the other tab each at its field, and above the fields what no field shows."""
        self._problems = problems
        self._text.error = "; ".join(map(within, problems)) or None
        by_field: dict[str, list[str]] = {name: [] for name in self._fields}
        others: list[str] = []
        for problem in problems:
            name = problem.field.split(".")[1] if "." in problem.field else ""
            if name in by_field:
                by_field[name].append(within(problem).removeprefix(f"{name}: "))
            else:
                others.append(within(problem))
        for name, field in self._fields.items():
            field.error = "; ".join(by_field[name]) or None
        self._others.text = "; ".join(others)

    async def _look(self) -> None:
        await self._build.refresh()
        self.show_problems(self._problems)

    @ui.refreshable_method
    def _build(self) -> None:
        self._fields, self._broken = {}, {}
        self._others = ui.label().classes("es-bad").props('role="alert"')
        config, _ = self.read()
        if not isinstance(config, dict):
            ui.label(UNREADABLE).classes("es-faint")
            return
        try:
            controls = controls_of(default_registry.get(self._job_type))
        except UnknownJobType:
            ui.label(UNKNOWN_TYPE).classes("es-faint")
            return
        if len(controls) == 1:
            ui.label(NO_MODEL).classes("es-faint")
        with ui.element("div").classes("es-fields"):
            for control in controls:
                name = control.field.name
                value = config.get(name)
                shape = _shape(control, value)
                self._fields[name] = _element(control, shape, value, partial(self._take, name, shape))

    async def _take(self, name: str, shape: Shape, event: events.ValueChangeEventArguments[Any]) -> None:
        """Write what the field says into the JSON; an empty field leaves its default to the job type."""
        text = self._text.value
        self._broken.pop(name, None)
        config, _ = self.read()
        if not isinstance(config, dict):
            return  # the JSON was broken meanwhile; the fields say so when they are looked at
        try:
            value = _value(shape, event.value)
        except (ValueError, RecursionError) as error:
            self._broken[name] = str(error)
        else:
            kept = {key: known for key, known in config.items() if key != name or value is not None}
            text = _text_of(kept if value is None else {**kept, name: value})
        if text == self._text.value:
            await self._changed()
        else:
            self._text.value = text  # which calls `changed`


def _element(control: Control, shape: Shape, value: Any, take: events.Handler[Any]) -> ValidationElement[Any]:
    label = f"{control.field.name} (required)" if control.field.required else control.field.name
    made: ValidationElement[Any]
    match shape:
        case Shape.TEXT:
            made = ui.input(label, value=value or "", on_change=take)
        case Shape.LONG_TEXT:
            made = ui.textarea(label, value=value or "", on_change=take).props("autogrow")
        case Shape.NUMBER:
            made = ui.number(label, value=value, on_change=take)
        case Shape.FLAG:
            chosen = "" if value is None else json.dumps(value)
            made = ui.select({"": _unset(control), **{word: word for word in FLAGS}}, label=label, value=chosen)
        case Shape.CHOICE:
            words = dict.fromkeys((*control.choices, *([value] if value else [])))
            made = ui.select({"": _unset(control), **{word: word for word in words}}, label=label, value=value or "")
        case Shape.LINES:
            made = ui.textarea(f"{label}, one per line", value="\n".join(value or []), on_change=take)
            made.props("autogrow")
        case Shape.JSON:
            made = ui.textarea(f"{label}, as JSON", value="" if value is None else _text_of(value), on_change=take)
            made.props('autogrow input-class="es-mono"')
    if isinstance(made, ui.select):
        made.on_value_change(take)
    made.props('outlined dense stack-label debounce="300"').classes("w-full")
    made.props["hint"], made.props["placeholder"] = control.hint, control.field.default
    return made


def _shape(control: Control, value: Any) -> Shape:
    """JSON for a value that the field cannot show as it is."""
    match control.shape, value:
        case _, None:
            return control.shape
        case Shape.TEXT, str() if "\n" in value:
            return Shape.LONG_TEXT
        case (Shape.TEXT | Shape.LONG_TEXT | Shape.CHOICE, str()) | (Shape.FLAG, bool()):
            return control.shape
        case Shape.NUMBER, int() | float() if not isinstance(value, bool):
            return control.shape
        case Shape.LINES, list() if all(isinstance(one, str) and one == one.strip() != "" for one in value):
            return Shape.JSON if any("\n" in one for one in value) else control.shape
        case _:
            return Shape.JSON


def _value(shape: Shape, given: Any) -> Any:
    """What the field says; None if it is empty. Raises ValueError for a text that is not JSON."""
    if given is None or given == "":
        return None
    match shape:
        case Shape.NUMBER:
            return int(given) if float(given).is_integer() else given
        case Shape.FLAG:
            return FLAGS[given]
        case Shape.LINES:
            return [line.strip() for line in given.splitlines() if line.strip()] or None
        case Shape.JSON:
            return strict_json.loads(given) if given.strip() else None
        case _:
            return given


def _unset(control: Control) -> str:
    default = control.field.default.strip('"')
    return f"default: {default}" if default else "not set"


def within(problem: Problem) -> str:
    """`url: field required`, of a problem of `job_config.url`."""
    inner = problem.field.partition(".")[2]
    return f"{inner}: {problem.reason}" if inner else problem.reason


def _text_of(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
