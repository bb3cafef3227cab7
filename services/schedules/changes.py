"""The log of changes: `schedule_changes`, one row per committed change of a schedule, by any actor."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Select, select, union_all

from database.models import ScheduleChange

LONGEST_COMMIT = timedelta(hours=1)  # between the timestamp of a change and its commit

# From the rows and from the latest changes, because a deletion has a revision but no row in the table. Both read only
# the end of an index. Several changes are read, because a late commit may have written the last one without having the
# highest revision. Retention keeps the last one.
NEWEST_REVISION = """
SELECT greatest((SELECT max(revision) FROM schedules), (SELECT max(revision) FROM (
    SELECT revision FROM schedule_changes ORDER BY change_id DESC LIMIT 100) AS latest), 0)
"""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a schedule: actor, time, old and new values."""

    changed_at: datetime
    changed_by: str
    operation: str
    revision: int
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None

    @property
    def differences(self) -> dict[str, tuple[Any, Any]]:
        old, new = self.old or {}, self.new or {}
        names = [name for name in {**old, **new} if name not in ("revision", "effective_from")]
        return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


def select_changes(schedule_id: UUID, limit: int) -> Select[Any]:
    columns = [getattr(ScheduleChange, name) for name in Change.__dataclass_fields__]
    found = select(*columns).where(ScheduleChange.schedule_id == schedule_id)
    return found.order_by(ScheduleChange.change_id.desc()).limit(limit)


def select_deleted(name: str) -> Select[Any]:
    """Two lookups at the end of an index; an OR of the two would read all deletions of a frequent name."""
    deleted = select(ScheduleChange.change_id, ScheduleChange.schedule_id).where(ScheduleChange.operation == "delete")
    last = [
        deleted.where(ScheduleChange.old[field].astext == name).order_by(ScheduleChange.change_id.desc()).limit(1)
        for field in ("name", "domain")
    ]
    found = union_all(*(select(each.subquery()) for each in last)).subquery()
    return select(found.c.schedule_id).order_by(found.c.change_id.desc()).limit(1)
