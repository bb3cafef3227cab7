"""Rows of notification_deliveries: one message for one channel, from the moment it is written until it has ended.

Notifier and tests write them; `sender.py` claims and settles them; users list and repeat them.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, Select, and_, func, select

from database.arrays import uuid_array
from database.connection import DatabaseConnection
from database.models import NotificationAttempt, NotificationChannel, NotificationDelivery
from database.pages import Keyset, PageOf
from database.writing import again_if_lost, delete_in_batches
from services.errors import DeliveryNotFound, InvalidInput, Problem
from services.notifications import deliveries_sql as sql
from services.notifications.messages import Message
from services.schedules.spec import plain_text

WRITTEN_AT_ONCE = 1000
BATCH = 1000
MOST_ATTEMPTS = 50  # shown
COUNTED = 1000  # of what waits for a channel
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 300.0
GIVE_UP_SECONDS = 3 * 86_400.0
LIMIT = "SELECT clock_timestamp() - make_interval(days => %(days)s)"


class DeliveryState(StrEnum):
    WAITING = "waiting"
    SENT = "sent"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDelivery:
    """`(rule_id, event, subject)` is written once, however often it is found. `due_at`: None is now."""

    channel_id: UUID
    rule_id: UUID | None  # None: a test, never a repetition of another
    event: str
    subject: str
    message: Message
    due_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to send one delivery, until it expires."""

    delivery_id: UUID
    channel_id: UUID
    event: str
    message: Mapping[str, Any]
    created_at: datetime
    attempts: int
    claim_token: UUID
    name: str  # of the channel, like what follows
    kind: str
    config: Mapping[str, Any]
    is_probe: bool
    lost: int


@dataclass(frozen=True, slots=True)
class Settled:
    """The state of a delivery after a failed attempt."""

    state: str
    failures: int | None  # of the channel, in a row; None if it is gone
    is_old: bool | None  # it has been failing for so long that what waits for it is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    waiting: int
    oldest_seconds: float
    failing: int
    failing_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    number: int
    instance_id: str
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    answer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRecord:
    delivery_id: UUID
    channel_id: UUID
    channel: str | None  # None: it was deleted
    rule_id: UUID | None
    event: str
    subject: str
    message: Message
    state: str
    is_being_sent: bool
    created_at: datetime
    due_at: datetime
    next_at: datetime | None  # of the next attempt; None: at once, or never again
    ended_at: datetime | None
    attempts: int
    last_error: str | None
    repeated_by: str | None


DeliveryPage = PageOf[DeliveryRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    channel: str | None = None
    state: str | None = None
    event: str | None = None


NEWEST_FIRST = Keyset(columns=(NotificationDelivery.created_at, NotificationDelivery.delivery_id))


def write(connection: Connection, found: Collection[NewDelivery]) -> int:
    """In the caller's transaction: how many were new. One statement for each thousand."""
    rows = [
        {
            "channel_id": str(each.channel_id),
            "rule_id": None if each.rule_id is None else str(each.rule_id),
            "event": each.event,
            "subject": each.subject,
            "message": each.message.stored(),
            "due_at": None if each.due_at is None else each.due_at.isoformat(),
        }
        for each in found
    ]
    written = 0
    for start in range(0, len(rows), WRITTEN_AT_ONCE):
        values = {"rows": json.dumps(rows[start : start + WRITTEN_AT_ONCE])}
        written += connection.exec_driver_sql(sql.WRITE, values).rowcount
    return written


class Deliveries:
    """Safe to share between threads."""

    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    # --- for the sender ---

    def channels_due(self, most: int) -> int:
        (row,) = self._db.run_alone(sql.LOOK, {"most": most})
        return int(row.channels)

    def claim(self, owner: str, seconds: float, busy: Iterable[UUID], *, probes: bool) -> Claim | None:
        """`busy` are channels that wait for the caller already; `probes`: also from channels that fail."""
        values = {"owner": owner, "seconds": seconds, "busy": uuid_array(busy), "probes": probes}
        row = next(iter(self._db.run_alone(sql.CLAIM, values)), None)
        return None if row is None else Claim(**row._mapping)

    def note_sent(self, claim: Claim, answer: str) -> tuple[bool, datetime | None]:
        """Whether the claim still held, and since when the channel had been failing."""
        values = {"delivery_id": claim.delivery_id.hex, "token": claim.claim_token.hex, "answer": answer}
        row = next(iter(self._db.run_alone(sql.SENT, values)), None)
        return (False, None) if row is None else (True, row.failing_since)

    def note_failed(self, claim: Claim, answer: str, retry_after_seconds: float | None) -> Settled | None:
        """None: the claim had expired, and another replica sends it."""
        values = {
            "delivery_id": claim.delivery_id.hex,
            "token": claim.claim_token.hex,
            "answer": answer,
            "first": FIRST_PAUSE_SECONDS,
            "longest": LONGEST_PAUSE_SECONDS,
            "give_up": GIVE_UP_SECONDS,
            "retry_after": None if retry_after_seconds is None else min(retry_after_seconds, 3600.0),
        }
        row = next(iter(self._db.run_alone(sql.FAILED, values)), None)
        return None if row is None else Settled(**row._mapping)

    def give_up(self, channel_id: UUID, reason: str) -> int:
        """Up to a batch that waited too long for a failing channel; the next attempt takes the next batch."""
        values = {"channel_id": channel_id.hex, "give_up": GIVE_UP_SECONDS, "reason": reason, "batch": BATCH}
        with self._db.transaction() as connection:
            return connection.exec_driver_sql(sql.GIVE_UP, values).rowcount

    def figures(self) -> Figures:
        """Waiting ones are counted up to a thousand for each channel."""
        (row,) = self._db.run_alone(sql.FACTS, {"most": COUNTED})
        return Figures(**row._mapping)

    # --- for people ---

    def page(
        self, asked: DeliveryFilter = DeliveryFilter(), *, limit: int = 50, cursor: str | None = None
    ) -> DeliveryPage:
        """Newest first. Raises InvalidInput."""
        query = NEWEST_FIRST.page(_filtered(asked), limit, cursor)
        with self._db.transaction() as connection:
            records = [_to_record(row) for row in connection.execute(query)]
        return NEWEST_FIRST.cut(records, limit)

    def find(self, delivery_id: UUID) -> DeliveryRecord:
        with self._db.transaction() as connection:
            row = connection.execute(_select().where(NotificationDelivery.delivery_id == delivery_id)).first()
        if row is None:
            raise DeliveryNotFound(delivery_id)
        return _to_record(row)

    def attempts(self, delivery_id: UUID) -> list[Attempt]:
        """Newest first, up to a limit."""
        columns = [getattr(NotificationAttempt, name) for name in Attempt.__dataclass_fields__]
        query = select(*columns).where(NotificationAttempt.delivery_id == delivery_id)
        with self._db.transaction() as connection:
            rows = connection.execute(query.order_by(NotificationAttempt.number.desc()).limit(MOST_ATTEMPTS))
            return [Attempt(**row._mapping) for row in rows]

    def repeat(self, delivery_id: UUID, actor: str) -> DeliveryRecord:
        """Send it again, with the same id, whatever its state. Raises InvalidInput, DeliveryNotFound."""
        values = {"delivery_id": delivery_id.hex, "actor": actor}
        with self._db.transaction() as connection:
            row = connection.exec_driver_sql(sql.REPEAT, values).first()
            if row is not None:
                connection.exec_driver_sql(sql.TRY_NOW, {"channel_id": row.channel_id.hex})
        found = self.find(delivery_id)
        if row is None:
            gone = "its channel was deleted" if found.channel is None else "it is being sent at this moment"
            raise InvalidInput(Problem("delivery", gone))
        return found

    def repeat_failed(self, channel_id: UUID, actor: str) -> int:
        """All failed ones of a channel, oldest first, except tests."""
        values = {"channel_id": channel_id.hex, "actor": actor, "batch": BATCH}
        repeated = self._in_batches(sql.REPEAT_FAILED, values)
        if repeated:
            self._db.run_alone(sql.TRY_NOW, {"channel_id": channel_id.hex})
        return repeated

    def cancel(self, channel_id: UUID) -> int:
        """Cancel the deliveries that wait for a channel which is being deleted."""
        return self._in_batches(sql.CANCEL, {"channel_id": channel_id.hex, "batch": BATCH})

    def delete_old(self, days: int) -> int:
        """How many; their attempts go with them."""
        self._in_batches(sql.CANCEL_ORPHANS, {"batch": BATCH})
        with self._db.transaction() as connection:
            limit = connection.exec_driver_sql(LIMIT, {"days": days}).scalar_one()
        values = {"limit": limit, "since": datetime.min.replace(tzinfo=UTC), "batch": BATCH}
        return delete_in_batches(self._db, sql.DELETE, values)

    def _in_batches(self, statement: str, values: Mapping[str, Any]) -> int:
        def batch() -> int:
            with self._db.transaction() as connection:
                return connection.exec_driver_sql(statement, dict(values)).rowcount

        total = 0
        while changed := again_if_lost(batch):
            total += changed
        return total


def _select() -> Select[Any]:
    delivery, channel = NotificationDelivery, NotificationChannel
    own = [
        getattr(delivery, name)
        for name in DeliveryRecord.__dataclass_fields__
        if name not in ("channel", "is_being_sent")
    ]
    is_claimed = and_(delivery.claim_token.is_not(None), delivery.next_at > func.clock_timestamp())
    query = select(*own, channel.name.label("channel"), is_claimed.label("is_being_sent"))
    return query.outerjoin(channel, channel.channel_id == delivery.channel_id)


def _filtered(asked: DeliveryFilter) -> Select[Any]:
    query = _select()
    if asked.channel is not None:
        named = select(NotificationChannel.channel_id).where(
            NotificationChannel.name == plain_text("channel", asked.channel)
        )
        query = query.where(NotificationDelivery.channel_id == named.scalar_subquery())
    if asked.state is not None:
        if asked.state not in list(DeliveryState):
            raise InvalidInput(
                Problem("state", f"must be one of {', '.join(DeliveryState)}, got {asked.state[:100]!r}")
            )
        query = query.where(NotificationDelivery.state == asked.state)
    if asked.event is not None:
        query = query.where(NotificationDelivery.event == plain_text("event", asked.event))
    return query


def _to_record(row: Row[Any]) -> DeliveryRecord:
    values = dict(row._mapping)
    if values["next_at"] is not None and values["next_at"] < values["created_at"]:
        values["next_at"] = None  # first in line
    return DeliveryRecord(**{**values, "message": Message.from_json(values["message"])})
