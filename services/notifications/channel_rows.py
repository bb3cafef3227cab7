"""Rows of notification_channels: where notifications go. A configuration is shown with its secrets masked."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID, uuid4

from sqlalchemy import Connection, Row, Select, delete, func, insert, literal, select, update
from sqlalchemy.exc import IntegrityError

from database.connection import DatabaseConnection
from database.models import NotificationChannel, NotificationDelivery
from database.pages import Keyset, PageOf
from database.sqlstates import UNIQUE_VIOLATION, sqlstate
from database.writing import again_if_lost
from enhanced_scheduler.texts import HIDDEN, json_size
from services.errors import ChannelNotFound, InvalidInput, Problem
from services.notifications import deliveries_sql as sql
from services.notifications.channels import apprise
from services.notifications.channels.kinds import Config, check_names, config_of
from services.notifications.channels.webhook import hidden_from, new_secret
from services.notifications.deliveries import COUNTED, Deliveries
from services.notifications.messages import Message
from services.schedules.field_rules import NOTE, Flag, JsonObject, OneOf, Rule, excerpt
from services.schedules.spec import plain_text

T = TypeVar("T")

MOST_CHANNELS = 200  # a claim looks at each of them
MAX_CONFIG_BYTES = 32 * 1024
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"


class ChannelKind(StrEnum):
    WEBHOOK = "webhook"
    EMAIL = "email"
    APPRISE = "apprise"


class ChannelName:
    def __call__(self, value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(NAME, value):
            allowed = "1 to 63 letters, digits, '.', '_' and '-', beginning with a letter or digit"
            raise ValueError(f"must be {allowed}, got {excerpt(value)}")
        return value

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{NAME}$"}


RULES: dict[str, Rule] = {
    "name": ChannelName(),
    "kind": OneOf(ChannelKind),
    "config": JsonObject(),
    "enabled": Flag(),
    "note": NOTE,
}
CHANGEABLE = ("config", "enabled", "note")
BY_NAME = Keyset(columns=(NotificationChannel.name,), descending=False)
FRESH = {"failures": 0, "failing_since": None, "resume_at": None, "last_error": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRecord:
    """`config` as it may be shown."""

    channel_id: UUID
    name: str
    kind: str
    config: Mapping[str, Any]
    enabled: bool
    note: str | None
    created_at: datetime
    created_by: str
    updated_at: datetime
    updated_by: str
    failures: int
    failing_since: datetime | None
    resume_at: datetime | None
    last_error: str | None
    last_sent_at: datetime | None
    waiting: int  # counted up to COUNTED

    @property
    def state(self) -> str:
        if not self.enabled:
            return "disabled"
        if self.failing_since is not None:
            return "failing"
        return "unused" if self.last_sent_at is None else "works"

    @property
    def waiting_words(self) -> str:
        return f"more than {COUNTED:,}" if self.waiting > COUNTED else f"{self.waiting:,}"


ChannelPage = PageOf[ChannelRecord]


@dataclass(frozen=True, slots=True)
class AddedChannel:
    """`secret`: the new one that signs a webhook's messages; never shown again."""

    record: ChannelRecord
    secret: str | None

    def __repr__(self) -> str:
        return f"AddedChannel({self.record.name})"


class Channels:
    """The only way in which our own programs write channels. Safe to share between threads."""

    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def page(self, *, limit: int = 50, cursor: str | None = None) -> ChannelPage:
        """By name."""
        query = BY_NAME.page(_select(), limit, cursor)
        with self._db.transaction() as connection:
            records = [_to_record(row) for row in connection.execute(query)]
        return BY_NAME.cut(records, limit)

    def find(self, name: str) -> ChannelRecord:
        with self._db.transaction() as connection:
            return _to_record(_present(connection, name))

    def add(self, given: Mapping[str, Any], actor: str) -> AddedChannel:
        """Raises InvalidInput with every wrong field."""
        values = checked(given, required=("name", "kind", "config"))
        secret, config = None, values["config"]
        if values["kind"] == ChannelKind.WEBHOOK and config.get("secret") is None:
            secret = new_secret()
            config = {**config, "secret": secret}
        values["config"] = _stored(values["kind"], config)

        def work(connection: Connection) -> ChannelRecord:
            if connection.execute(select(func.count()).select_from(NotificationChannel)).scalar_one() >= MOST_CHANNELS:
                raise InvalidInput(Problem("name", f"there are {MOST_CHANNELS} channels already; delete one first"))
            try:
                connection.execute(insert(NotificationChannel).values(**values, created_by=actor, updated_by=actor))
            except IntegrityError as error:
                if sqlstate(error) != UNIQUE_VIOLATION:
                    raise
                raise InvalidInput(Problem("name", f"channel {values['name']} already exists")) from None
            return _to_record(_present(connection, values["name"]))

        return AddedChannel(self._write(actor, work), secret)

    def edit(self, name: str, changes: Mapping[str, Any], actor: str) -> tuple[ChannelRecord, ChannelRecord]:
        """The channel before and after. Fields of `config` that are not given stay; null removes one.

        What waits is tried at once with the new configuration. Raises InvalidInput, ChannelNotFound.
        """
        values = checked(changes, known=CHANGEABLE)

        def work(connection: Connection) -> tuple[ChannelRecord, ChannelRecord]:
            row = _present(connection, name, lock=True)
            written = dict(values)
            if "config" in values:
                check_names(row.kind, values["config"])
                merged = {**row.stored, **values["config"]}
                kept = {field: value for field, value in merged.items() if value is not None}
                written["config"] = _stored(row.kind, kept)
                given = values["config"].get("headers")
                if row.kind == ChannelKind.WEBHOOK and not given and (told := hidden_from(row.stored, kept)):
                    raise InvalidInput(told)
            if written.get("config", row.stored) != row.stored or (written.get("enabled") and not row.enabled):
                written |= FRESH
            own = {**written, "updated_by": actor, "updated_at": func.clock_timestamp()}
            connection.execute(update(NotificationChannel).where(_is(row)).values(**own))
            return _to_record(row), _to_record(_present(connection, name))

        return self._write(actor, work)

    def delete(self, name: str, actor: str) -> ChannelRecord:
        """What waits for it is cancelled; the history stays. Raises ChannelNotFound."""
        deliveries, found = Deliveries(self._db), self.find(name)

        def work(connection: Connection) -> None:
            connection.execute(delete(NotificationChannel).where(_is(found)))

        deliveries.cancel(found.channel_id)  # before: whoever settles one of them locks the channel, too
        self._write(actor, work)
        deliveries.cancel(found.channel_id)
        return found

    def send_test(self, name: str, actor: str) -> UUID:
        """Writes a message that the next free replica sends, once. Raises InvalidInput, ChannelNotFound."""
        message = Message(
            event="test",
            title=f"Test of the notification channel {name}",
            text=f"{actor} has sent this message to see whether the channel works. It does.",
        )
        values = {"subject": str(uuid4()), "message": json.dumps(message.stored())}

        def work(connection: Connection) -> UUID:
            row = _present(connection, name)
            if not row.enabled:
                raise InvalidInput(Problem("channel", f"{name} is disabled; enable it first"))
            own = {"channel_id": row.channel_id.hex, **values}
            written: UUID = connection.exec_driver_sql(sql.WRITE_TEST, own).scalar_one()
            connection.exec_driver_sql(sql.TRY_NOW, {"channel_id": row.channel_id.hex})
            return written

        return self._write(actor, work)

    def _write(self, actor: str, work: Callable[[Connection], T]) -> T:
        plain_text("actor", actor)

        def transaction() -> T:
            with self._db.transaction() as connection:
                return work(connection)

        return again_if_lost(transaction)


def checked(
    given: Mapping[str, Any], *, known: Collection[str] = tuple(RULES), required: Collection[str] = ()
) -> dict[str, Any]:
    """The values in canonical form; raises InvalidInput with all problems."""
    problems = [Problem(field, "is required") for field in required if given.get(field) is None]
    values: dict[str, Any] = {}
    for field, value in given.items():
        if field not in known:
            reason = "cannot be changed; add another channel" if field in RULES else "is unknown"
            problems.append(Problem(field, f"{reason} (known: {', '.join(known)})"))
            continue
        try:
            values[field] = RULES[field](value)
        except ValueError as error:
            problems += [] if value is None and field in required else [Problem(field, str(error))]
    if problems:
        raise InvalidInput(*problems)
    return values


def _stored(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """As the kind's own schema spells it, without what is unset. Raises InvalidInput."""
    if HIDDEN in json.dumps(config):
        raise InvalidInput(Problem("config", f"contains {HIDDEN}, which stands for a secret; leave the field out"))
    if json_size(config) > MAX_CONFIG_BYTES:
        raise InvalidInput(Problem("config", f"has more than {MAX_CONFIG_BYTES:,} bytes as JSON"))
    found = config_of(kind, config)
    if isinstance(found, apprise.AppriseConfig) and (why := apprise.why_unusable(found)):
        raise InvalidInput(Problem("config.url", why))
    return found.model_dump(by_alias=True, exclude_none=True, mode="json")


def _shown(kind: str, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Empty for an invalid row that another program wrote."""
    try:
        found: Config = config_of(kind, stored)
    except (InvalidInput, KeyError):
        return {}
    return {name: value for name, value in found.shown().items() if value is not None}


def _select() -> Select[Any]:
    channel, delivery = NotificationChannel, NotificationDelivery
    some = (
        select(literal(1).label("one"))
        .where(delivery.channel_id == channel.channel_id, delivery.state == "waiting")
        .limit(COUNTED + 1)
        .correlate(channel)
        .subquery()
    )
    waiting = select(func.count()).select_from(some).scalar_subquery().correlate(channel)
    own = [getattr(channel, name) for name in ChannelRecord.__dataclass_fields__ if name not in ("config", "waiting")]
    return select(*own, channel.config.label("stored"), waiting.label("waiting"))


def _present(connection: Connection, name: str, *, lock: bool = False) -> Row[Any]:
    query = _select().where(NotificationChannel.name == plain_text("name", name))
    row = connection.execute(query.with_for_update(of=NotificationChannel) if lock else query).first()
    if row is None:
        raise ChannelNotFound(name)
    return row


def _is(row: Any) -> Any:
    return NotificationChannel.channel_id == row.channel_id


def _to_record(row: Row[Any]) -> ChannelRecord:
    values = dict(row._mapping)
    stored = values.pop("stored")
    return ChannelRecord(**values, config=_shown(values["kind"], stored))
