"""Fires that wait for their moment to be tried, and then for a slot: the most urgent first, schedule by schedule.

All ready fires of a schedule leave together, because only a claim that sees them together can make one run of them.
"""

import heapq
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from services.fires import Fire


class DueQueue:
    """For one thread; its length may be read by others. A fire that is here already is not put in again."""

    def __init__(self) -> None:
        self._keys: set[tuple[UUID, datetime]] = set()
        self._later: list[tuple[float, int, Fire]] = []  # heap: try at, tie-breaker
        self._ready: dict[UUID, list[Fire]] = {}
        self._order: list[tuple[int, float, int, UUID]] = []  # heap of the ready ones: -priority, due, tie-breaker
        self._ties = 0

    def __len__(self) -> int:
        return len(self._keys)

    def put(self, fire: Fire, try_at: float) -> None:
        if fire.key in self._keys:
            return
        self._keys.add(fire.key)
        heapq.heappush(self._later, (try_at, self._tie(), fire))

    def take(self, now: float, count: int) -> list[Fire]:
        """So many fires that may be tried by now, and further ones of the last one's schedule."""
        self._make_ready(now)
        taken: list[Fire] = []
        while self._order and len(taken) < count:
            schedule_id = heapq.heappop(self._order)[-1]
            taken += self._ready.pop(schedule_id)
        self._keys.difference_update(fire.key for fire in taken)
        return taken

    def next_at(self) -> float | None:
        """When there is something to take; None while nothing waits."""
        if self._order:
            return 0.0
        return self._later[0][0] if self._later else None

    def _make_ready(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            fire = heapq.heappop(self._later)[-1]
            beside = self._ready.setdefault(fire.schedule_id, [])
            beside.append(fire)
            if len(beside) == 1:
                place = -fire.priority, fire.due_at.timestamp(), self._tie(), fire.schedule_id
                heapq.heappush(self._order, place)

    def _tie(self) -> int:
        self._ties += 1
        return self._ties


def whole_schedules(fires: Sequence[Fire], count: int) -> tuple[list[Fire], list[Fire]]:
    """The first `count` fires and all others of their schedules; and the rest."""
    first = {fire.schedule_id for fire in fires[: max(0, count)]}
    return [fire for fire in fires if fire.schedule_id in first], [
        fire for fire in fires if fire.schedule_id not in first
    ]
