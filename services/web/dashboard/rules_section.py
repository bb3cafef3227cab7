"""The rules on the page of notifications: what each reports, a dry run, a switch, and a form for new ones."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from services.checks import strict_json
from services.errors import InvalidInput
from services.notifications.channel_rows import MOST_CHANNELS
from services.notifications.rule_fields import MEANINGS, Event
from services.notifications.rule_words import events_of, filters, when
from services.notifications.rules import RuleRecord
from services.notifications.trying import Trial, try_rule
from services.web.auth.roles import Role
from services.web.dashboard.live import Ages, Live, Once
from services.web.dashboard.look import card, chip, empty
from services.web.dashboard.sure import is_sure
from services.web.dashboard.visitor import Visitor
from services.wording.counts import counted

SHOWN = 200
SHOWN_TOLD = 50
EXAMPLE: dict[str, Any] = {"tags": [], "quiet_from": None, "quiet_to": None, "quiet_timezone": "UTC", "digest": "none"}


class RulesSection:
    def __init__(self, visitor: Visitor) -> None:
        self._visitor = visitor
        with card("Rules"):
            self._list: Live[list[RuleRecord] | None] = Live(self._build, None)
        self._form: _Form | None = None
        if visitor.may(Role.OPERATOR):
            with card("New rule"):
                self._form = _Form(visitor, self.refresh)

    async def refresh(self) -> None:
        parts = self._visitor.parts
        self._list.show(await self._visitor.read(lambda: parts.rules.page(limit=SHOWN).items))
        if self._form is not None:
            found = await self._visitor.read(lambda: parts.channels.page(limit=MOST_CHANNELS).items)
            self._form.offer([channel.name for channel in found])

    async def keep_up(self) -> None:
        await self.refresh()

    def _build(self, records: list[RuleRecord] | None, _ages: Ages) -> None:
        if records == []:
            empty("No rules yet", "A rule says which events are sent to which channels. Without one, nothing is sent.")
        for record in records or ():
            with ui.row().classes("items-center gap-3 w-full es-line"):
                with ui.column().classes("grow gap-1 es-long"):
                    _build_words(record)
                self._build_buttons(record)

    def _build_buttons(self, record: RuleRecord) -> None:
        if not self._visitor.may(Role.OPERATOR):
            return
        attempt = ui.button("Try", icon="science", on_click=lambda: self._try(record))
        attempt.props(f'outline no-caps aria-label="Try {record.name}"')
        word = "Disable" if record.enabled else "Enable"
        switch = ui.button(word, on_click=lambda: self._switch(record))
        switch.props(f'flat no-caps aria-label="{word} {record.name}"')
        if self._visitor.may(Role.ADMIN):
            remove = ui.button(icon="delete", on_click=lambda: self._delete(record))
            remove.props(f'flat round aria-label="Delete rule {record.name}"')

    async def _try(self, record: RuleRecord) -> None:
        parts = self._visitor.parts
        timeout = parts.settings.heartbeat_timeout_seconds
        trial = await self._visitor.act(Role.OPERATOR, lambda: try_rule(parts.db, record, timeout))
        if trial is not None:
            with ui.context.client.content:
                await _show_trial(record, trial)

    async def _switch(self, record: RuleRecord) -> None:
        rules, actor = self._visitor.parts.rules, self._visitor.identity.actor
        changes = {"enabled": not record.enabled}
        await self._visitor.act(Role.OPERATOR, lambda: rules.edit(str(record.rule_id), changes, actor))
        await self.refresh()

    async def _delete(self, record: RuleRecord) -> None:
        rules, actor = self._visitor.parts.rules, self._visitor.identity.actor
        with ui.context.client.content:
            effect = "Messages it has already created are still sent and stay in the history."
            if await is_sure("rule", f"Delete rule {record.name}?", effect):
                await self._visitor.act(Role.ADMIN, lambda: rules.delete(str(record.rule_id), actor))
        await self.refresh()


class _Form:
    """The usual values have fields; all others are JSON, as in the API."""

    def __init__(self, visitor: Visitor, added: Callable[[], Awaitable[None]]) -> None:
        self._visitor, self._added, self._once = visitor, added, Once()
        events = {event.value: f"{event.value}: {meaning}" for event, meaning in MEANINGS.items()}
        with ui.element("div").classes("es-fields"):
            self._name = ui.input("Rule", placeholder="failures").props("outlined dense")
            self._channels = ui.select([], label="Channels", multiple=True).props("outlined dense use-chips")
            self._events = ui.select(
                events, label="Events", multiple=True, value=[Event.FAILED.value, Event.RECOVERED.value]
            ).props("outlined dense")
            self._note = ui.input("Note on the rule (optional)").props("outlined dense")
        self._more = ui.textarea("Filters, thresholds, quiet hours, digest (JSON)", value=json.dumps(EXAMPLE, indent=2))
        self._more.props("outlined autogrow").classes("w-full es-mono")
        with ui.row().classes("items-center gap-3"):
            add = ui.button("Create rule", icon="add", on_click=lambda: self._once.do(self._save))
            add.props("unelevated no-caps")
        self._problem = ui.label().classes("es-bad es-long").props('role="alert"')

    def offer(self, channels: list[str]) -> None:
        if self._channels.options != channels:
            kept = [name for name in self._channels.value or () if name in channels]
            self._channels.set_options(channels, value=kept)

    async def _save(self) -> bool:
        given = {
            "name": (self._name.value or "").strip(),
            "channels": list(self._channels.value or ()),
            "events": list(self._events.value or ()),
            "note": self._note.value or "",
        }
        text = self._more.value or "{}"
        found = await self._visitor.act(Role.OPERATOR, lambda: self._write(given, text))
        if isinstance(found, RuleRecord):
            self._problem.text, self._name.value, self._note.value = "", "", ""
            await self._added()
        elif found is not None:
            self._problem.text = found
        return False  # the page stays

    def _write(self, given: dict[str, Any], text: str) -> RuleRecord | str:
        try:
            more = strict_json.loads(text)
        except ValueError as error:
            return f"JSON: is not valid: {error}"
        if not isinstance(more, dict):
            return "JSON: must be an object"
        try:
            return self._visitor.parts.rules.add({**more, **given}, self._visitor.identity.actor)
        except InvalidInput as error:
            return str(error)


def _build_words(record: RuleRecord) -> None:
    with ui.row().classes("items-baseline gap-x-3 gap-y-1"):
        chip("success" if record.enabled else "skipped", "enabled" if record.enabled else "disabled")
        ui.label(record.name).classes("es-what")
        ui.label(f"to {', '.join(record.channels)}")
        ui.label(when(record)).classes("es-faint")
        if record.note:
            ui.label(record.note).classes("es-faint")
    ui.label(f"{events_of(record)}; for {filters(record)}").classes("es-faint es-long")


async def _show_trial(record: RuleRecord, trial: Trial) -> None:
    with ui.dialog() as dialog, ui.card().classes("es-long"):
        dialog.props["aria-label"] = "What the rule would have sent"
        ui.label(f"In the last 24 hours, {record.name} would have sent").classes("text-lg es-long")
        for each in trial.told[-SHOWN_TOLD:]:
            with ui.row().classes("items-baseline gap-3"):
                ui.label(f"{each.at:%d %b %H:%M} UTC").classes("es-mono es-faint")
                ui.label(each.message.title).classes("es-long")
        judged = f"{counted(len(trial.told), 'message')} from {counted(trial.walked, 'execution')}"
        rest = "" if trial.is_complete else f"; there is more after {trial.walked_until:%d %b %H:%M} UTC"
        ui.label(f"{judged}{rest}. Nothing was sent.").classes("es-faint")
        ui.button("Close", on_click=dialog.close).props("flat no-caps")
    await dialog
    dialog.delete()
