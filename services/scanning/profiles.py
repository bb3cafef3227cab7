"""Rows of `scan_profiles`: cookie scan settings shared by several schedules, validated before they are written.

A row written by another program may contain anything: it is shown as it is, with its errors.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, Select, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from database.connection import DatabaseConnection, get_db_connection
from database.models import ScanProfile, Schedule
from database.sqlstates import UNIQUE_VIOLATION, sqlstate
from services.errors import InvalidInput, Problem, ProfileInUse
from services.scanning.config import CookieScanConfig, config_problems, one_spelling
from services.wording.short_ids import ids_that_begin

MAX_NAME = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRecord:
    """A stored profile, and the number of schedules that use it."""

    profile_id: UUID
    name: str | None
    config: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime
    schedules: int

    @property
    def label(self) -> str:
        return self.name or str(self.profile_id)

    @property
    def problems(self) -> list[Problem]:
        """The errors for which a scan with this profile would be refused."""
        return config_problems(self.config)


class ScanProfiles:
    """Safe to share between threads."""

    def __init__(self, db: DatabaseConnection) -> None:
        self._db = db

    def get(self, profile_id: UUID) -> ProfileRecord | None:
        with self._db.transaction() as connection:
            row = connection.execute(_select().where(ScanProfile.profile_id == profile_id)).first()
        return None if row is None else _to_record(row)

    def find(self, reference: UUID | str) -> ProfileRecord:
        """The profile that a person means: by name, by id, or by the beginning of its id."""
        with self._db.transaction() as connection:
            return _find(connection, reference)

    def list_all(self) -> list[ProfileRecord]:
        """In the order of their names; those without a name are last."""
        query = _select().order_by(ScanProfile.name.nulls_last(), ScanProfile.profile_id)
        with self._db.transaction() as connection:
            return [_to_record(row) for row in connection.execute(query)]

    def add(self, name: str, config: Mapping[str, Any]) -> ProfileRecord:
        values = {"name": _name(name), "config": _config(config)}
        with self._db.transaction() as connection, _one_per_name(name):
            query = insert(ScanProfile).values(**values).returning(ScanProfile.profile_id)
            return _find(connection, connection.execute(query).scalar_one())

    def edit(
        self,
        reference: UUID | str,
        *,
        name: str | None = None,
        changes: Mapping[str, Any] | None = None,
        unset: Collection[str] = (),
    ) -> tuple[ProfileRecord, ProfileRecord]:
        """Change some settings and reset others to their default; returns the profile before and after.

        Schedules that use it follow from their next run on.
        """
        with self._db.transaction() as connection:
            before = _find(connection, reference, lock=True)
            config = _config(_merge(before.config, changes or {}, unset))
            new_name = before.name if name is None else _name(name)
            if (config, new_name) != (dict(before.config), before.name):
                same = ScanProfile.profile_id == before.profile_id
                values = {"name": new_name, "config": config, "updated_at": func.clock_timestamp()}
                with _one_per_name(str(name)):
                    connection.execute(update(ScanProfile).where(same).values(**values))
            return before, _find(connection, before.profile_id)

    def delete(self, reference: UUID | str) -> ProfileRecord:
        """Refused while a schedule uses it; existing scans stay."""
        with self._db.transaction() as connection:
            found = _find(connection, reference, lock=True)
            if users := _users(connection, found.profile_id):
                raise ProfileInUse(found.label, users)
            connection.execute(delete(ScanProfile).where(ScanProfile.profile_id == found.profile_id))
            return found


def _select() -> Select[Any]:
    users = select(func.count()).where(Schedule.profile_id == ScanProfile.profile_id).scalar_subquery()
    columns = (getattr(ScanProfile, name) for name in ("profile_id", "name", "config", "created_at", "updated_at"))
    return select(*columns, users.label("schedules"))


def _to_record(row: Row[Any]) -> ProfileRecord:
    config = row.config if isinstance(row.config, dict) else {"config": row.config}  # written by another program
    return ProfileRecord(**{**row._mapping, "config": config})


def _find(connection: Connection, reference: UUID | str, *, lock: bool = False) -> ProfileRecord:
    text = str(reference).strip()
    ids = ids_that_begin(text)
    same_id = [] if ids is None else [ScanProfile.profile_id.between(*ids)]
    query = _select().where(or_(ScanProfile.name == text, *same_id)).limit(2)
    query = query.order_by((ScanProfile.name == text).desc().nulls_last())
    query = query.with_for_update(of=ScanProfile) if lock else query
    found = [_to_record(row) for row in connection.execute(query)] if text.isprintable() else []
    found = [record for record in found if record.name == text] or found
    if len(found) != 1:
        many = "more than one profile begins like" if found else "there is no profile"
        raise InvalidInput(Problem("profile", f"{many} {reference!s:.60}"))
    return found[0]


def _users(connection: Connection, profile_id: UUID) -> list[str]:
    """The names of the schedules that use it."""
    query = select(func.coalesce(Schedule.name, Schedule.domain)).where(Schedule.profile_id == profile_id)
    return list(connection.execute(query.order_by(Schedule.domain, Schedule.schedule_id)).scalars())


def _name(text: str) -> str:
    name = text.strip()
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise InvalidInput(Problem("name", f"must be 1 to {MAX_NAME} printable characters, got {text!r:.60}"))
    return name


def _config(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in their stored spelling; raises InvalidInput with all errors."""
    if problems := config_problems(given):
        raise InvalidInput(*problems)
    return CookieScanConfig.model_validate(given).given()


def _merge(before: Mapping[str, Any], changes: Mapping[str, Any], unset: Collection[str]) -> dict[str, Any]:
    merged = {**one_spelling(before), **one_spelling(changes)}
    names = [*one_spelling(dict.fromkeys(unset))]
    strangers = [name for name in names if name not in merged and name not in CookieScanConfig.model_fields]
    if strangers:
        raise InvalidInput(*(Problem(name, "is not a field of a cookie scan") for name in strangers))
    return {name: value for name, value in merged.items() if name not in names}


@contextmanager
def _one_per_name(name: str) -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        if sqlstate(error) != UNIQUE_VIOLATION:
            raise
        raise InvalidInput(Problem("name", f"another profile has the name {name.strip()!r}")) from None


@cache
def get_scan_profiles() -> ScanProfiles:
    """The scan profiles of this process."""
    return ScanProfiles(get_db_connection())
