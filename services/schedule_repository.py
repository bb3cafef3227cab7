"""Access to `schedules`: create, change, delete, find, and bulk saves. All input is validated before it is written.

Single edits, imports and the API sync all write through `ScheduleBatch`, so the same rules apply to all of them.
"""

import getpass
import os
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from itertools import islice
from typing import Any, TypeVar, Unpack
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Select, delete, func, or_, select, update

from config import get_settings
from database.connection import DatabaseConnection, get_db_connection
from database.models import Schedule, Source
from database.pages import MAX_PAGE, PageOf
from database.writing import ROWS_PER_COMMIT as ROWS_PER_COMMIT
from database.writing import write_as
from services.api_sync.edits import LocalEdits
from services.api_sync.items import ApiItems, log_skipped
from services.api_sync.upsert import API_ACTOR, ApiUpsert
from services.checks.hostnames import spellings
from services.errors import InvalidInput, InvalidSchedule, Problem, RevisionConflict, ScheduleNotFound
from services.jobs import JobRegistry, default_registry
from services.jobs.users import load_users_jobs
from services.schedules.announced import announced_types
from services.schedules.batch import (
    RECORD_COLUMNS,
    TABLE,
    Action,
    Match,
    Saved,
    ScheduleBatch,
    ScheduleRecord,
    Taken,
    to_record,
)
from services.schedules.changes import Change, select_changes, select_deleted
from services.schedules.field_rules import RULES
from services.schedules.listing import ScheduleFilter, order_of
from services.schedules.preview import next_fires
from services.schedules.spec import ScheduleFields, ScheduleSpec, checked_note, config_id, parse_uuid, plain_text
from services.schedules.summaries import BulkSummary, Deleted, Switched
from services.wording.short_ids import ids_that_begin

DELETED_AT_ONCE = 100
T = TypeVar("T")


class ScheduleRepository:
    """The only way in which our own programs read and write schedules. Safe to share between threads."""

    def __init__(
        self,
        db: DatabaseConnection,
        jobs: JobRegistry = default_registry,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._db, self._jobs, self._now = db, jobs, now

    # --- one schedule ---

    def create_schedule(
        self, *, schedule_id: UUID | str | None = None, actor: str | None = None, **definition: Unpack[ScheduleFields]
    ) -> UUID:
        """Validate and insert; returns the new schedule's id."""
        given = {**definition, "schedule_id": schedule_id}
        return self._write(actor, lambda connection: self._save_one(connection, given, "new"))

    def update_schedule(
        self,
        schedule_id: UUID | str,
        *,
        expected_revision: int | None = None,
        actor: str | None = None,
        **changes: Unpack[ScheduleFields],
    ) -> ScheduleRecord:
        """Change the given fields; the result as a whole must be valid. Without a difference nothing is written.

        Switching off, with or without a note, is always possible, also for a schedule that is broken otherwise.
        """

        def save(connection: Connection) -> ScheduleRecord | None:
            found = self._lock(connection, schedule_id, expected_revision)
            if changes.get("enabled") is False and changes.keys() <= {"enabled", "disabled_note"}:
                _switch_off(connection, found, changes)
            else:
                self._save_one(connection, {**changes, "schedule_id": found}, "identity")
            return self._read(connection, found)

        record = self._write(actor, save)
        if record is None:
            raise ScheduleNotFound(schedule_id)
        return record

    def delete_schedule(
        self, schedule_id: UUID | str, *, expected_revision: int | None = None, actor: str | None = None
    ) -> bool:
        """Delete it; its executions and changes stay. False when there was no such schedule."""

        def remove(connection: Connection) -> bool:
            try:
                found = self._lock(connection, schedule_id, expected_revision)
            except ScheduleNotFound:
                return False
            connection.execute(delete(TABLE).where(TABLE.c.schedule_id == found))
            return True

        return self._write(actor, remove)

    def get_schedule(self, schedule_id: UUID | str) -> ScheduleRecord | None:
        with self._db.transaction() as connection:
            return self._read(connection, parse_uuid(schedule_id, "schedule_id"))

    def find_schedule(self, reference: UUID | str) -> ScheduleRecord:
        """The one schedule that a person means: by id (or its beginning), name, or a domain that only one has."""
        text = plain_text("schedule", str(reference)).strip()
        with self._db.transaction() as connection:
            found = [to_record(row) for row in connection.execute(select_meant(text))]
        found = [record for record in found if record.name == text] or found
        if not found:
            raise ScheduleNotFound(reference)
        if len(found) > 1:
            ids = ", ".join(str(record.schedule_id) for record in found[:5])
            raise InvalidInput(Problem("schedule", f"{text!r} matches {len(found)} schedules; use an id: {ids}"))
        return found[0]

    # --- many schedules ---

    def save_schedules(
        self,
        items: Iterable[Mapping[str, Any]],
        *,
        match: Match = "identity",
        actor: str | None = None,
        dry_run: bool = False,
        on_saved: Callable[[Saved], None] = lambda saved: None,
    ) -> BulkSummary:
        """Create or update each item; a bad one is refused with its problems and never spoils the others.

        An item with the id or the name of an existing schedule changes that one; what it does not mention stays.
        Unchanged schedules are not written. Commits every 1,000 rows; two items never share an id or a name, however
        far they are apart.
        """
        summary = BulkSummary()
        taken: Taken = {}
        numbered = enumerate(items)

        def save(connection: Connection) -> ScheduleBatch:
            batch = ScheduleBatch(connection, self._jobs, match, taken)
            batch.plan(chunk, lock=not dry_run)
            if not dry_run:
                batch.write(self._now())
            return batch

        while chunk := list(islice(numbered, ROWS_PER_COMMIT)):
            batch = self._write(actor, save)
            taken |= batch.taken
            for saved in batch.results:
                summary.count(saved)
                on_saved(saved)
        return summary

    def switch_schedules(
        self, schedule_ids: Collection[UUID], enabled: bool, *, actor: str, note: str | None = None
    ) -> Switched:
        """Enable or disable many; disabling works for an invalid schedule, too. A note says why."""
        change: ScheduleFields = {"enabled": enabled}
        if note is not None:
            if enabled:
                raise InvalidInput(Problem("note", "explains why schedules are disabled; omit it to enable them"))
            change["disabled_note"] = checked_note(note, "note")
        wanted = sorted(set(schedule_ids))
        known = [record.schedule_id for record in self.iter_schedules(ScheduleFilter(schedule_ids=wanted))]
        switched = Switched(missing=sorted(set(wanted) - set(known)))
        self.save_schedules(
            ({"schedule_id": schedule_id, **change} for schedule_id in known),
            actor=actor,
            on_saved=lambda saved: switched.count(known[saved.index], saved),
        )
        for schedule_id in [] if enabled else list(switched.refused):
            self.update_schedule(schedule_id, actor=actor, **change)
            switched.changed.append(schedule_id)
            del switched.refused[schedule_id]
        return switched

    def delete_schedules(self, where: ScheduleFilter, *, actor: str) -> Deleted:
        """Delete those of `where.schedule_ids` that match when it is their turn; their executions and changes stay.

        In small batches, in the order of the ids, and without waiting for another session's lock: fires wait while
        their schedules are locked.
        """
        done = Deleted()
        wanted = sorted(set(where.schedule_ids or ()))
        for first in range(0, len(wanted), DELETED_AT_ONCE):
            ids = wanted[first : first + DELETED_AT_ONCE]
            deleted, left = self._write(actor, partial(_delete, ids, where))
            done.deleted += deleted
            done.locked += left
            done.no_match += [each for each in ids if each not in {*deleted, *left}]
        return done

    def words_in_use(self) -> tuple[list[str], list[str]]:
        """The job types and the tags of all schedules."""
        with self._db.transaction() as connection:
            types = connection.exec_driver_sql("SELECT DISTINCT job_type FROM schedules ORDER BY 1 LIMIT 200")
            tags = connection.exec_driver_sql("SELECT DISTINCT unnest(tags) FROM schedules ORDER BY 1 LIMIT 500")
            return list(types.scalars()), list(tags.scalars())

    def sync_from_api(
        self, items: Iterable[Any], actor: str = API_ACTOR, local_edits: LocalEdits = LocalEdits.KEEP
    ) -> dict[str, int]:
        """Create and update the external API's schedules; a bad item is skipped with its reason in the log."""
        upsert = ApiUpsert(self._db, self._jobs, self._now, policy=local_edits, actor=actor)
        done: Counter[Action] = Counter()
        for chunk in upsert.save(ApiItems().read(items)):
            done.update(saved.action for saved in chunk.saved)
            log_skipped(chunk.skipped)
        return {
            "created": done[Action.CREATED],
            "updated": done[Action.UPDATED],
            "skipped": done[Action.REFUSED],
        }

    def get_all_schedules(self, enabled_only: bool = False) -> list[ScheduleRecord]:
        return list(self.iter_schedules(ScheduleFilter(enabled=True if enabled_only else None)))

    def get_schedules_by_domain(self, domain: str) -> list[ScheduleRecord]:
        return list(self.iter_schedules(ScheduleFilter(domain=plain_text("domain", domain))))

    def get_schedule_by_config_id(self, domain_config_id: UUID | str) -> ScheduleRecord | None:
        """The schedule of a domain configuration: the external API's own one if there is one, else the oldest."""
        try:
            given = RULES["domain_config_id"](domain_config_id)
        except ValueError as error:
            raise InvalidInput(Problem("domain_config_id", str(error))) from None
        if given is None:
            return None
        query = (
            _select()
            .where(TABLE.c.domain_config_id == config_id(given))
            .order_by((TABLE.c.source == Source.API).desc(), TABLE.c.created_at, TABLE.c.schedule_id)
            .limit(1)
        )
        with self._db.transaction() as connection:
            row = connection.execute(query).first()
        return to_record(row) if row else None

    def iter_schedules(self, where: ScheduleFilter = ScheduleFilter()) -> Generator[ScheduleRecord, None, None]:
        """All matching schedules in id order, streamed: memory does not grow with their number."""
        query = _select().where(*where.conditions()).order_by(TABLE.c.schedule_id)
        with self._db.transaction() as connection:
            for row in connection.execution_options(yield_per=ROWS_PER_COMMIT).execute(query):
                yield to_record(row)

    def list_schedules(
        self,
        where: ScheduleFilter = ScheduleFilter(),
        *,
        sort: str = "domain",
        limit: int = 50,
        cursor: str | None = None,
    ) -> PageOf[ScheduleRecord]:
        """One page; `next_cursor` leads to the next one and is None on the last."""
        order = order_of(sort)
        query = order.page(_select().where(*where.conditions()), limit, cursor)
        with self._db.transaction() as connection:
            records = [to_record(row) for row in connection.execute(query)]
        return order.cut(records, limit)

    def count_schedules(self, where: ScheduleFilter = ScheduleFilter()) -> int:
        with self._db.transaction() as connection:
            return connection.execute(
                select(func.count()).select_from(Schedule).where(*where.conditions())
            ).scalar_one()

    # --- what follows from a schedule ---

    def preview(self, schedule: ScheduleSpec | UUID | str, n: int = 5, after: datetime | None = None) -> list[datetime]:
        """The next n fire times (UTC) as if the schedule were enabled; fewer when it ends before."""
        if not isinstance(schedule, ScheduleSpec):
            record = self.get_schedule(schedule)
            if record is None:
                raise ScheduleNotFound(schedule)
            schedule = record
        return next_fires(schedule.trigger, n, after or self._now())

    def announced_types(self) -> frozenset[str]:
        """Job types of live replicas: a schedule of one may be saved by a process that does not know it."""
        with self._db.transaction() as connection:
            return announced_types(connection)

    def get_changes(self, schedule_id: UUID | str, limit: int = 20) -> list[Change]:
        """Newest first; also of a deleted schedule."""
        query = select_changes(parse_uuid(schedule_id, "schedule_id"), limit)
        with self._db.transaction() as connection:
            return [Change(**row._mapping) for row in connection.execute(query)]

    def find_deleted(self, name: str) -> UUID | None:
        """The schedule that had this name, or was about this domain, and was deleted last."""
        with self._db.transaction() as connection:
            return connection.execute(select_deleted(name)).scalar_one_or_none()

    # --- inside ---

    def _write(self, actor: str | None, work: Callable[[Connection], T]) -> T:
        return write_as(self._db, plain_text("actor", actor or f"python:{user_name()}"), work)

    def _save_one(self, connection: Connection, given: Mapping[str, Any], match: Match) -> UUID:
        batch = ScheduleBatch(connection, self._jobs, match)
        batch.plan([(0, given)])
        (saved,) = batch.results
        if saved.schedule_id is None:
            raise InvalidSchedule(*saved.problems)
        batch.write(self._now())
        return saved.schedule_id

    def _lock(self, connection: Connection, schedule_id: UUID | str, expected_revision: int | None) -> UUID:
        found = parse_uuid(schedule_id, "schedule_id")
        query = select(TABLE.c.revision).where(TABLE.c.schedule_id == found).with_for_update()
        revision = connection.execute(query).scalar_one_or_none()
        if revision is None:
            raise ScheduleNotFound(found)
        if expected_revision is not None and expected_revision != revision:
            raise RevisionConflict(found, expected_revision, revision)
        return found

    @staticmethod
    def _read(connection: Connection, schedule_id: UUID) -> ScheduleRecord | None:
        row = connection.execute(_select().where(TABLE.c.schedule_id == schedule_id)).first()
        return to_record(row) if row else None


def _delete(ids: list[UUID], where: ScheduleFilter, connection: Connection) -> tuple[list[UUID], list[UUID]]:
    """What was deleted, and what matches but is locked."""
    matching = select(TABLE.c.schedule_id).where(*replace(where, schedule_ids=ids).conditions())
    query = matching.order_by(TABLE.c.schedule_id).with_for_update(skip_locked=True)
    free = list(connection.execute(query).scalars())
    connection.execute(delete(TABLE).where(TABLE.c.schedule_id.in_(free)))
    return free, list(connection.execute(matching).scalars())


def _switch_off(connection: Connection, schedule_id: UUID, changes: ScheduleFields) -> None:
    values: dict[str, Any] = {"enabled": False, "next_run": None}
    differs: list[ColumnElement[bool]] = [TABLE.c.enabled]
    if "disabled_note" in changes:
        note = values["disabled_note"] = checked_note(changes["disabled_note"])
        differs.append(TABLE.c.disabled_note.is_distinct_from(note))
    connection.execute(update(TABLE).where(TABLE.c.schedule_id == schedule_id, or_(*differs)).values(values))


def _select() -> Select[Any]:
    return select(*RECORD_COLUMNS)


def select_meant(text: str) -> Select[Any]:
    begun = ids_that_begin(text)
    same_id = [] if begun is None else [TABLE.c.schedule_id.between(*begun)]
    return _select().where(or_(TABLE.c.name == text, TABLE.c.domain.in_(spellings(text)), *same_id)).limit(MAX_PAGE)


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return str(os.getuid())


@cache
def get_schedule_repository() -> ScheduleRepository:
    """The repository of this process; it knows the job types of JOB_MODULES, too."""
    load_users_jobs(get_settings())
    return ScheduleRepository(get_db_connection())
