"""Limits across schedules: rows of `limits`, each for one key, or for every key that begins as its pattern does.

`max_running` counts the executions that may run at once, of all schedules with the key, over all replicas. A schedule
has the keys of its `limit_keys`, and `job:<type>` by itself. Of several limits one counts for a key: its own, otherwise
the longest pattern. Replicas read the table with every claim, so a change holds from the next start on.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from database.connection import DatabaseConnection
from database.models import Limit, LimitChange
from database.pages import Keyset, PageOf
from database.sqlstates import UNIQUE_VIOLATION, sqlstate
from database.writing import write_as
from services.errors import InvalidInput, LimitNotFound, Problem
from services.schedules.field_rules import ANY, LIMIT_NAME, MAX_RUNNING, NOTE, Flag, Rule
from services.schedules.spec import plain_text

T = TypeVar("T")

MOST_CHANGES = 20
FORGOTTEN_AT_ONCE = 5000
FORGET = """
DELETE FROM limit_changes WHERE change_id = ANY(ARRAY(
    SELECT change_id FROM limit_changes WHERE changed_at < (SELECT now() - make_interval(days => %(days)s))
    ORDER BY changed_at LIMIT %(batch)s))
"""

RULES: dict[str, Rule] = {
    "name": LIMIT_NAME,
    "max_running": MAX_RUNNING,
    "enabled": Flag(),
    "note": NOTE,
}
CHANGEABLE = tuple(name for name in RULES if name != "name")  # another key is another limit
BY_NAME = Keyset(columns=(Limit.name,), descending=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRecord:
    """A row of `limits`."""

    name: str
    max_running: int
    enabled: bool
    note: str | None
    created_at: datetime
    updated_at: datetime

    @property
    def is_pattern(self) -> bool:
        return self.name.endswith(ANY)

    @property
    def stops(self) -> bool:
        """Nothing with its keys starts."""
        return self.enabled and self.max_running == 0


LimitPage = PageOf[LimitRecord]


@dataclass(frozen=True, slots=True)
class LimitChanged:
    """One change of a limit: actor, time, old and new values."""

    changed_at: datetime
    changed_by: str
    operation: str
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None

    @property
    def differences(self) -> dict[str, tuple[Any, Any]]:
        return differences(self.old or {}, self.new or {})


class Limits:
    """The only way in which our own programs write limits. Safe to share between threads."""

    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def page(self, *, limit: int = 50, cursor: str | None = None) -> LimitPage:
        """By name; `next_cursor` leads to the next page and is None on the last."""
        query = BY_NAME.page(_select(), limit, cursor)
        with self._db.transaction() as connection:
            records = [_to_record(row) for row in connection.execute(query)]
        return BY_NAME.cut(records, limit)

    def get(self, name: str) -> LimitRecord | None:
        with self._db.transaction() as connection:
            return _read(connection, plain_text("name", name))

    def find(self, name: str) -> LimitRecord:
        if (found := self.get(name)) is None:
            raise LimitNotFound(name)
        return found

    def add(self, given: Mapping[str, Any], actor: str) -> LimitRecord:
        """Raises InvalidInput with every wrong field."""
        values = checked(given, required=("name", "max_running"))

        def write(connection: Connection) -> LimitRecord:
            try:
                connection.execute(insert(Limit).values(values))
            except IntegrityError as error:
                if sqlstate(error) != UNIQUE_VIOLATION:
                    raise
                reason = f"limit {values['name']} already exists; change it instead"
                raise InvalidInput(Problem("name", reason)) from None
            return _present(connection, values["name"])

        return self._write(actor, write)

    def edit(self, name: str, changes: Mapping[str, Any], actor: str) -> tuple[LimitRecord, LimitRecord]:
        """The limit before and after. Without a difference nothing is written. Raises InvalidInput, LimitNotFound."""
        values = checked(changes, known=CHANGEABLE)

        def write(connection: Connection) -> tuple[LimitRecord, LimitRecord]:
            before = _present(connection, name, lock=True)
            if all(getattr(before, field) == value for field, value in values.items()):
                return before, before
            connection.execute(update(Limit).where(Limit.name == name).values(values))
            return before, _present(connection, name)

        return self._write(actor, write)

    def delete(self, name: str, actor: str) -> LimitRecord:
        """What waits for it may start then, if no other limit holds it. Raises LimitNotFound."""

        def write(connection: Connection) -> LimitRecord:
            found = _present(connection, name, lock=True)
            connection.execute(delete(Limit).where(Limit.name == name))
            return found

        return self._write(actor, write)

    def changes(self, name: str, limit: int = MOST_CHANGES) -> list[LimitChanged]:
        """Newest first; also of a deleted limit."""
        columns = [getattr(LimitChange, item.name) for item in fields(LimitChanged)]
        query = select(*columns).where(LimitChange.name == plain_text("name", name))
        with self._db.transaction() as connection:
            found = connection.execute(query.order_by(LimitChange.change_id.desc()).limit(limit))
            return [LimitChanged(**row._mapping) for row in found]

    def forget_changes(self, days: int) -> int:
        """Deletes the oldest changes before that, a bounded number at once."""
        with self._db.transaction() as connection:
            values = {"days": days, "batch": FORGOTTEN_AT_ONCE}
            return connection.exec_driver_sql(FORGET, values).rowcount

    def _write(self, actor: str, work: Callable[[Connection], T]) -> T:
        return write_as(self._db, plain_text("actor", actor), work)


def checked(
    given: Mapping[str, Any], *, known: Collection[str] = tuple(RULES), required: Collection[str] = ()
) -> dict[str, Any]:
    """The values in canonical form; raises InvalidInput with all problems."""
    problems = [Problem(field, "is required") for field in required if field not in given]
    values: dict[str, Any] = {}
    for field, value in given.items():
        if field not in known:
            reason = "cannot be changed; add another limit and delete this one" if field in RULES else "is unknown"
            problems.append(Problem(field, f"{reason} (known: {', '.join(known)})"))
            continue
        try:
            values[field] = RULES[field](value)
        except ValueError as error:
            problems.append(Problem(field, str(error)))
    if problems:
        raise InvalidInput(*problems)
    return values


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Field -> old and new value."""
    return {name: (old.get(name), new.get(name)) for name in CHANGEABLE if old.get(name) != new.get(name)}


def _select() -> Select[Any]:
    return select(*(getattr(Limit, item.name) for item in fields(LimitRecord)))


def _present(connection: Connection, name: str, *, lock: bool = False) -> LimitRecord:
    found = _read(connection, plain_text("name", name), lock=lock)
    if found is None:
        raise LimitNotFound(name)
    return found


def _read(connection: Connection, name: str, *, lock: bool = False) -> LimitRecord | None:
    query = _select().where(Limit.name == name)
    row = connection.execute(query.with_for_update() if lock else query).first()
    return None if row is None else _to_record(row)


def _to_record(row: Row[Any]) -> LimitRecord:
    return LimitRecord(**row._mapping)
