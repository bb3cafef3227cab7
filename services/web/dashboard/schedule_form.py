"""The form of a new or an existing schedule, with errors at the fields and a live preview of the next fires."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, available_timezones

from nicegui import ui
from nicegui.elements.mixins.validation_element import ValidationElement

from config import Settings
from services.errors import InvalidInput, InvalidSchedule, Problem, RevisionConflict
from services.jobs import default_registry
from services.schedules.batch import ScheduleRecord
from services.schedules.field_rules import RULES, Rule, Whole, rule_of
from services.schedules.preview import Preview, preview_definition
from services.triggers.when import EXAMPLES, parse_when, when_words
from services.web.auth.roles import Role
from services.web.dashboard.config_editor import FLAGS, ConfigEditor, within
from services.web.dashboard.frame import for_visitors, frame
from services.web.dashboard.live import Newest, Once
from services.web.dashboard.look import card, empty, fire_words
from services.web.dashboard.visitor import Visitor

POLICIES = {
    "max_instances": "Max instances",
    "timeout_seconds": "Timeout (s)",
    "max_retries": "Max retries",
    "retry_backoff_seconds": "Retry backoff (s)",
    "misfire_grace_seconds": "Misfire grace (s)",
    "pause_after_failures": "Pause after failures in a row",
    "backoff_after_failures": "Back off after failures in a row",
    "spread_seconds": "Spread (s)",
    "priority": "Priority",
}
CATCHUP = "Catch-up"
CATCHUPS = {"": "default", "none": "record as missed", "one": "run the latest", "all": "run all, up to the limit"}
COALESCE = "Coalesce overdue fires"
COALESCES = {"": "default", "true": "one run for all of them", "false": "each on its own"}
CHOICES = {"catchup": CATCHUPS, "coalesce": COALESCES}
# What applies to an empty field: a setting, or what the word says.
DEFAULTS = {
    "max_instances": "JOB_MAX_INSTANCES",
    "timeout_seconds": "JOB_TIMEOUT_SECONDS",
    "max_retries": "JOB_MAX_RETRIES",
    "retry_backoff_seconds": "JOB_RETRY_BACKOFF_SECONDS",
    "misfire_grace_seconds": "JOB_MISFIRE_GRACE_TIME",
    "catchup": "JOB_CATCHUP",
    "coalesce": "JOB_COALESCE",
    "pause_after_failures": "never",
    "backoff_after_failures": "never",
    "spread_seconds": "0",
    "priority": "0",
}
SPLIT = ("frequency", "time_config")  # two fields of a schedule, one of the form: "when"


@for_visitors("/schedules/new")
async def new_schedule(visitor: Visitor) -> None:
    with frame(visitor, "New schedule", "/schedules"):
        await _show_form(visitor, None)


@for_visitors("/schedules/{schedule_id}/edit")
async def edit_schedule(visitor: Visitor, schedule_id: str) -> None:
    try:
        record = await visitor.read(lambda: visitor.parts.repository.get_schedule(UUID(schedule_id)))
    except ValueError:
        record = None
    with frame(visitor, "Edit schedule", "/schedules", about=record.label if record else ""):
        if record is None:
            empty("Schedule not found", way=("All schedules", "/schedules"))
        else:
            await _show_form(visitor, record)


async def _show_form(visitor: Visitor, record: ScheduleRecord | None) -> None:
    if not visitor.may(Role.OPERATOR):
        empty("Read-only access", f"Editing schedules requires the role {Role.OPERATOR}.")
        return
    announced = await visitor.read(visitor.parts.repository.announced_types)
    await ScheduleForm(visitor, record, announced).preview(blaming=record is not None)


@dataclass(frozen=True, slots=True)
class _Refused:
    """What the database refused, and the value of the field at that moment."""

    problem: Problem
    value: Any


class ScheduleForm:
    def __init__(self, visitor: Visitor, record: ScheduleRecord | None, announced: Collection[str]) -> None:
        self._visitor, self._record, self._announced = visitor, record, announced
        self._fields: dict[str, ValidationElement[Any]] = {}
        self._preview: Preview | None = None
        self._refused: list[_Refused] = []
        self._once, self._newest = Once(), Newest()
        with ui.element("div").classes("es-grid"):
            with card("Job"):
                self._build_what(record)
            with ui.column().classes("gap-4 no-wrap"):
                with card("Timing"):
                    self._build_when(record)
                with card("Next fires"):
                    self._fires()
            with card("Policies").classes("es-across"):
                self._build_policies(record)
        self._problem = ui.label().classes("es-bad").props('role="alert"')
        with ui.row().classes("gap-3"):
            ui.button("Save", icon="save", on_click=lambda: self._once.do(self._save)).props("unelevated no-caps")
            back = f"/schedules/{record.schedule_id}" if record else "/schedules"
            ui.button("Cancel", on_click=lambda: ui.navigate.to(back)).props("flat no-caps")

    # --- fields ---

    def _build_what(self, record: ScheduleRecord | None) -> None:
        known = {*default_registry.job_types(), *self._announced, *([record.job_type] if record else [])}
        self._text("domain", "Domain or subject", record.domain if record else "")
        self._text("name", "Name (optional, unique)", (record.name or "") if record else "")
        job_type = record.job_type if record else "cookie_scan"
        chosen = ui.select(sorted(known), label="Job type", value=job_type)
        self._put("job_type", chosen)
        config = dict(record.job_config) if record else {}
        self._config = ConfigEditor(job_type, config, self.preview)
        chosen.on_value_change(lambda event: self._config.choose(event.value))
        self._text("tags", "Tags (comma-separated)", ", ".join(record.tags) if record else "")
        self._text("requires", "Required labels (comma-separated)", ", ".join(record.requires) if record else "")
        self._text("queue", "Queue (empty: default)", (record.queue or "") if record else "")
        keys = ", ".join(record.limit_keys) if record else ""
        self._text("limit_keys", "Limit keys (comma-separated)", keys)
        self._text("ping_url", "Ping URL (optional, as of healthchecks.io)", (record.ping_url or "") if record else "")
        self._enabled = ui.switch("Enabled", value=record.enabled if record else True)

    def _build_when(self, record: ScheduleRecord | None) -> None:
        words = when_words(record.frequency, record.time_config) if record else "daily 02:00"
        self._text("when", "When", words)
        ui.label(f"Examples: {EXAMPLES}").classes("es-faint")
        zones = sorted(available_timezones() | ({record.timezone} if record else set()))
        zone = record.timezone if record else str(self._visitor.zone)
        chosen = ui.select(zones, label="Time zone", value=zone, with_input=True, on_change=self.preview)
        chosen.on("input-value", lambda event: self._take_zone(chosen, event.args))
        self._put("timezone", chosen)
        for name, label in (("start_at", "Not before (optional)"), ("end_at", "Not after (optional)")):
            value: datetime | None = getattr(record, name) if record else None
            self._text(name, label, value.isoformat() if value else "")

    def _take_zone(self, field: ui.select, typed: object) -> None:
        """Accept a complete name without Enter; otherwise the field would show a value that is not saved."""
        if typed in field.options and typed != field.value:
            field.value = typed

    def _build_policies(self, record: ScheduleRecord | None) -> None:
        ui.label("An empty field means its default, which it shows in grey.").classes("es-faint")
        settings = self._visitor.parts.settings
        with ui.element("div").classes("es-fields"):
            for name, label in POLICIES.items():
                value = getattr(record, name) if record else None
                field = ui.number(label, value=value, precision=0, on_change=self.preview)
                field.props["placeholder"] = default_of(name, settings)
                self._put(name, field.props("stack-label"))
            for name, label in (("catchup", CATCHUP), ("coalesce", COALESCE)):
                value = getattr(record, name) if record else None
                words = CHOICES[name] | {"": f"default: {default_of(name, settings)}"}
                self._put(name, ui.select(words, label=label, value=_choice(value)))

    def _text(self, name: str, label: str, value: str) -> None:
        self._put(name, ui.input(label, value=value, on_change=self.preview))

    def _put(self, name: str, field: ValidationElement[Any]) -> None:
        self._fields[name] = field.props('outlined dense debounce="300"').classes("w-full")
        if hint := field_hint(name, self._visitor.parts.settings):
            field.props["hint"] = hint

    # --- input ---

    def _definition(self) -> tuple[dict[str, Any], list[Problem]]:
        """The definition as far as it can be parsed, and the problems with the rest."""
        values = {name: field.value for name, field in self._fields.items()}
        given: dict[str, Any] = {
            "domain": values["domain"] or "",
            "name": (values["name"] or "").strip() or None,
            "job_type": values["job_type"],
            "timezone": values["timezone"] or "UTC",
            "tags": _comma_separated(values["tags"]),
            "requires": _comma_separated(values["requires"]),
            "queue": (values["queue"] or "").strip() or None,
            "limit_keys": _comma_separated(values["limit_keys"]),
            "ping_url": (values["ping_url"] or "").strip() or None,
            "enabled": self._enabled.value,
            "catchup": values["catchup"] or None,
            "coalesce": FLAGS.get(values["coalesce"]),
            "start_at": (values["start_at"] or "").strip() or None,
            "end_at": (values["end_at"] or "").strip() or None,
            **{name: _whole(values[name], 0 if name in ("spread_seconds", "priority") else None) for name in POLICIES},
        }
        config, problems = self._config.read()
        given["job_config"] = {} if config is None else config
        try:
            given["frequency"], given["time_config"] = parse_when(values["when"] or "")
        except InvalidSchedule as error:
            problems += error.problems
        return given, problems

    async def preview(self, _: object = None, *, blaming: bool = True) -> None:
        """`blaming`: also show the errors, which a form that is still empty does not need."""
        answer = await self._newest.of(self._look())
        if answer is None:
            return  # the user has typed on
        self._preview, problems = answer
        if blaming:
            self._show_problems(problems)
        self._fires.refresh()

    async def _look(self) -> tuple[Preview | None, list[Problem]]:
        """The preview, if the timing is valid, and the problems of all fields."""
        given, problems = self._definition()
        told = {problem.field for problem in problems}  # what cannot be read has no further problems
        announced = self._visitor.parts.repository.announced_types
        preview: Preview | None = None
        try:
            preview = await self._visitor.read(lambda: preview_definition(given, announced=announced))
        except InvalidInput as error:
            found = error.problems
        else:
            found = preview.problems
        return preview, [*problems, *(problem for problem in found if self._field_of(problem.field) not in told)]

    def _show_problems(self, problems: list[Problem]) -> None:
        """Show each error at its field, and errors without a field below the form."""
        by_field: dict[str, list[Problem]] = {}
        for problem in [*problems, *self._still_refused({problem.field for problem in problems})]:
            by_field.setdefault(self._field_of(problem.field), []).append(problem)
        self._config.show_problems(by_field.pop("job_config", []))
        for name, field in self._fields.items():
            field.error = "; ".join(map(within, by_field.pop(name, []))) or None
        self._problem.text = "; ".join(within(problem) for found in by_field.values() for problem in found)

    def _still_refused(self, told: Collection[str]) -> list[Problem]:
        """What the database refused stays at its field until the field has another value."""
        return [
            refused.problem
            for refused in self._refused
            if refused.problem.field not in told and refused.value == self._value_of(refused.problem.field)
        ]

    def _value_of(self, name: str) -> Any:
        field = self._field_of(name)
        return self._fields[field].value if field in self._fields else None

    def _field_of(self, name: str) -> str:
        first = name.partition(".")[0]
        return "when" if first in SPLIT else first

    @ui.refreshable_method
    def _fires(self) -> None:
        if self._preview is None:
            empty("No preview yet", "The timing is not valid; see the message at the field.")
            return
        ui.label(self._preview.description).classes("text-lg")
        zone = ZoneInfo(self._preview.timezone)
        for fire in self._preview.fires:
            ui.label(fire_words(fire, zone, self._visitor.zone)).classes("es-mono")
        if not self._preview.fires:
            ui.label("This schedule never fires.").classes("es-bad")
        for warning in self._preview.warnings:
            with ui.row().classes("items-center gap-2 no-wrap"):
                ui.icon("warning").classes("es-warn")
                ui.label(warning)

    # --- saving ---

    async def _save(self) -> bool:
        """Returns whether it was saved, so that the page is left."""
        self._refused = []
        _, problems = await self._look()
        if problems:
            self._show_problems(problems)
            return False
        given, _ = self._definition()
        saved = await self._visitor.act(Role.OPERATOR, lambda: self._write(given))
        if isinstance(saved, UUID):
            ui.navigate.to(f"/schedules/{saved}")
            return True
        if saved is not None:
            self._refused = [_Refused(problem, self._value_of(problem.field)) for problem in saved]
            self._show_problems([])
        return False

    def _write(self, given: Mapping[str, Any]) -> UUID | list[Problem]:
        repository, actor = self._visitor.parts.repository, self._visitor.identity.actor
        try:
            if self._record is None:
                return repository.create_schedule(actor=actor, **given)
            record = repository.update_schedule(
                self._record.schedule_id, expected_revision=self._record.revision, actor=actor, **given
            )
        except RevisionConflict:
            return [Problem("", "Another user changed this schedule. Reload the page and repeat your changes.")]
        except InvalidInput as error:
            return list(error.problems)
        return record.schedule_id


def field_hint(name: str, settings: Settings) -> str:
    """`1 to 1,000; default 1 (JOB_MAX_INSTANCES)`: the range of a number, and what an empty field means."""
    words = range_of(rule_of(name)) if name in RULES else ""
    default = f"default {unset(name, settings)}" if name in DEFAULTS else ""
    return "; ".join(filter(None, (words, default)))


def unset(name: str, settings: Settings) -> str:
    """What a policy without a value means: `1 (JOB_MAX_INSTANCES)`."""
    source = DEFAULTS[name]
    return f"{default_of(name, settings)} ({source})" if source.isupper() else source


def default_of(name: str, settings: Settings) -> str:
    source = DEFAULTS[name]
    if not source.isupper():
        return source
    value = getattr(settings, source.lower())
    return CHOICES[name][_choice(value)] if name in CHOICES else f"{value:,}"


def range_of(rule: Rule) -> str:
    return f"{rule.least:,} to {rule.most:,}" if isinstance(rule, Whole) else ""


def _comma_separated(value: str | None) -> list[str]:
    return [word.strip() for word in (value or "").split(",") if word.strip()]


def _whole(value: float | None, otherwise: int | None) -> float | int | None:
    if value is None:
        return otherwise
    return int(value) if float(value).is_integer() else value


def _choice(value: object) -> str:
    """The key of a choice: a word, `true` or `false`, or empty for the default."""
    return "" if value is None else str(value).lower()
