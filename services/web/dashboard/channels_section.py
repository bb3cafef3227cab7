"""The channels on the page of notifications: state, last error, a test, a switch, and a form for new ones."""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from uuid import UUID

from nicegui import ui

from services.checks import strict_json
from services.errors import InvalidInput
from services.notifications.channel_rows import MOST_CHANNELS, AddedChannel, ChannelKind, ChannelRecord
from services.notifications.channels.kinds import OF_ADMINS
from services.notifications.deliveries import DeliveryState
from services.web.auth.roles import Role
from services.web.dashboard.live import Ages, Live, Once
from services.web.dashboard.look import ago, card, chip, empty
from services.web.dashboard.sure import is_sure
from services.web.dashboard.visitor import Visitor

STATES = {"works": "success", "failing": "failed", "unused": "pending", "disabled": "skipped"}
EXAMPLES: dict[ChannelKind, dict[str, Any]] = {
    ChannelKind.WEBHOOK: {"url": "https://example.com/hooks/scheduler"},
    ChannelKind.EMAIL: {
        "host": "smtp.example.com",
        "user": "robot",
        "password": "${env:SMTP_PASSWORD}",
        "from": "robot@example.com",
        "to": ["ops@example.com"],
    },
    ChannelKind.APPRISE: {"url": "ntfy://${env:NTFY_TOPIC}"},
}


class ChannelsSection:
    def __init__(self, visitor: Visitor) -> None:
        self._visitor = visitor
        self._tests: dict[str, UUID] = {}  # channel -> the delivery whose result this visitor waits for
        with card("Channels"):
            self._list: Live[list[ChannelRecord] | None] = Live(self._build, None)
        if visitor.may(Role.OPERATOR):
            with card("New channel"):
                _Form(visitor, self.refresh)

    async def refresh(self) -> None:
        self._list.show(await self._visitor.read(lambda: self._visitor.parts.channels.page(limit=MOST_CHANNELS).items))
        for name, delivery_id in list(self._tests.items()):
            found = await self._visitor.read(partial(self._visitor.parts.deliveries.find, delivery_id))
            if found.state != DeliveryState.WAITING:
                del self._tests[name]
                was_sent = found.state == DeliveryState.SENT
                words = f"{name}: the test was sent" if was_sent else f"{name}: {found.last_error or found.state}"
                ui.notify(words, type="positive" if was_sent else "negative", multi_line=True)

    async def keep_up(self) -> None:
        await self.refresh()

    def _build(self, records: list[ChannelRecord] | None, ages: Ages) -> None:
        if records == []:
            empty("No channels yet", "A channel is where notifications go: a webhook, e-mail, a chat or a pager.")
        for record in records or ():
            with ui.row().classes("items-center gap-3 w-full es-line"):
                with ui.column().classes("grow gap-1 es-long"):
                    self._build_words(record, ages)
                self._build_buttons(record)

    def _build_words(self, record: ChannelRecord, ages: Ages) -> None:
        with ui.row().classes("items-baseline gap-x-3 gap-y-1"):
            chip(STATES[record.state], record.state)
            ui.label(record.name).classes("es-what")
            ui.label(record.kind).classes("es-faint")
            if record.waiting:
                ui.link(f"{record.waiting_words} waiting", f"/notifications?channel={record.name}&state=waiting")
            ages.label(lambda: f"last sent {ago(record.last_sent_at)}").classes("es-faint")
            if record.note:
                ui.label(record.note).classes("es-faint")
        place = record.config.get("host") or record.config.get("url") or ""
        ui.label(str(place)).classes("es-mono es-faint")
        if record.last_error:
            with ui.row().classes("items-baseline gap-3"):
                ui.label(record.last_error).classes("es-bad es-long")
                ages.label(lambda: f"failing since {ago(record.failing_since)}").classes("es-faint")

    def _build_buttons(self, record: ChannelRecord) -> None:
        if not self._visitor.may(Role.OPERATOR):
            return
        if record.enabled:
            test = ui.button("Test", icon="send", on_click=lambda: self._test(record.name))
            test.props(f'outline no-caps aria-label="Test {record.name}"')
        word = "Disable" if record.enabled else "Enable"
        switch = ui.button(word, on_click=lambda: self._switch(record))
        switch.props(f'flat no-caps aria-label="{word} {record.name}"')
        if self._visitor.may(Role.ADMIN):
            remove = ui.button(icon="delete", on_click=lambda: self._delete(record))
            remove.props(f'flat round aria-label="Delete {record.name}"')

    async def _test(self, name: str) -> None:
        channels, actor = self._visitor.parts.channels, self._visitor.identity.actor
        delivery_id = await self._visitor.act(Role.OPERATOR, lambda: channels.send_test(name, actor))
        if delivery_id is not None:
            self._tests[name] = delivery_id
            ui.notify(f"{name}: a replica sends the test now")

    async def _switch(self, record: ChannelRecord) -> None:
        channels, actor = self._visitor.parts.channels, self._visitor.identity.actor
        changes = {"enabled": not record.enabled}
        await self._visitor.act(Role.OPERATOR, lambda: channels.edit(record.name, changes, actor))
        await self.refresh()

    async def _delete(self, record: ChannelRecord) -> None:
        channels, actor = self._visitor.parts.channels, self._visitor.identity.actor
        with ui.context.client.content:
            effect = f"Waiting messages to cancel: {record.waiting_words}. The history of its deliveries stays."
            if await is_sure("channel", f"Delete {record.name}?", effect):
                await self._visitor.act(Role.ADMIN, lambda: channels.delete(record.name, actor))
        await self.refresh()


class _Form:
    """The configuration is JSON, as the API takes it; each kind begins with an example."""

    def __init__(self, visitor: Visitor, added: Callable[[], Awaitable[None]]) -> None:
        self._visitor, self._added, self._once = visitor, added, Once()
        kinds = [str(kind) for kind in ChannelKind if kind not in OF_ADMINS or visitor.may(Role.ADMIN)]
        with ui.element("div").classes("es-fields"):
            self._name = ui.input("Name", placeholder="ops").props("outlined dense")
            self._kind = ui.select(kinds, label="Kind", value=kinds[0], on_change=self._begin).props("outlined dense")
            self._note = ui.input("Note (optional)").props("outlined dense")
        self._config = ui.textarea("Configuration (JSON)").props("outlined autogrow").classes("w-full es-mono")
        ui.label("Keep passwords and keys in the environment of the replicas, and write ${env:NAME} here.").classes(
            "es-faint"
        )
        with ui.row().classes("items-center gap-3"):
            ui.button("Add", icon="add", on_click=lambda: self._once.do(self._save)).props("unelevated no-caps")
        self._problem = ui.label().classes("es-bad es-long").props('role="alert"')
        self._begin()

    def _begin(self) -> None:
        self._config.value = json.dumps(EXAMPLES[ChannelKind(str(self._kind.value))], indent=2)

    async def _save(self) -> bool:
        given = {"name": (self._name.value or "").strip(), "kind": self._kind.value, "note": self._note.value or ""}
        text = self._config.value or "{}"
        needed = Role.ADMIN if given["kind"] in OF_ADMINS else Role.OPERATOR
        found = await self._visitor.act(needed, lambda: self._write(given, text))
        if isinstance(found, AddedChannel):
            self._problem.text, self._name.value, self._note.value = "", "", ""
            self._begin()
            await self._added()
            if found.secret is not None:
                await _show_secret(found.record.name, found.secret)
        elif found is not None:
            self._problem.text = found
        return False  # the page stays

    def _write(self, given: dict[str, Any], text: str) -> AddedChannel | str:
        try:
            config = strict_json.loads(text)
        except ValueError as error:
            return f"config: is not valid JSON: {error}"
        try:
            return self._visitor.parts.channels.add({**given, "config": config}, self._visitor.identity.actor)
        except InvalidInput as error:
            return str(error)


async def _show_secret(name: str, secret: str) -> None:
    with ui.context.client.content, ui.dialog().props("persistent") as dialog, ui.card():
        dialog.props["aria-label"] = "Secret of the channel"
        ui.label(f"The secret of {name}").classes("text-lg es-long")
        ui.label("The receiver checks the signatures with it. It is shown only this once.")
        ui.label(secret).classes("es-mono es-long")
        ui.button("I have saved it", on_click=dialog.close).props("unelevated no-caps")
    await dialog
    dialog.delete()
