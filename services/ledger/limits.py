"""How many executions of one key run at once, over all schedules and replicas.

The keys of an execution are stored on its row when it is claimed; what runs is counted by them. A claim first locks the
stripes of its limited keys, without waiting, then counts in a younger statement, then decides one by one: what gets a
place in each of its limits runs, what does not waits as a row with the reason `limit:<key>`. `limits` itself is only
read, so a change of it counts from the next start on. Finish, rescue and hand-back take no stripe: they only free.

A row with several limits needs a place of each at the same moment. Once it has waited for long, one place of each is
kept for it against those whose turn comes later, for a share of the time that it has waited (`Kept`).
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from uuid import UUID

from database.connection import DedicatedConnection
from services.ledger.limits_sql import KEEP, LOCK_STRIPES

LONG_AGO = datetime.min.replace(tzinfo=UTC)
PATIENCE = timedelta(minutes=15)
KEPT_SHARE = 10  # for a tenth of its wait a place is kept for a row; then for nine times as long none is kept


@dataclass(frozen=True, slots=True)
class Turn:
    """The more urgent row comes first, then the one that was due first. A fire without a row has no id."""

    execution_id: UUID | None
    priority: int
    due_at: datetime

    def is_before(self, other: "Turn") -> bool:
        return (-self.priority, self.due_at) < (-other.priority, other.due_at)


@dataclass(frozen=True, slots=True)
class Kept:
    """One place of a key, kept for a row since this moment; after `until` it is nobody's, and is not kept for a while.

    So a key loses at most a tenth of its time, however many rows wait for it together with other keys.
    """

    turn: Turn
    since: datetime
    until: datetime

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        turn = Turn(UUID(stored["execution_id"]), stored["priority"], datetime.fromisoformat(stored["due_at"]))
        return cls(turn, datetime.fromisoformat(stored["since"]), datetime.fromisoformat(stored["until"]))

    @property
    def rests_until(self) -> datetime:
        return self.until + (KEPT_SHARE - 1) * (self.until - self.since)

    def as_json(self) -> str:
        return json.dumps(
            {
                "execution_id": str(self.turn.execution_id),
                "priority": self.turn.priority,
                "due_at": self.turn.due_at.isoformat(),
                "since": self.since.isoformat(),
                "until": self.until.isoformat(),
                "rests_until": self.rests_until.isoformat(),
            }
        )

    def is_against(self, turn: Turn) -> bool:
        return turn.execution_id != self.turn.execution_id and self.turn.is_before(turn)


@dataclass(frozen=True, slots=True)
class Limited:
    """The limits of some keys, whose stripes this transaction holds, apart from the `busy` ones."""

    most: Mapping[str, int]
    busy: frozenset[str] = frozenset()  # of keys that another session decides at the moment
    kept: Mapping[str, Kept] = field(default_factory=dict)  # a place of each is kept now
    resting: frozenset[str] = frozenset()  # none is kept of these now, or again
    now: datetime = LONG_AGO  # by Postgres' clock, when the stripes were locked

    def of(self, keys: Iterable[str]) -> tuple[str, ...]:
        return tuple(key for key in keys if key in self.most) if self.most else ()

    def is_busy(self, keys: Iterable[str]) -> bool:
        return bool(self.busy) and not self.busy.isdisjoint(keys)

    def without_room(
        self,
        rows: Sequence[Sequence[str]],
        wanting: Collection[int],
        running: Mapping[str, int],
        most: int | None = None,
        turns: Sequence[Turn] = (),
    ) -> list[str | None]:
        """Of each row, by its keys, the first one without room; None: it has a place in all of its limits.

        One by one, in order, so that each place is given once. Only the rows at `wanting` get any: what may not run for
        another reason must not run without a place if that reason vanishes before it is written. After `most` of them
        none is given any more.
        """
        used, asked, given = Counter(running), set(wanting), 0
        found: list[str | None] = []
        for place, keys in enumerate(rows):
            own = self.of(keys)
            against = self._kept_against(turns[place]) if self.kept else frozenset()
            full = next(
                (key for key in own if place not in asked or used[key] + (key in against) >= self.most[key]), None
            )
            if full is None and (most is None or given < most):
                given += place in asked
                used.update(own)
            found.append(full)
        return found

    def _kept_against(self, turn: Turn) -> frozenset[str]:
        return frozenset(key for key, kept in self.kept.items() if kept.is_against(turn))

    def to_keep(self, keys: Iterable[str], turn: Turn) -> dict[str, Kept]:
        """For a row that found no room: a place of each of its limits, or none."""
        own, waited = self.of(keys), self.now - turn.due_at
        if len(own) < 2 or waited < PATIENCE or any(key in self.resting or not self.most[key] for key in own):
            return {}
        return dict.fromkeys(own, Kept(turn, self.now, self.now + waited / KEPT_SHARE))

    def to_let_go(self, taken: Collection[UUID]) -> dict[str, Kept]:
        """Of rows that got all of their places."""
        return {
            key: Kept(kept.turn, kept.since, self.now)
            for key, kept in self.kept.items()
            if kept.turn.execution_id in taken
        }


UNLIMITED = Limited({})


def lock_limited(connection: DedicatedConnection, keys: Collection[str]) -> Limited:
    """In the transaction that has locked the schedules."""
    if not keys:
        return UNLIMITED
    rows = connection.run(LOCK_STRIPES, {"keys": list(keys)})
    most = {row.key: row.most for row in rows}
    busy = frozenset(row.key for row in rows if not row.is_ours)
    stored = {row.key: Kept.of(row.kept) for row in rows if row.kept is not None}
    if not stored:
        return Limited(most, busy, now=rows[0].now) if rows else UNLIMITED
    kept = {row.key: stored[row.key] for row in rows if row.is_kept}
    resting = frozenset(key for key, each in stored.items() if each.rests_until > rows[0].now)
    return Limited(most, busy, kept, resting, rows[0].now)


def keep(connection: DedicatedConnection, places: Mapping[str, Kept]) -> None:
    """On stripes that this transaction holds."""
    if places:
        connection.run(KEEP, {"keys": list(places), "kept": [each.as_json() for each in places.values()]})


def full_keys(
    connection: DedicatedConnection,
    preview: str,
    values: Mapping[str, Any],
    limited: Limited,
    rows: Sequence[Sequence[str]],
    turns: Sequence[Turn],
    most: int | None = None,
) -> tuple[list[str | None], list[int]]:
    """What `Limited.without_room` says of the rows that the claim statement with these values would let run.

    Also the places of those rows, in order.
    """
    (seen,) = connection.run(preview, {**values, "limited": list(limited.most)})
    wanting = sorted(place - 1 for place in seen.places)
    return limited.without_room(rows, wanting, seen.running, most, turns), wanting
