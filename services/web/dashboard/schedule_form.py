"""The form of a new or an existing schedule, with errors at the fields and a live preview of the next fires."""

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, available_timezones

from nicegui import ui
from nicegui.elements.mixins.validation_element import ValidationElement

from services.checks import strict_json
from services.errors import InvalidInput, InvalidSchedule, Problem, RevisionConflict, UnknownJobType
from services.jobs import default_registry
from services.jobs.schema import fields_of
from services.schedules.batch import ScheduleRecord
from services.schedules.field_rules import RULES, Rule, Whole, rule_of
from services.schedules.preview import Preview, preview_definition
from services.triggers.when import EXAMPLES, parse_when, when_words
from services.web.auth.roles import Role
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
# The settings that apply to empty fields; the others default to 0.
DEFAULTS = {
    "max_instances": "JOB_MAX_INSTANCES",
    "timeout_seconds": "JOB_TIMEOUT_SECONDS",
    "max_retries": "JOB_MAX_RETRIES",
    "retry_backoff_seconds": "JOB_RETRY_BACKOFF_SECONDS",
    "misfire_grace_seconds": "JOB_MISFIRE_GRACE_TIME",
    "catchup": "JOB_CATCHUP",
    "pause_after_failures": "never",
    "backoff_after_failures": "never",
}
TIMING_FIELDS = ("frequency", "time_config", "start_at", "end_at")


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


class ScheduleForm:
    def __init__(self, visitor: Visitor, record: ScheduleRecord | None, announced: Collection[str]) -> None:
        self._visitor, self._record, self._announced = visitor, record, announced
        self._fields: dict[str, ValidationElement[Any]] = {}
        self._preview: Preview | None = None
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
        chosen = ui.select(sorted(known), label="Job type", value=job_type, on_change=self.preview)
        self._put("job_type", chosen)
        config = json.dumps(dict(record.job_config), indent=2, ensure_ascii=False) if record else "{}"
        area = ui.textarea("Configuration (JSON)", value=config, on_change=self.preview)
        self._put("job_config", area.props('input-class="es-mono" autogrow'))
        ui.label().classes("es-faint").bind_text_from(chosen, "value", field_words)
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
        ui.label("Empty fields use the setting named below them, or 0.").classes("es-faint")
        with ui.element("div").classes("es-fields"):
            for name, label in POLICIES.items():
                value = getattr(record, name) if record else None
                self._put(name, ui.number(label, value=value, precision=0, on_change=self.preview))
            chosen = (record.catchup or "") if record else ""
            self._put("catchup", ui.select(CATCHUPS, label=CATCHUP, value=chosen))

    def _text(self, name: str, label: str, value: str) -> None:
        self._put(name, ui.input(label, value=value, on_change=self.preview))

    def _put(self, name: str, field: ValidationElement[Any]) -> None:
        self._fields[name] = field.props('outlined dense debounce="300"').classes("w-full")
        if hint := field_hint(name):
            field.props["hint"] = hint

    # --- input ---

    def _definition(self) -> tuple[dict[str, Any], list[Problem]]:
        """The definition as far as it can be parsed, and the problems with the rest."""
        values = {name: field.value for name, field in self._fields.items()}
        problems: list[Problem] = []
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
            "start_at": (values["start_at"] or "").strip() or None,
            "end_at": (values["end_at"] or "").strip() or None,
            **{name: _whole(values[name], 0 if name in ("spread_seconds", "priority") else None) for name in POLICIES},
        }
        try:
            given["job_config"] = strict_json.loads(values["job_config"] or "{}")
        except strict_json.DuplicateKey as error:
            problems.append(Problem("job_config", str(error)))
        except ValueError as error:
            problems.append(Problem("job_config", f"is not JSON: {error}"))
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
        given, problems = self._definition()
        if any(problem.field == "when" for problem in problems):
            return None, problems
        announced = self._visitor.parts.repository.announced_types
        try:
            preview = await self._visitor.read(lambda: preview_definition(given, announced=announced))
        except InvalidInput as error:
            return None, [*problems, *error.problems]
        return preview, [*problems, *preview.problems]

    def _show_problems(self, problems: list[Problem]) -> None:
        """Show each error at its field, and errors without a field below the form."""
        by_field: dict[str, list[str]] = {}
        for problem in problems:
            by_field.setdefault(self._field_of(problem.field), []).append(_words(problem))
        for name, field in self._fields.items():
            field.error = "; ".join(by_field.pop(name, [])) or None
        self._problem.text = "; ".join(text for texts in by_field.values() for text in texts)

    def _field_of(self, name: str) -> str:
        first = name.partition(".")[0]
        return "when" if first in ("frequency", "time_config") else first

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
        given, problems = self._definition()
        if problems:
            self._show_problems(problems)
            return False
        saved = await self._visitor.act(Role.OPERATOR, lambda: self._write(given))
        if isinstance(saved, UUID):
            ui.navigate.to(f"/schedules/{saved}")
            return True
        if saved is not None:
            self._show_problems(saved)
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


def field_words(job_type: str) -> str:
    """`Fields: url (required), method, …`; empty for a job type that only the replicas know."""
    try:
        fields = fields_of(default_registry.get(job_type))
    except UnknownJobType:
        return ""
    return "Fields: " + ", ".join(f"{field.name} (required)" if field.required else field.name for field in fields)


def field_hint(name: str) -> str:
    """`1 to 1,000, or JOB_MAX_INSTANCES`: the range of a number, and the setting that applies if it is empty."""
    words = range_of(rule_of(name)) if name in RULES else ""
    return ", or ".join([*([words] if words else []), *([DEFAULTS[name]] if name in DEFAULTS else [])])


def unset(name: str) -> str:
    """What a policy without a value means."""
    return f"default ({DEFAULTS[name]})" if DEFAULTS[name].isupper() else DEFAULTS[name]


def range_of(rule: Rule) -> str:
    return f"{rule.least:,} to {rule.most:,}" if isinstance(rule, Whole) else ""


def _comma_separated(value: str | None) -> list[str]:
    return [word.strip() for word in (value or "").split(",") if word.strip()]


def _whole(value: float | None, otherwise: int | None) -> float | int | None:
    if value is None:
        return otherwise
    return int(value) if float(value).is_integer() else value


def _words(problem: Problem) -> str:
    inner = problem.field.partition(".")[2]
    return f"{inner}: {problem.reason}" if inner else problem.reason
