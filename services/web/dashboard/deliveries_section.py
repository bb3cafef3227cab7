"""The deliveries on the page of notifications: newest first, each a link to its attempts."""

from typing import Any

from nicegui import ui

from services.notifications.deliveries import DeliveryFilter, DeliveryPage, DeliveryRecord, DeliveryState
from services.web.dashboard.list_page import ROWS, ListPage, text_of
from services.web.dashboard.look import clock, colour
from services.web.dashboard.tables import columns
from services.web.dashboard.visitor import Visitor

COLOURS = {"sent": "success", "waiting": "pending", "failed": "failed", "cancelled": "cancelled"}


class DeliveriesSection(ListPage[DeliveryPage]):
    columns = columns(
        "state", "message", "channel", "event", "written", "attempts", "last_error",
        lead="message", right=("attempts",), short=("written",), wide=("last_error",),
    )  # fmt: skip
    chip = "state"
    linked = "message"
    empty = ("No deliveries", "Messages sent through the channels appear here, with every attempt.")

    def __init__(self, visitor: Visitor) -> None:
        ui.label("Deliveries").classes("es-card-title").props('role="heading" aria-level="2"')
        super().__init__(visitor, ui.context.client.request.query_params)

    def build_filters(self, asked: Any) -> None:
        states = {str(state): str(state) for state in DeliveryState}
        self._state = self.choice_filter("State", states, asked.get("state"))
        self._channel = self.text_filter("Channel", asked.get("channel", ""))
        self._event = self.text_filter("Event", asked.get("event", ""))

    def look(self, cursor: str | None) -> DeliveryPage:
        state = None if self._state.value is None else str(self._state.value)
        asked = DeliveryFilter(channel=text_of(self._channel), state=state, event=text_of(self._event))
        return self.visitor.parts.deliveries.page(asked, limit=ROWS, cursor=cursor)

    def row(self, record: DeliveryRecord) -> dict[str, Any]:
        return {
            "id": str(record.delivery_id),
            "address": f"/notifications/{record.delivery_id}",
            "message": record.message.title,
            "colour": colour(COLOURS[record.state]),
            "state": words_of(record),
            "channel": record.channel or "deleted",
            "event": record.event.replace("_", " "),
            "written": clock(self.visitor.local(record.created_at)),
            "attempts": str(record.attempts),
            "last_error": record.last_error or "",
        }


def words_of(record: DeliveryRecord) -> str:
    return "being sent" if record.is_being_sent else record.state
