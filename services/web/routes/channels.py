"""/api/v3/channels: where notifications go."""

from typing import Annotated
from uuid import UUID

from fastapi import Path, Response

from services.notifications.channel_rows import ChannelKind
from services.notifications.channels.kinds import OF_ADMINS
from services.web.auth.guard import Admin, IdempotencyKey, Operator, Viewer
from services.web.auth.roles import Identity, Role
from services.web.parts import Parts
from services.web.problems import FORBIDDEN, HttpProblem
from services.web.routing import API, Cursor, Limit, PartsOf, router
from services.web.schemas.notifications import (
    AddedChannelOut,
    ChannelChanges,
    ChannelList,
    ChannelOut,
    DeliveryDetail,
    NewChannel,
    RepeatedOut,
)

channels = router(f"{API}/channels", "notifications")

ChannelName = Annotated[str, Path(description="Name of the channel.", examples=["ops"])]


@channels.get("")
def list_channels(parts: PartsOf, who: Viewer, limit: Limit = 50, cursor: Cursor = None) -> ChannelList:
    """A page of channels, by name, without their secrets."""
    page = parts.channels.page(limit=limit, cursor=cursor)
    return ChannelList(items=[ChannelOut.model_validate(record) for record in page.items], next_cursor=page.next_cursor)


@channels.post("", status_code=201)
def add_channel(
    body: NewChannel, response: Response, parts: PartsOf, who: Operator, key: IdempotencyKey = None
) -> AddedChannelOut:
    """Add a channel. Kind `apprise` requires an administrator, because its calls bypass the address guard."""
    given = body.given()
    _check_kind(who, str(given.get("kind")))
    added = parts.channels.add(given, who.actor)
    response.headers["Location"] = f"{API}/channels/{added.record.name}"
    return AddedChannelOut(**ChannelOut.model_validate(added.record).model_dump(), secret=added.secret)


@channels.get("/{name}")
def read_channel(name: ChannelName, parts: PartsOf, who: Viewer) -> ChannelOut:
    return ChannelOut.model_validate(parts.channels.find(name))


@channels.patch("/{name}")
def change_channel(name: ChannelName, body: ChannelChanges, parts: PartsOf, who: Operator) -> ChannelOut:
    """Change individual fields. A channel that failed is tried at once with its new configuration."""
    changes = body.given()
    if "config" in changes:
        _check_kind(who, parts.channels.find(name).kind)
    _, after = parts.channels.edit(name, changes, who.actor)
    return ChannelOut.model_validate(after)


@channels.delete("/{name}", status_code=204)
def delete_channel(name: ChannelName, parts: PartsOf, who: Admin) -> None:
    """Delete a channel. Its waiting messages are cancelled; the history of its deliveries stays."""
    parts.channels.delete(name, who.actor)


@channels.post("/{name}/test", status_code=202)
def send_test_message(name: ChannelName, parts: PartsOf, who: Operator, key: IdempotencyKey = None) -> DeliveryDetail:
    """Create a test message, which the next free replica sends once. Read the delivery for the result."""
    return detail_of(parts, parts.channels.send_test(name, who.actor))


@channels.post("/{name}/repeat", status_code=202)
def repeat_failed_deliveries(
    name: ChannelName, parts: PartsOf, who: Operator, key: IdempotencyKey = None
) -> RepeatedOut:
    """Send all failed deliveries of a channel again, oldest first, except tests."""
    return RepeatedOut(repeated=parts.deliveries.repeat_failed(parts.channels.find(name).channel_id, who.actor))


def detail_of(parts: Parts, delivery_id: UUID) -> DeliveryDetail:
    record = parts.deliveries.find(delivery_id)
    values = {name: getattr(record, name) for name in record.__dataclass_fields__}
    return DeliveryDetail.model_validate({**values, "tries": parts.deliveries.attempts(delivery_id)})


def _check_kind(who: Identity, kind: str) -> None:
    if kind in OF_ADMINS and not who.may(Role.ADMIN):
        raise HttpProblem(FORBIDDEN, f"a channel of kind {ChannelKind(kind)} requires the role {Role.ADMIN}")
