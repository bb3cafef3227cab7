"""How many executions of one key run at once, over all schedules and replicas.

The keys of an execution are stored on its row when it is claimed; what runs is counted by them. A claim first locks the
stripes of its limited keys, without waiting, then counts in a younger statement, then decides one by one: what gets a
place in each of its limits runs, what does not waits as a row with the reason `limit:<key>`. `limits` itself is only
read, so a change of it counts from the next start on. Finish, rescue and hand-back take no stripe: they only free.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from database.connection import DedicatedConnection
from services.ledger.limits_sql import LOCK_STRIPES


@dataclass(frozen=True, slots=True)
class Limited:
    """The limits of some keys, whose stripes this transaction holds, apart from the `busy` ones."""

    most: Mapping[str, int]
    busy: frozenset[str] = frozenset()  # of keys that another session decides at the moment

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
            full = next((key for key in own if place not in asked or used[key] >= self.most[key]), None)
            if full is None and (most is None or given < most):
                given += place in asked
                used.update(own)
            found.append(full)
        return found


UNLIMITED = Limited({})


def lock_limited(connection: DedicatedConnection, keys: Collection[str]) -> Limited:
    """In the transaction that has locked the schedules."""
    if not keys:
        return UNLIMITED
    rows = connection.run(LOCK_STRIPES, {"keys": list(keys)})
    return Limited({row.key: row.most for row in rows}, frozenset(row.key for row in rows if not row.is_ours))


def full_keys(
    connection: DedicatedConnection,
    preview: str,
    values: Mapping[str, Any],
    limited: Limited,
    rows: Sequence[Sequence[str]],
    most: int | None = None,
) -> tuple[list[str | None], list[int]]:
    """What `Limited.without_room` says of the rows that the claim statement with these values would let run.

    Also the places of those rows, in order.
    """
    (seen,) = connection.run(preview, {**values, "limited": list(limited.most)})
    wanting = sorted(place - 1 for place in seen.places)
    return limited.without_room(rows, wanting, seen.running, most), wanting
