"""Applies a whole response to the table: first the items, then the removals. Without a lease it is a dry run."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from uuid import UUID

from sqlalchemy import Connection

from database.connection import DatabaseConnection
from database.writing import ROWS_PER_COMMIT, write_as
from services.api_sync.answer import count_items, read_items
from services.api_sync.edits import LocalEdits
from services.api_sync.items import ApiItems
from services.api_sync.local_changes import notice_changes
from services.api_sync.removals import Removals, find_missing, refusal, switch_off
from services.api_sync.report import Entry, Kind, Tally
from services.api_sync.state import Lease
from services.api_sync.upsert import API_ACTOR, ApiUpsert
from services.jobs import JobRegistry, default_registry

LEASE_SECONDS = 120.0  # for a thousand rows; every chunk renews the lease
STORED_ENTRIES = 50  # entries of each kind; the rest is only counted

Progress = Callable[[int, int], None]  # items done, items in total


@dataclass(frozen=True, slots=True)
class SyncRules:
    local_edits: LocalEdits = LocalEdits.KEEP
    max_removals_percent: int = 20
    allow_removals: bool = False  # an operator allows any number of removals
    actor: str = API_ACTOR


@dataclass(frozen=True, slots=True)
class Applied:
    items: int
    tally: Tally
    refused: str | None  # why nothing was disabled
    is_settled: bool  # the same response would change nothing more


class Applying:
    """`check` is called after every chunk and may raise."""

    def __init__(
        self,
        db: DatabaseConnection,
        rules: SyncRules,
        lease: Lease | None,
        *,
        check: Callable[[], None] = lambda: None,
        jobs: JobRegistry = default_registry,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._db, self._rules, self._lease, self._check = db, rules, lease, check
        self._jobs, self._now = jobs, now
        self._tally = Tally(rules.local_edits, STORED_ENTRIES if lease else None)

    def apply(self, body: bytes, on_progress: Progress) -> Applied:
        total = count_items(body)  # nothing is written before the closing bracket was read
        items, upsert, done = ApiItems(), self._upsert(), 0
        for chunk in upsert.save(items.read(read_items(body))):
            self._tally.add_chunk(chunk)
            done += chunk.size
            on_progress(done, total)
            self._check()
        if self._lease:
            self._write(notice_changes)
        refused = self._remove(items, total)
        return Applied(total, self._tally, refused, is_settled=not refused and not upsert.refused_by_database)

    def _upsert(self) -> ApiUpsert:
        return ApiUpsert(
            self._db,
            self._jobs,
            self._now,
            policy=self._rules.local_edits,
            actor=self._rules.actor,
            dry_run=self._lease is None,
            before_write=self._renew,
        )

    def _remove(self, items: ApiItems, answered: int) -> str | None:
        with self._db.transaction() as connection:
            removals = find_missing(connection, items)
        refused = refusal(
            removals,
            answered=answered,
            unidentified=items.unidentified,
            max_percent=self._rules.max_removals_percent,
            allowed=self._rules.allow_removals,
        )
        overwriting = self._rules.local_edits is LocalEdits.OVERWRITE
        self._tell(removals, refused=refused is not None, overwriting=overwriting)
        if self._lease:
            doomed = [*(() if refused else removals.missing), *(removals.switched_on if overwriting else ())]
            self._switch_off(sorted(missing.schedule_id for missing in doomed))
        return refused

    def _tell(self, removals: Removals, *, refused: bool, overwriting: bool) -> None:
        for missing in removals.missing:
            self._tally.add(Entry(Kind.REFUSED if refused else Kind.DISABLED, missing.label))
        for missing in removals.switched_on:
            kind = Kind.OVERWRITTEN if overwriting else Kind.KEPT
            self._tally.add(Entry(kind, missing.label, changes={"enabled": (True, False)}))

    def _switch_off(self, schedule_ids: list[UUID]) -> None:
        waiting = iter(schedule_ids)
        while chunk := list(islice(waiting, ROWS_PER_COMMIT)):
            self._write(lambda connection, chunk=chunk: switch_off(connection, chunk))  # type: ignore[misc]
            self._check()

    def _write(self, work: Callable[[Connection], None]) -> None:
        def renewed(connection: Connection) -> None:
            self._renew(connection)
            work(connection)

        write_as(self._db, self._rules.actor, renewed)

    def _renew(self, connection: Connection) -> None:
        if self._lease:
            self._lease.renew(connection, LEASE_SECONDS)
