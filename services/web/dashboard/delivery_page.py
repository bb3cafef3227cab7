"""One delivery: what it says, and every attempt to send it."""

from dataclasses import dataclass
from uuid import UUID

from nicegui import ui

from services.errors import DeliveryNotFound
from services.notifications.deliveries import Attempt, DeliveryRecord
from services.web.auth.roles import Role
from services.web.dashboard.deliveries_section import COLOURS, words_of
from services.web.dashboard.frame import for_visitors, frame
from services.web.dashboard.live import Ages, Live, keep_fresh
from services.web.dashboard.look import NOTHING, ago, card, chip, clock, empty, fact
from services.web.dashboard.visitor import Visitor

REFRESH_SECONDS = 3.0
OUTCOMES = {"sent": "success", "failed": "failed", "lost": "abandoned", None: "running"}


@dataclass(frozen=True, slots=True)
class Seen:
    record: DeliveryRecord
    attempts: list[Attempt]


@for_visitors("/notifications/{delivery_id}")
async def delivery(visitor: Visitor, delivery_id: str) -> None:
    seen = await visitor.read(lambda: _look(visitor, delivery_id))
    with frame(visitor, "Delivery", "/notifications", about=seen.record.message.title if seen else ""):
        if seen is None:
            empty("Delivery not found", "It may have been deleted with old history.", ("All", "/notifications"))
            return
        page = _Page(visitor, seen)
        keep_fresh(REFRESH_SECONDS, page.refresh)


def _look(visitor: Visitor, delivery_id: str) -> Seen | None:
    try:
        found = UUID(delivery_id)
        return Seen(visitor.parts.deliveries.find(found), visitor.parts.deliveries.attempts(found))
    except (ValueError, DeliveryNotFound):
        return None


class _Page:
    def __init__(self, visitor: Visitor, seen: Seen) -> None:
        self._visitor, self._id = visitor, seen.record.delivery_id
        with card():
            self._head = Live(self._build_head, seen.record)
        with card("Message"):
            _build_message(seen.record)
        with card("Attempts"):
            self._attempts = Live(self._build_attempts, seen.attempts)

    async def refresh(self) -> None:
        seen = await self._visitor.read(lambda: _look(self._visitor, str(self._id)))
        if seen is None:
            ui.navigate.to("/notifications")
            return
        self._head.show(seen.record)
        self._attempts.show(seen.attempts)

    def _build_head(self, record: DeliveryRecord, ages: Ages) -> None:
        with ui.row().classes("items-center gap-3 w-full"):
            ui.label(record.message.title).classes("text-xl es-long grow")
            chip(COLOURS[record.state], words_of(record))
            if self._visitor.may(Role.OPERATOR) and record.channel is not None and not record.is_being_sent:
                ui.button("Repeat", icon="replay", on_click=self._repeat).props("outline no-caps")
        with ui.element("dl").classes("es-facts"):
            fact("Channel", record.channel or "deleted")
            fact("Event", record.event.replace("_", " "))
            fact("Written", clock(self._visitor.local(record.created_at)))
            if record.next_at is not None and record.state == "waiting":
                with ui.element("dt"):
                    ui.label("Next attempt")
                with ui.element("dd"):
                    ages.label(lambda: ago(record.next_at))
            if record.repeated_by is not None:
                fact("Repeated by", record.repeated_by)
            fact("Id", str(record.delivery_id)).classes("es-mono")
        if record.last_error:
            ui.label(record.last_error).classes("es-bad es-long")

    def _build_attempts(self, attempts: list[Attempt], _: Ages) -> None:
        if not attempts:
            ui.label("None yet.").classes("es-faint")
        for attempt in attempts:
            with ui.row().classes("items-baseline gap-3 w-full es-line"):
                ui.label(f"{attempt.number}").classes("es-mono")
                chip(OUTCOMES[attempt.outcome], attempt.outcome or "on its way")
                ui.label(clock(self._visitor.local(attempt.started_at))).classes("es-mono")
                ui.label(attempt.instance_id).classes("es-faint")
                ui.label(attempt.answer or NOTHING).classes("es-long es-words")

    async def _repeat(self) -> None:
        deliveries, actor = self._visitor.parts.deliveries, self._visitor.identity.actor
        if await self._visitor.act(Role.OPERATOR, lambda: deliveries.repeat(self._id, actor)):
            ui.notify("It is being sent again, under the same id")
        await self.refresh()


def _build_message(record: DeliveryRecord) -> None:
    message = record.message
    if message.text:
        ui.label(message.text).classes("es-long").style("white-space: pre-wrap")
    with ui.element("dl").classes("es-facts"):
        for label, value in message.facts.items():
            fact(label, value)
    if message.link:
        ui.link(message.link, message.link).classes("es-long")
