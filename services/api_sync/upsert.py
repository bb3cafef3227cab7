"""Writes the API's items into the table, a thousand at a time, and merges them with local edits.

An unchanged item costs one comparison and no write. The written values are stored per schedule in `api_sync_items`, in
the same transaction: a later sync detects local edits by them. edits.py decides which value wins.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text
from sqlalchemy.exc import DBAPIError

from database.connection import DatabaseConnection
from database.models import Source
from database.sqlstates import VALUE_ERRORS, sqlstate
from database.writing import ROWS_PER_COMMIT, write_as
from services.api_sync.edits import Edit, LocalEdits, api_fields, merge
from services.api_sync.items import ApiItem, BadItem, few_of, plain_line
from services.errors import InvalidSchedule
from services.jobs import JobRegistry
from services.schedules.batch import Action, Saved, ScheduleBatch, ScheduleRecord
from services.schedules.spec import parse_spec

API_ACTOR = "api-sync"
ROW_FAULTS = (*VALUE_ERRORS, "P0")  # the latter: raised by a trigger

# The values last written into schedules that have not changed since. Read once: for portions Postgres may choose to
# read the whole table each time.
UNTOUCHED = text(
    """
    SELECT uuid_send(schedules.domain_config_id), item.digest
    FROM schedules JOIN api_sync_items AS item ON item.schedule_id = schedules.schedule_id
    WHERE schedules.source = 'api' AND item.revision = schedules.revision
      AND item.digest IS NOT NULL AND item.vanished_at IS NULL AND item.kept = '{}'
    """
)
KNOWN = text(
    """
    SELECT item.schedule_id, item.synced,
           CASE WHEN item.disabled_revision IS NOT NULL AND NOT schedules.enabled THEN NOT EXISTS (
               SELECT FROM schedule_changes AS change
               WHERE change.schedule_id = item.schedule_id AND change.revision > item.disabled_revision
                 AND change.old->'enabled' IS DISTINCT FROM change.new->'enabled'
           ) END AS is_off_by_us
    FROM schedules JOIN api_sync_items AS item ON item.schedule_id = schedules.schedule_id
    WHERE schedules.source = 'api' AND schedules.domain_config_id = ANY(CAST(:configs AS uuid[]))
    """
)
# The revision is the one that the trigger has just assigned. A new schedule is exactly what the API wants.
REMEMBER = text(
    """
    INSERT INTO api_sync_items (schedule_id, revision, digest, synced, kept)
    SELECT given.schedule_id, schedules.revision, given.digest, coalesce(given.synced, jsonb_build_object(
               'domain', domain, 'frequency', frequency, 'time_config', time_config,
               'job_type', job_type, 'job_config', job_config)),
           given.kept
    FROM json_populate_recordset(NULL::api_sync_items, CAST(:rows AS json)) AS given
    JOIN schedules ON schedules.schedule_id = given.schedule_id
    ON CONFLICT (schedule_id) DO UPDATE SET
        revision = EXCLUDED.revision, digest = EXCLUDED.digest, synced = EXCLUDED.synced, kept = EXCLUDED.kept,
        vanished_at = NULL, disabled_revision = NULL
    """
)
# From the first write on, the table is no longer what the last response made of it.
FORGET_ANSWER = text("UPDATE api_sync_state SET rules = NULL WHERE rules IS NOT NULL")


@dataclass(frozen=True, slots=True)
class ApiSaved:
    """The outcome for an item that changed, or whose schedule changed."""

    number: int
    action: Action
    label: str
    changes: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()  # kept or overwritten, by the policy


@dataclass(frozen=True, slots=True)
class Chunk:
    size: int
    saved: tuple[ApiSaved, ...]

    @property
    def skipped(self) -> list[BadItem]:
        return [
            BadItem(saved.number, saved.label, saved.reasons) for saved in self.saved if saved.action is Action.REFUSED
        ]

    @property
    def unchanged(self) -> int:
        return self.size - sum(saved.action is not Action.UNCHANGED for saved in self.saved)


class ApiUpsert:
    """`before_write` is called first in every transaction; an exception from it ends the sync."""

    def __init__(
        self,
        db: DatabaseConnection,
        jobs: JobRegistry,
        now: Callable[[], datetime],
        *,
        policy: LocalEdits,
        actor: str = API_ACTOR,
        dry_run: bool = False,
        before_write: Callable[[Connection], None] = lambda connection: None,
    ) -> None:
        self._db, self._jobs, self._now = db, jobs, now
        self._policy, self._actor, self._dry_run = policy, actor, dry_run
        self._before_write = before_write
        self.refused_by_database = 0  # items that may succeed at another time

    def save(self, items: Iterable[ApiItem | BadItem]) -> Iterator[Chunk]:
        """Each chunk is committed before it is yielded. If the sync is interrupted, the next one fetches everything."""
        if not self._dry_run:
            write_as(self._db, self._actor, self._begin)
        untouched, waiting = self._untouched_digests(), iter(items)
        while chunk := list(islice(waiting, ROWS_PER_COMMIT)):
            bad = [
                ApiSaved(item.number, Action.REFUSED, item.label, reasons=item.reasons)
                for item in chunk
                if isinstance(item, BadItem)
            ]
            changed = [
                item
                for item in chunk
                if isinstance(item, ApiItem) and untouched.get(item.config_id.bytes) != item.digest
            ]
            yield Chunk(len(chunk), tuple(sorted([*bad, *self._save_or_split(changed)], key=lambda one: one.number)))

    def _begin(self, connection: Connection) -> None:
        self._before_write(connection)
        connection.execute(FORGET_ANSWER)

    def _untouched_digests(self) -> dict[bytes, str]:
        with self._db.transaction() as connection:
            rows = connection.execution_options(yield_per=ROWS_PER_COMMIT).execute(UNTOUCHED)
            return {bytes(config): digest for config, digest in rows}

    def _save_or_split(self, changed: Sequence[ApiItem]) -> list[ApiSaved]:
        """An error of the database concerns one item: the others are written without it, in smaller portions."""
        try:
            return write_as(self._db, self._actor, lambda connection: self._save(connection, changed))
        except (DBAPIError, InvalidSchedule) as error:
            reason = _fault_of_a_row(error)
            if reason is None or not changed:
                raise
        if len(changed) == 1:
            self.refused_by_database += 1
            return [ApiSaved(changed[0].number, Action.REFUSED, plain_line(changed[0].domain), reasons=(reason,))]
        middle = len(changed) // 2
        return [*self._save_or_split(changed[:middle]), *self._save_or_split(changed[middle:])]

    def _save(self, connection: Connection, changed: Sequence[ApiItem]) -> list[ApiSaved]:
        self._before_write(connection)
        if not changed:
            return []
        merging = _Merging(_synced_rows(connection, changed), self._policy, self._jobs)
        batch = ScheduleBatch(connection, self._jobs, "api", adjust=merging.adjust)
        given = [
            (item.number - 1, {"domain_config_id": item.given_id, "source": Source.API.value, **item.fields})
            for item in changed
        ]
        batch.plan(given, lock=not self._dry_run)
        if not self._dry_run:
            batch.write(self._now())
            self._remember(connection, changed, batch.results, merging)
        return [_api_saved(saved, merging.edits.get(saved.index, ())) for saved in batch.results]

    def _remember(
        self, connection: Connection, items: Sequence[ApiItem], results: Sequence[Saved], merging: "_Merging"
    ) -> None:
        ids = {saved.index: saved.schedule_id for saved in results if saved.action is not Action.REFUSED}
        rows = [
            {
                "schedule_id": ids[item.number - 1],
                "digest": item.digest,
                "synced": merging.wanted.get(item.number - 1),
                "kept": [edit.field for edit in merging.kept(item.number - 1)],
            }
            for item in items
            if item.number - 1 in ids
        ]
        if rows:
            connection.execute(REMEMBER, {"rows": json.dumps(rows, default=str)})


class _Merging:
    """The three-way merge of a chunk, under its row locks."""

    def __init__(self, known: Mapping[UUID, Row[Any]], policy: LocalEdits, jobs: JobRegistry) -> None:
        self._known, self._policy, self._jobs = known, policy, jobs
        self.wanted: dict[int, dict[str, Any]] = {}
        self.edits: dict[int, tuple[Edit, ...]] = {}

    def adjust(self, index: int, given: Mapping[str, Any], existing: ScheduleRecord) -> Mapping[str, Any]:
        """An item must be valid by itself: a local edit that hides an invalid value does not make the item valid."""
        wanted = self.wanted[index] = api_fields(parse_spec(given, self._jobs))
        known = self._known.get(existing.schedule_id)
        merged = merge(existing, known and known.synced, wanted, self._policy)
        self.edits[index] = merged.edits
        comes_back = known is not None and known.is_off_by_us
        return {**given, **merged.fields, **({"enabled": True} if comes_back else {})}

    def kept(self, index: int) -> tuple[Edit, ...]:
        return self.edits.get(index, ()) if self._policy is LocalEdits.KEEP else ()


def _fault_of_a_row(error: DBAPIError | InvalidSchedule) -> str | None:
    """None: the error has nothing to do with the written values."""
    if isinstance(error, InvalidSchedule):
        return "; ".join(few_of(error.problems))
    if sqlstate(error)[:2] not in ROW_FAULTS:
        return None
    said = str(error.orig).strip().partition("\n")[0]
    return f"the database refuses it: {said if said.isprintable() else ascii(said)}"


def _synced_rows(connection: Connection, items: Sequence[ApiItem]) -> dict[UUID, Row[Any]]:
    rows = connection.execute(KNOWN, {"configs": [str(item.config_id) for item in items]})
    return {row.schedule_id: row for row in rows}


def _api_saved(saved: Saved, edits: tuple[Edit, ...]) -> ApiSaved:
    reasons = few_of(saved.problems)
    return ApiSaved(saved.index + 1, saved.action, plain_line(saved.label), saved.changes, reasons, edits)
