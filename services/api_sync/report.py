"""The report of a sync: a value that can be shown, stored and read back."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter

from services.api_sync.edits import LocalEdits
from services.api_sync.upsert import Chunk
from services.schedules.batch import Action


class Outcome(StrEnum):
    DONE = "done"  # the whole response was applied
    NOT_MODIFIED = "not_modified"  # the API has nothing new
    REMOVALS_REFUSED = "removals_refused"  # applied, but nothing was disabled
    FAILED = "failed"  # no usable response; nothing was written

    @property
    def is_good(self) -> bool:
        return self in (Outcome.DONE, Outcome.NOT_MODIFIED)


class Kind(StrEnum):
    """The outcome for a schedule or an item."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    DISABLED = "disabled"  # it vanished from the API
    RETURNED = "returned"  # it is back, and enabled again; also counted as updated
    REFUSED = "refused"  # it vanished, and stays enabled because the response is not credible
    KEPT = "kept"  # its local edit is kept
    OVERWRITTEN = "overwritten"  # its local edit was overwritten


@dataclass(frozen=True, slots=True)
class Entry:
    kind: Kind
    label: str
    item: int | None = None  # its position in the response
    changes: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)  # before and after; of a kept edit: local, API
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    outcome: Outcome
    by: str  # the replica or program that synced
    started_at: datetime
    finished_at: datetime
    items: int | None = None  # items of the response
    counts: Mapping[Kind, int] = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()  # the first entries of each kind
    refused: str | None = None  # why nothing was disabled
    error: str | None = None

    def count(self, kind: Kind) -> int:
        return self.counts.get(kind, 0)

    def of(self, kind: Kind) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind is kind]

    @property
    def documented_counts(self) -> dict[str, int]:
        """`{'created': 5, 'updated': 3, 'skipped': 2}`."""
        return {kind.value: self.count(kind) for kind in (Kind.CREATED, Kind.UPDATED, Kind.SKIPPED)}

    def as_json(self) -> dict[str, Any]:
        stored: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        return stored

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> "SyncReport":
        return _ADAPTER.validate_python(stored)


_ADAPTER = TypeAdapter(SyncReport)


class Tally:
    """Counts all entries, and keeps the first of each kind (all of them without a limit)."""

    def __init__(self, policy: LocalEdits, limit: int | None) -> None:
        self._policy, self._limit = policy, limit
        self.counts: Counter[Kind] = Counter()
        self.entries: list[Entry] = []

    def add(self, entry: Entry) -> None:
        if self._limit is None or self.counts[entry.kind] < self._limit:
            self.entries.append(entry)
        self.counts[entry.kind] += 1

    def add_chunk(self, chunk: Chunk) -> None:
        self.counts[Kind.UNCHANGED] += chunk.unchanged
        for saved in chunk.saved:
            if saved.action is Action.REFUSED:
                self.add(Entry(Kind.SKIPPED, saved.label, saved.number, reasons=saved.reasons))
                continue
            if saved.action is not Action.UNCHANGED:
                self.add(Entry(Kind(saved.action.value), saved.label, saved.number, dict(saved.changes)))
            if saved.changes.get("enabled") == (False, True):
                self.add(Entry(Kind.RETURNED, saved.label, saved.number))
            if saved.edits:
                kind = Kind.KEPT if self._policy is LocalEdits.KEEP else Kind.OVERWRITTEN
                changes = {edit.field: (edit.ours, edit.theirs) for edit in saved.edits}
                self.add(Entry(kind, saved.label, saved.number, changes))
