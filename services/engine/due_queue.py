"""Fires that wait for their next attempt and then for a slot: most urgent first, schedule by schedule.

All ready fires of a schedule leave together, because only a claim that sees all of them can coalesce them. A schedule
whose row another session locks is one entry, however many of its fires wait. It is retried with increasing delays, so
that it does not take the turns of other schedules.
"""

import heapq
from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from database.backoff import Backoff
from services.ledger.fires import Fire

# First: usually another replica's claim or finish, which is over by then. Jitter: replicas must not march in step.
PATIENCE = Backoff(first_seconds=0.075, longest_seconds=2.0, jitter=0.3)
PROBED_AFTER = 2  # so often held in a row: asked whether it is free before it is tried again


class DueQueue:
    """Used by one thread; others may read its length and its oldest fire. A fire in the queue is not added again.

    Every fire of every replica passes through it. The hash of a UUID is a call of Python, so nothing empty is asked.
    """

    def __init__(self) -> None:
        self._due: dict[tuple[UUID, datetime], datetime] = {}  # of every fire that waits here, by its key
        self._later: list[tuple[float, int, Fire]] = []  # heap: try at, tie-breaker
        self._ready: dict[UUID, list[Fire]] = {}
        self._order: list[tuple[int, float, int, UUID]] = []  # heap of the ready ones: -priority, due, tie-breaker
        self._held: dict[UUID, list[Fire]] = {}
        self._held_until: list[tuple[float, int, UUID]] = []  # heap of the held ones
        self._times_held: dict[UUID, int] = {}  # in a row
        self._ties = 0

    def __len__(self) -> int:
        return len(self._due)

    @property
    def oldest_due_at(self) -> datetime | None:
        """When the fire that waits longest was due, those of held schedules included."""
        return min(list(self._due.values()), default=None)

    @property
    def held_schedules(self) -> int:
        """Schedules that were found held more than once in a row."""
        return sum(times >= PROBED_AFTER for times in list(self._times_held.values()))

    @property
    def is_crowded(self) -> bool:
        """Does any fire wait whose schedule is not held?"""
        return bool(self._later or self._order)

    def put(self, fire: Fire, try_at: float) -> None:
        before = len(self._due)
        self._due.setdefault(fire.key, fire.due_at)
        if len(self._due) == before:
            return
        if self._held and fire.schedule_id in self._held:
            self._held[fire.schedule_id].append(fire)
        else:
            heapq.heappush(self._later, (try_at, self._tie(), fire))

    def take(self, now: float, count: int) -> list[Fire]:
        """At most `count` ready fires, plus the other ready fires of the last one's schedule."""
        self._make_ready(now)
        taken: list[Fire] = []
        while self._order and len(taken) < count:
            schedule_id = heapq.heappop(self._order)[-1]
            taken += self._ready.pop(schedule_id)
        for fire in taken:
            self._due.pop(fire.key, None)
        return taken

    def next_at(self) -> float | None:
        """When the next fire or probe is due; None while nothing waits."""
        if self._order:
            return 0.0
        return min((heap[0][0] for heap in (self._later, self._held_until) if heap), default=None)

    # --- schedules that another session holds ---

    def hold(self, fires: Sequence[Fire], now: float) -> None:
        """Fires of one schedule that was held when they were tried wait together, with a growing delay."""
        schedule_id = fires[0].schedule_id
        waits_already = schedule_id in self._held
        beside = self._held.setdefault(schedule_id, [])
        beside += [fire for fire in fires if fire.key not in self._due]
        self._due.update((fire.key, fire.due_at) for fire in fires)
        if not waits_already:
            self._wait(schedule_id, now)

    def was_free(self, schedule_ids: Iterable[UUID]) -> None:
        """The schedules could be claimed: their delay starts anew."""
        if self._times_held:
            for schedule_id in schedule_ids:
                if schedule_id not in self._held:
                    self._times_held.pop(schedule_id, None)

    def to_probe(self, now: float, count: int) -> list[UUID]:
        """Held schedules whose probe is due; report each result to `probed`."""
        due: list[UUID] = []
        while self._held_until and self._held_until[0][0] <= now and len(due) < count:
            schedule_id = heapq.heappop(self._held_until)[-1]
            if self._times_held[schedule_id] < PROBED_AFTER:
                self._let_go(schedule_id)
            else:
                due.append(schedule_id)
        return due

    def probed(self, schedule_ids: Iterable[UUID], free: set[UUID], now: float) -> None:
        for schedule_id in schedule_ids:
            if schedule_id in free:
                self._let_go(schedule_id)
            else:
                self._wait(schedule_id, now)

    def _wait(self, schedule_id: UUID, now: float) -> None:
        times = self._times_held[schedule_id] = self._times_held.get(schedule_id, 0) + 1
        heapq.heappush(self._held_until, (now + PATIENCE.after(times), self._tie(), schedule_id))

    def _let_go(self, schedule_id: UUID) -> None:
        for fire in self._held.pop(schedule_id):
            heapq.heappush(self._later, (0.0, self._tie(), fire))

    def _make_ready(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            fire = heapq.heappop(self._later)[-1]
            if self._held and fire.schedule_id in self._held:
                self._held[fire.schedule_id].append(fire)
                continue
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
    if len(fires) <= count:
        return list(fires), []
    first = {fire.schedule_id for fire in fires[: max(0, count)]}
    return [fire for fire in fires if fire.schedule_id in first], [
        fire for fire in fires if fire.schedule_id not in first
    ]
