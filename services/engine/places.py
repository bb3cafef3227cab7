"""The places of one kind of worker, the threads or the event loop: how many are free, and what waits for them."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from services.engine.due_queue import DueQueue
from services.ledger.fires import Claim
from services.ledger.needs import Needs

AHEAD_SECONDS = 0.25  # of its own throughput that a replica claims beyond its free slots
START_AHEAD_SECONDS = 0.1
MAX_AHEAD = 500


class Places:
    """For the dispatcher's thread; others may read. `taken`: how many have a job, or one that waits in the pool."""

    def __init__(self, most: int, taken: Callable[[], int], is_for: Callable[[Needs], bool] | None = None) -> None:
        self.most, self._taken, self.is_for = most, taken, is_for
        self.waiting = DueQueue()
        self.claimed: deque[tuple[float, Claim]] = deque()
        self.batch = 1
        self.full_since: float | None = None  # since when fires wait and there is no room
        self.give_at = 0.0
        self.passed_over = 0  # of what waits here, in the search for fires of the fleet
        self._job_seconds: float | None = None
        self._moved_at = 0.0  # when the pool last got its first job, or ended one

    @property
    def free(self) -> int:
        """Slots without a job; negative when more was started than runs at once."""
        return self.most - self._taken()

    @property
    def room(self) -> int:
        return self.free + self._ahead(AHEAD_SECONDS) - len(self.claimed)

    @property
    def startable(self) -> int:
        return max(0, self.free + self._ahead(START_AHEAD_SECONDS))

    @property
    def is_overfull(self) -> bool:
        return self._taken() > self.most

    def begins(self) -> None:
        """Called before jobs enter the pool."""
        if not self._taken():
            self._moved_at = time.monotonic()

    def ended(self, duration_seconds: float) -> None:
        self._moved_at = time.monotonic()
        before = self._job_seconds
        self._job_seconds = duration_seconds if before is None else 0.9 * before + 0.1 * duration_seconds

    def _ahead(self, seconds: float) -> int:
        """How many jobs the pool finishes in that time, estimated from recent and current jobs."""
        if self._job_seconds is None:
            return 0
        standstill = time.monotonic() - self._moved_at if self._taken() else 0.0
        return min(MAX_AHEAD, int(seconds * self.most / max(self._job_seconds, standstill, 0.0005)))


@dataclass(frozen=True, slots=True)
class InLoop:
    """What runs in the event loop. The schedules are a hint, kept by the watcher: a wrong one costs a place."""

    most: int
    runs: Callable[[str, Mapping[str, Any]], bool]  # by job type and job_config
    types: frozenset[str]
    schedules: set[UUID]
    is_for: Callable[[Needs], bool]

    def note(self, schedule_id: UUID, *, is_in_loop: bool) -> None:
        """From the watcher, which loads and drops schedules."""
        if is_in_loop:
            self.schedules.add(schedule_id)
        else:
            self.schedules.discard(schedule_id)
