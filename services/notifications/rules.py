"""Rules: rows of `notification_rules`, each saying which events go to which channels. The only writer of them."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Connection, Row
from sqlalchemy.exc import IntegrityError

from database.connection import DatabaseConnection
from database.models import NotificationRule
from database.pages import Keyset, PageOf
from database.sqlstates import UNIQUE_VIOLATION, sqlstate
from database.writing import write_as
from services.errors import InvalidInput, Problem, RuleNotFound
from services.notifications import rules_sql as sql
from services.notifications.rule_fields import FIELDS, RuleSpec, parse_rule, suggestion
from services.schedules.spec import plain_text
from services.wording.commands import as_called_here

T = TypeVar("T")

BY_NAME = Keyset(columns=(NotificationRule.name,), descending=False)
MOST_RULES = 1000  # that tell at once: the notifier judges everything by each of them
DELETED = "(deleted"  # no name begins so


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRecord(RuleSpec):
    """A row of `notification_rules`; `channels` are their present names."""

    rule_id: UUID
    channel_ids: list[UUID]
    created_at: datetime
    created_by: str
    updated_at: datetime
    updated_by: str

    @property
    def given(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in FIELDS}

    @property
    def problem(self) -> str | None:
        """Why an invalid row that another program wrote sends nothing."""
        try:
            parse_rule({**self.given, "channels": ["any"]})  # they are known by their ids
        except InvalidInput as error:
            return str(error)
        return None

    def tells(self, event: str) -> bool:
        return event in self.events


RulePage = PageOf[RuleRecord]


class Rules:
    """Safe to share between threads."""

    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def page(self, *, limit: int = 50, cursor: str | None = None) -> RulePage:
        query = BY_NAME.page(sql.select_rules(), limit, cursor)
        with self._db.transaction() as connection:
            records = [_to_record(row) for row in connection.execute(query)]
        return BY_NAME.cut(records, limit)

    def find(self, name_or_id: str) -> RuleRecord:
        """Raises RuleNotFound."""
        with self._db.transaction() as connection:
            return _present(connection, name_or_id)

    def add(self, given: Mapping[str, Any], actor: str) -> RuleRecord:
        """Raises InvalidInput with every wrong field."""
        spec = parse_rule(given)

        def write(connection: Connection) -> RuleRecord:
            row = _row(connection, spec)
            if spec.enabled:
                _check_room(connection)
            try:
                connection.exec_driver_sql(sql.ADD, {**row, "actor": actor})
            except IntegrityError as error:
                raise _taken(error, spec.name) from None
            return _present(connection, spec.name)

        return self._write(actor, write)

    def edit(self, name_or_id: str, changes: Mapping[str, Any], actor: str) -> tuple[RuleRecord, RuleRecord]:
        """The rule before and after; without a difference nothing is written. Raises InvalidInput, RuleNotFound."""

        def write(connection: Connection) -> tuple[RuleRecord, RuleRecord]:
            before = _present(connection, name_or_id, lock=True)
            spec = parse_rule({**_without_deleted(before, changes), **changes})
            if asdict(spec) == before.given:
                return before, before
            if spec.enabled and not before.enabled:
                _check_room(connection)
            values = {**_row(connection, spec), "rule_id": before.rule_id, "actor": actor}
            try:
                connection.exec_driver_sql(sql.CHANGE, values)
            except IntegrityError as error:
                raise _taken(error, spec.name) from None
            unwatched = (
                before.events
                if not (spec.enabled and before.enabled)
                else [each for each in before.events if each not in spec.events]
            )
            connection.exec_driver_sql(sql.FORGET, {"rule_id": before.rule_id, "events": unwatched})
            return before, _present(connection, str(before.rule_id))

        return self._write(actor, write)

    def delete(self, name_or_id: str, actor: str) -> RuleRecord:
        """With its incidents; its deliveries stay. Raises RuleNotFound."""

        def write(connection: Connection) -> RuleRecord:
            found = _present(connection, name_or_id, lock=True)
            connection.exec_driver_sql("DELETE FROM notification_rules WHERE rule_id = %(id)s", {"id": found.rule_id})
            return found

        return self._write(actor, write)

    def _write(self, actor: str, work: Callable[[Connection], T]) -> T:
        return write_as(self._db, plain_text("actor", actor), work)


def enabled_rules(connection: Connection) -> list[RuleRecord]:
    return [_to_record(row) for row in connection.execute(sql.select_enabled(MOST_RULES))]


def differences(before: RuleRecord, after: RuleRecord) -> dict[str, tuple[Any, Any]]:
    return {name: (old, new) for name, old in before.given.items() if (new := after.given[name]) != old}


def _without_deleted(before: RuleRecord, changes: Mapping[str, Any]) -> dict[str, Any]:
    """A channel that was deleted has no name: it leaves the rule with the next change of its channels."""
    if "channels" in changes:
        return before.given
    if any(name.startswith(DELETED) for name in before.channels):
        gone = Problem("channels", "one of its channels was deleted: name the channels to use from now on")
        raise InvalidInput(gone)
    return before.given


def _row(connection: Connection, spec: RuleSpec) -> dict[str, Any]:
    values = asdict(spec)
    names = values.pop("channels")
    known: dict[str, UUID] = {row.name: row.channel_id for row in connection.exec_driver_sql(sql.CHANNELS)}
    missing = [name for name in names if name not in known]
    if missing:
        listed = (
            f" (known: {', '.join(list(known)[:20])})" if known else as_called_here("; add one: manage.py channel add")
        )
        reasons = [
            f"no channel {name!r} exists{suggestion(name, {each.lower(): each for each in known})}" for name in missing
        ]
        raise InvalidInput(Problem("channels", ", ".join(reasons) + listed))
    return {**values, "channel_ids": [known[name] for name in names]}


def _check_room(connection: Connection) -> None:
    if connection.exec_driver_sql(sql.COUNT_ENABLED).scalar_one() >= MOST_RULES:
        raise InvalidInput(Problem("enabled", f"{MOST_RULES:,} rules are enabled already; disable or delete one first"))


def _taken(error: IntegrityError, name: str) -> Exception:
    if sqlstate(error) != UNIQUE_VIOLATION:
        return error
    return InvalidInput(Problem("name", f"rule {name} already exists; change it instead"))


def _present(connection: Connection, name_or_id: str, *, lock: bool = False) -> RuleRecord:
    wanted = plain_text("rule", name_or_id)
    row: Row[Any] | None = connection.execute(sql.select_one(wanted, lock=lock)).first()
    if row is None:
        raise RuleNotFound(wanted)
    return _to_record(row)


def _to_record(row: Row[Any]) -> RuleRecord:
    values = dict(row._mapping)
    named = zip(row.channels, row.channel_ids, strict=True)
    values["channels"] = [name or f"{DELETED} {channel_id})" for name, channel_id in named]
    return RuleRecord(**values)
