"""One bulk write of schedules: sorts items into new, changed and refused, then runs one INSERT and one UPDATE.

Existing rows are locked in id order before any decision. Every writer of several schedules must do the same.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, cast
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, or_, select, text

from database.models import ScanProfile, Schedule, Source
from services.errors import InvalidSchedule, Problem
from services.jobs import JobRegistry
from services.schedules.announced import announced_types
from services.schedules.spec import DEFINITION_FIELDS, ScheduleSpec, config_id, normal_key, parse_spec, parse_uuid

TIMING_FIELDS = frozenset({"frequency", "time_config", "timezone", "start_at", "end_at", "enabled"})

# How an item finds its row: by its id, otherwise its name; by the external system's configuration; not at all.
Match = Literal["identity", "api", "new"]

# Unique keys that a bulk save has used: (field, value) -> index of the item. UUIDs as bytes: there may be millions.
Taken = dict[tuple[str, str | bytes], int]


class Action(StrEnum):
    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRecord(ScheduleSpec):
    """A row of `schedules`."""

    schedule_id: UUID
    next_run: datetime | None
    last_run: datetime | None
    last_status: str | None
    invalid_reason: str | None
    failures_in_a_row: int
    backoff_until: datetime | None
    revision: int
    effective_from: datetime
    created_at: datetime
    updated_at: datetime

    @property
    def job_id(self) -> str:
        """The id of this schedule in the history: its name, if it has one."""
        return self.name or str(self.schedule_id)

    @property
    def label(self) -> str:
        """The display name."""
        return self.name or self.domain

    @property
    def backs_off_until(self) -> datetime | None:
        """Its fires before this instant are skipped."""
        return self.backoff_until if self.enabled and self.backoff_after_failures is not None else None

    def definition(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in DEFINITION_FIELDS}

    def changed_by(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The whole definition after a change; enabling a schedule clears its note, as in the table."""
        cleared = {"disabled_note": None} if given.get("enabled") is True else {}
        return {**self.definition(), **cleared, **given}


# Adapts an item to the row it matched: (index, given fields, locked row) -> fields to write.
Adjust = Callable[[int, Mapping[str, Any], ScheduleRecord], Mapping[str, Any]]

# The plain table: the ORM's own bulk operations cost several times as much.
TABLE = cast(Table, Schedule.__table__)
RECORD_COLUMNS = [TABLE.c[item.name] for item in fields(ScheduleRecord)]

# All rows travel as one JSON parameter: thousands of bind parameters would cost more than the write itself.
_WRITTEN = ("schedule_id", *DEFINITION_FIELDS, "next_run")
_ROWS = "json_populate_recordset(NULL::schedules, CAST(:rows AS json)) AS given"
INSERT = text(f"INSERT INTO schedules ({', '.join(_WRITTEN)}) SELECT {', '.join(_WRITTEN)} FROM {_ROWS}")  # noqa: S608
UPDATE = text(
    f"UPDATE schedules SET {', '.join(f'{name} = given.{name}' for name in _WRITTEN)} FROM {_ROWS} "  # noqa: S608
    "WHERE schedules.schedule_id = given.schedule_id"
)


def _as_json(rows: list[dict[str, Any]]) -> str:
    return json.dumps(rows, default=str)  # Postgres reads UUIDs and timestamps from their text form


def to_record(row: Row[Any]) -> ScheduleRecord:
    return ScheduleRecord(**row._mapping)


@dataclass(frozen=True, slots=True)
class Saved:
    """The result for one item of a bulk write."""

    index: int
    action: Action
    label: str
    schedule_id: UUID | None = None
    changes: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class _Item:
    """One schedule to save: the given fields, and the keys by which its row is found."""

    index: int
    given: Mapping[str, Any]
    schedule_id: UUID | None
    config_id: UUID | None
    name: str | None

    @property
    def label(self) -> str:
        return str(self.given.get("name") or self.given.get("domain") or f"item {self.index + 1}")

    @classmethod
    def read(cls, index: int, fields_given: Mapping[str, Any]) -> "_Item":
        given = dict(fields_given)
        schedule_id = given.pop("schedule_id", None)
        config = normal_key("domain_config_id", given.get("domain_config_id"))
        if given.get("external_id") is None:
            given.pop("external_id", None)  # it follows from domain_config_id
        return cls(
            index,
            given,
            None if schedule_id is None else parse_uuid(schedule_id, "schedule_id"),
            None if config is None else config_id(config),
            normal_key("name", given.get("name")),
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    """A valid item: the values its row will have, and the resulting changes."""

    item: _Item
    schedule_id: UUID
    spec: ScheduleSpec
    existing: ScheduleRecord | None
    changes: dict[str, tuple[Any, Any]]

    @property
    def action(self) -> Action:
        if self.existing is None:
            return Action.CREATED
        return Action.UPDATED if self.changes else Action.UNCHANGED

    def values(self, now: datetime) -> dict[str, Any]:
        row = {name: getattr(self.spec, name) for name in DEFINITION_FIELDS}
        row["schedule_id"] = self.schedule_id
        # The replicas advance next_run; only a new timing resets it.
        same_timing = self.existing is not None and not TIMING_FIELDS & self.changes.keys()
        row["next_run"] = self.existing.next_run if self.existing and same_timing else self.spec.next_run_after(now)
        return row


def _changes(existing: ScheduleRecord | None, spec: ScheduleSpec) -> dict[str, tuple[Any, Any]]:
    """Field -> old and new value."""
    if existing is None:
        return {}
    pairs = ((name, getattr(existing, name), getattr(spec, name)) for name in DEFINITION_FIELDS)
    return {name: (old, new) for name, old, new in pairs if old != new}


class ScheduleBatch:
    """`plan` decides and locks, `write` writes; a dry run stops between the two.

    `before` holds the keys used by previous batches of the same save; `taken` holds those that this one adds.
    """

    def __init__(
        self,
        connection: Connection,
        jobs: JobRegistry,
        match: Match = "identity",
        before: Taken | None = None,
        adjust: Adjust = lambda _index, given, _existing: given,
    ) -> None:
        self._connection, self._jobs, self._match, self._adjust = connection, jobs, match, adjust
        self._before = before or {}
        self._types: frozenset[str] | None = None
        self.taken: Taken = {}
        self._plans: list[_Plan] = []
        self._refused: list[Saved] = []

    @property
    def results(self) -> list[Saved]:
        saved = [
            Saved(plan.item.index, plan.action, plan.item.label, plan.schedule_id, plan.changes) for plan in self._plans
        ]
        return sorted([*saved, *self._refused], key=lambda result: result.index)

    def plan(self, items: Iterable[tuple[int, Mapping[str, Any]]], *, lock: bool = True) -> None:
        """Decide for each (index, fields) whether it is new, changed, unchanged or refused."""
        readable = []
        for index, given in items:
            try:
                readable.append(_Item.read(index, given))
            except InvalidSchedule as error:
                self._refused.append(Saved(index, Action.REFUSED, f"item {index + 1}", problems=error.problems))
        neighbours = _Neighbours(self._read_existing(readable, lock), self._match, self._before, self.taken)
        for item in readable:
            try:
                plan = self._plan_one(item, neighbours.find(item))
                neighbours.check_room_for(plan)
            except InvalidSchedule as error:
                self._refused.append(Saved(item.index, Action.REFUSED, item.label, problems=error.problems))
            else:
                self._plans.append(plan)
        self._refuse_unknown_profiles()

    def write(self, now: datetime) -> None:
        plans = sorted(self._plans, key=lambda plan: plan.schedule_id)
        created = [plan.values(now) for plan in plans if plan.action is Action.CREATED]
        updated = [plan.values(now) for plan in plans if plan.action is Action.UPDATED]
        # Two writers of the same new names take their locks in the same order and cannot deadlock.
        created.sort(key=lambda row: (row["name"] or "", str(row["domain_config_id"])))
        if created:
            self._connection.execute(INSERT, {"rows": _as_json(created)})
        if updated:
            self._connection.execute(UPDATE, {"rows": _as_json(updated)})

    def _plan_one(self, item: _Item, existing: ScheduleRecord | None) -> _Plan:
        schedule_id = existing.schedule_id if existing else item.schedule_id or uuid4()
        merged = dict(item.given)
        if existing:
            merged = existing.changed_by(self._adjust(item.index, item.given, existing))
        if merged.get("domain_config_id") is None:
            merged["domain_config_id"] = schedule_id  # without a domain configuration the schedule uses its own id
        spec = parse_spec(merged, self._jobs, self._announced)
        if item.given.get("external_id", spec.external_id) != spec.external_id:
            reason = "cannot be set directly: it is derived from domain_config_id; set that instead"
            raise InvalidSchedule(Problem("external_id", reason))
        return _Plan(item, schedule_id, spec, existing, _changes(existing, spec))

    def _announced(self) -> frozenset[str]:
        """Asked only for a job type that this process does not know, once per batch."""
        if self._types is None:
            self._types = announced_types(self._connection)
        return self._types

    def _read_existing(self, items: Sequence[_Item], lock: bool) -> list[ScheduleRecord]:
        """Every row that an item refers to, or that holds a unique key which an item needs."""
        records = self._read(
            {item.schedule_id for item in items if item.schedule_id},
            {item.name for item in items if item.name},
            {item.config_id for item in items if item.config_id},
            lock,
        )
        if any(item.config_id is None and item.given.get("source") == Source.API for item in items):
            configs = {record.domain_config_id for record in records if record.domain_config_id}
            known = {record.schedule_id for record in records}
            holders = self._read(set(), set(), configs, lock=False)
            records += [record for record in holders if record.schedule_id not in known]
        return records

    def _read(self, ids: set[UUID], names: set[str], configs: set[UUID], lock: bool) -> list[ScheduleRecord]:
        wanted: list[ColumnElement[bool]] = []
        if ids:
            wanted.append(TABLE.c.schedule_id.in_(ids))
        if names:
            wanted.append(TABLE.c.name.in_(names))
        if configs:
            wanted.append(and_(TABLE.c.domain_config_id.in_(configs), TABLE.c.source == Source.API))
        if not wanted:
            return []
        query = select(*RECORD_COLUMNS).where(or_(*wanted)).order_by(TABLE.c.schedule_id)
        return [to_record(row) for row in self._connection.execute(query.with_for_update() if lock else query)]

    def _refuse_unknown_profiles(self) -> None:
        wanted = {plan.spec.profile_id for plan in self._plans if plan.spec.profile_id}
        if not wanted:
            return
        known = set(self._connection.scalars(select(ScanProfile.profile_id).where(ScanProfile.profile_id.in_(wanted))))
        for plan in [plan for plan in self._plans if plan.spec.profile_id in wanted - known]:
            problem = Problem("profile_id", f"scan profile {plan.spec.profile_id} not found")
            self._plans.remove(plan)
            self._refused.append(Saved(plan.item.index, Action.REFUSED, plan.item.label, problems=(problem,)))


class _Neighbours:
    """The rows that a batch can conflict with, and the keys that earlier items of the save have used."""

    def __init__(self, records: Sequence[ScheduleRecord], match: Match, before: Taken, taken: Taken) -> None:
        self._match, self._before, self._taken = match, before, taken
        self._by_id: dict[UUID | None, ScheduleRecord] = {record.schedule_id: record for record in records}
        self._by_name: dict[str | None, ScheduleRecord] = {record.name: record for record in records if record.name}
        self._by_config: dict[UUID | None, ScheduleRecord] = {
            record.domain_config_id: record for record in records if record.source == Source.API
        }

    def find(self, item: _Item) -> ScheduleRecord | None:
        match self._match:
            case "new":
                return None
            case "api":
                return self._by_config.get(item.config_id)
            case "identity":
                return self._by_id.get(item.schedule_id) if item.schedule_id else self._by_name.get(item.name)

    def check_room_for(self, plan: _Plan) -> None:
        """Refuse violations of the table's unique keys, naming the field and the conflicting item or row."""
        keys = list(_keys_of(plan))
        for key, shown in keys:
            item = self._taken.get(key, self._before.get(key))
            if item is not None:
                raise InvalidSchedule(Problem(key[0], f"{shown} is already used by item {item + 1}"))
        if plan.existing is None and plan.schedule_id in self._by_id:
            raise InvalidSchedule(Problem("schedule_id", f"schedule {plan.schedule_id} already exists"))
        namesake = self._by_name.get(plan.spec.name)
        if namesake and namesake.schedule_id != plan.schedule_id:
            raise InvalidSchedule(
                Problem("name", f"{plan.spec.name!r} is already used by schedule {namesake.schedule_id}")
            )
        holder = self._by_config.get(plan.spec.domain_config_id) if plan.spec.source == Source.API else None
        if holder and holder.schedule_id != plan.schedule_id:
            raise InvalidSchedule(
                Problem("domain_config_id", f"already has a schedule from the API: {holder.schedule_id}")
            )
        self._taken.update((key, plan.item.index) for key, _ in keys)


def _keys_of(plan: _Plan) -> Iterator[tuple[tuple[str, str | bytes], object]]:
    """The unique keys that an item uses, each with its text; a newly generated id cannot conflict."""
    if plan.existing or plan.item.schedule_id:
        yield ("schedule_id", plan.schedule_id.bytes), plan.schedule_id
    if plan.spec.name:
        yield ("name", plan.spec.name), plan.spec.name
    if plan.spec.source == Source.API and plan.spec.domain_config_id:
        yield ("domain_config_id", plan.spec.domain_config_id.bytes), plan.spec.domain_config_id
