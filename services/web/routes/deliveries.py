"""/api/v3/deliveries: notifications that were sent, wait or have failed."""

from typing import Annotated
from uuid import UUID

from fastapi import Path, Query

from services.notifications.deliveries import DeliveryFilter, DeliveryState
from services.web.auth.guard import IdempotencyKey, Operator, Viewer
from services.web.routes.channels import detail_of
from services.web.routing import API, Cursor, Limit, PartsOf, router
from services.web.schemas.notifications import DeliveryDetail, DeliveryList, DeliveryOut

deliveries = router(f"{API}/deliveries", "notifications")

DeliveryId = Annotated[UUID, Path(description="Id of the delivery.")]
OfChannel = Annotated[
    str | None, Query(max_length=63, description="Only deliveries of this channel.", examples=["ops"])
]
OfState = Annotated[DeliveryState | None, Query(description="Only deliveries in this state.")]
OfEvent = Annotated[str | None, Query(max_length=63, description="Only deliveries of this event.", examples=["failed"])]


@deliveries.get("")
def list_deliveries(
    parts: PartsOf,
    who: Viewer,
    channel: OfChannel = None,
    state: OfState = None,
    event: OfEvent = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> DeliveryList:
    """A page of deliveries, newest first."""
    page = parts.deliveries.page(DeliveryFilter(channel=channel, state=state, event=event), limit=limit, cursor=cursor)
    return DeliveryList(
        items=[DeliveryOut.model_validate(record) for record in page.items], next_cursor=page.next_cursor
    )


@deliveries.get("/{delivery_id}")
def read_delivery(delivery_id: DeliveryId, parts: PartsOf, who: Viewer) -> DeliveryDetail:
    """A delivery with its message, and every attempt to send it."""
    return detail_of(parts, delivery_id)


@deliveries.post("/{delivery_id}/repeat", status_code=202)
def repeat_delivery(
    delivery_id: DeliveryId, parts: PartsOf, who: Operator, key: IdempotencyKey = None
) -> DeliveryDetail:
    """Send it again at once, under the same id, whatever its state."""
    parts.deliveries.repeat(delivery_id, who.actor)
    return detail_of(parts, delivery_id)
