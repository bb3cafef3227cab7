"""Rows of notification_deliveries: one message for one channel, from the moment it is written until it has ended.

Whoever has something to tell writes; `sender.py` takes and settles; people list and repeat.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from services.notifications import deliveries_sql as sql
from services.notifications.messages import Message

WRITTEN_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDelivery:
    """`(rule_id, event, subject)` is written once, however often it is found. `due_at`: None is now."""

    channel_id: UUID
    rule_id: UUID | None  # None: a test, never a repetition of another
    event: str
    subject: str
    message: Message
    due_at: datetime | None = None


def write(connection: Connection, found: Collection[NewDelivery]) -> int:
    """In the caller's transaction: how many were new. One statement for each thousand."""
    rows = [
        {
            "channel_id": str(each.channel_id),
            "rule_id": None if each.rule_id is None else str(each.rule_id),
            "event": each.event,
            "subject": each.subject,
            "message": each.message.to_json(),
            "due_at": None if each.due_at is None else each.due_at.isoformat(),
        }
        for each in found
    ]
    written = 0
    for start in range(0, len(rows), WRITTEN_AT_ONCE):
        values = {"rows": json.dumps(rows[start : start + WRITTEN_AT_ONCE])}
        written += connection.exec_driver_sql(sql.WRITE, values).rowcount
    return written
