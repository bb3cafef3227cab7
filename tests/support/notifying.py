"""Channels, deliveries and a sender for tests; an hour passes by moving the columns, not by sleeping."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

from config import Settings
from database.connection import DatabaseConnection
from services.notifications.channel_rows import Channels
from services.notifications.deliveries import Deliveries, DeliveryRecord, NewDelivery, write
from services.notifications.messages import Message
from services.notifications.sender import Sender
from tests.support.ledger import Request

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


class Notifying:
    def __init__(self, db: DatabaseConnection) -> None:
        self.db, self.channels, self.deliveries = db, Channels(db), Deliveries(db)

    def webhook(self, url: str, name: str = "hook", **config: Any) -> UUID:
        given = {"name": name, "kind": "webhook", "config": {"url": url, "secret": SECRET, **config}}
        return self.channels.add(given, "test").record.channel_id

    def email(self, port: int, name: str = "mail", **config: Any) -> UUID:
        given = {"host": "127.0.0.1", "port": port, "security": "none", "from": "us@a.example", "to": ["ops@a.example"]}
        values = {"name": name, "kind": "email", "config": {**given, **config}}
        return self.channels.add(values, "test").record.channel_id

    def tell(self, channel_id: UUID, *subjects: str, **message: Any) -> None:
        """A delivery for each subject, as a rule writes them."""
        given = {"title": "nightly-export failed", "event": "failed", **message}
        new = [
            NewDelivery(
                channel_id=channel_id, rule_id=uuid4(), event="failed", subject=subject, message=Message(**given)
            )
            for subject in subjects or ("one",)
        ]
        with self.db.transaction() as connection:
            assert write(connection, new) == len(new)

    def all(self) -> list[DeliveryRecord]:
        """Oldest first."""
        return self.deliveries.page(limit=1000).items[::-1]

    def states(self) -> list[str]:
        return [delivery.state for delivery in self.all()]

    def run(self, statement: str, *values: Any) -> None:
        with self.db.transaction() as connection:
            connection.exec_driver_sql(statement, values)

    def pass_seconds(self, seconds: float) -> None:
        """For whatever waits: everything that was noted is so much older."""
        self.run("UPDATE notification_channels SET resume_at = resume_at - %s * interval '1 s'", seconds)
        self.run("UPDATE notification_channels SET failing_since = failing_since - %s * interval '1 s'", seconds)
        for column in ("due_at", "next_at", "tried_since"):
            self.run(f"UPDATE notification_deliveries SET {column} = {column} - %s * interval '1 s'", seconds)


def sender_of(db: DatabaseConnection, secrets: Mapping[str, str] = {}, **settings: Any) -> Sender:
    """One that may reach this machine."""
    given = {"fetch_allow_private_addresses": True, "instance_id": "replica-1", "request_timeout": 2, **settings}
    return Sender(Settings(_env_file=None, **given), db, secrets.get)


def send_all(sender: Sender, most: int = 1000) -> int:
    """How many attempts were made until nothing was due."""
    return next(count for count in range(most + 1) if not sender.send_one())


def is_signed(request: Request, secret: str = SECRET) -> bool:
    """As the specification of Standard Webhooks says it, and without our own code."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    text = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.{request.body.decode()}"
    expected = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
    return f"v1,{expected}" in request.headers["webhook-signature"].split(" ")
