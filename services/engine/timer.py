"""The timer: tells which fires are due now. The only module that uses APScheduler, which serves as the timer only.

Our own job store holds a heap of small entries instead of a Job object per schedule, and shows APScheduler one single
job: "what is due". Our own executor takes the planned fires from it and hands them over. Misfire, overlap and coalesce
are decided elsewhere, with a row.
"""

import heapq
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from apscheduler.executors.base import BaseExecutor
from apscheduler.job import Job
from apscheduler.jobstores.base import BaseJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from database.clock import DatabaseClock
from services.ledger.fires import Fire
from services.triggers import Trigger, spread_offset

logger = logging.getLogger(__name__)

# A clock that is set while we sleep is noticed within this time.
LONGEST_SLEEP = timedelta(seconds=1)
# A process that slept hands over at most so many fires of one schedule at once; the gap scan finds older ones.
FIRES_PER_SCHEDULE = 50
SPARE_ITEMS = 1000
PATIENCE_SECONDS = 30.0


@dataclass(slots=True, eq=False)
class Entry:
    """One schedule in the timer. Its due time in the heap never changes: a new timing is a new entry."""

    schedule_id: UUID
    trigger: Trigger
    spread: timedelta
    priority: int
    due_at: datetime
    is_live: bool = True
    bucket: int = -1

    def __lt__(self, other: "Entry") -> bool:
        return self.due_at < other.due_at

    @property
    def next_at(self) -> datetime:
        """What it fires next, nominally."""
        return self.due_at - self.spread


class Timer:
    """Hands over fires as they become due, in batches, from its own thread; it is live while it keeps checking."""

    name = "timer"

    def __init__(self, hand_over: Callable[[Sequence[Fire]], None], clock: DatabaseClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._heap: list[Entry] = []
        self._live = 0
        self._looked_at = time.monotonic()
        self._scheduler = BackgroundScheduler(timezone=UTC, daemon=True)
        self._scheduler.add_jobstore(_DueStore(self), "default")
        self._scheduler.add_executor(_HandOver(hand_over), "default")

    def __len__(self) -> int:
        return self._live

    @property
    def is_live(self) -> bool:
        return self.stalled_seconds() < PATIENCE_SECONDS

    def stalled_seconds(self) -> float:
        return time.monotonic() - self._looked_at

    def start(self) -> None:
        self._looked_at = time.monotonic()
        self._scheduler.start()

    def stop(self) -> None:
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def put(
        self,
        schedule_id: UUID,
        trigger: Trigger,
        spread_seconds: int,
        priority: int,
        after: datetime,
        bucket: int = -1,
    ) -> Entry:
        """From now on this schedule fires at the trigger's instants later than `after`, until its entry is removed."""
        spread = spread_offset(schedule_id, spread_seconds)
        next_at = trigger.next_after(after)
        if next_at is None:
            return Entry(schedule_id, trigger, spread, priority, after, is_live=False, bucket=bucket)
        entry = Entry(schedule_id, trigger, spread, priority, _due(next_at, spread), bucket=bucket)
        with self._lock:
            self._live += 1
            self._push(entry)
        return entry

    def remove(self, entry: Entry) -> None:
        with self._lock:
            self._end(entry)

    def wake(self) -> None:
        """Look at the heap again; to be called once after a number of changes."""
        if self._scheduler.running:
            self._scheduler.wakeup()

    def next_due_at(self) -> datetime | None:
        with self._lock:
            self._drop_removed()
            return self._heap[0].due_at if self._heap else None

    def take_due(self) -> list[Fire]:
        """Every fire that is due by now; each is handed out once."""
        now = self._clock.now()
        due: list[Fire] = []
        with self._lock:
            while True:
                self._drop_removed()
                if not self._heap or self._heap[0].due_at > now:
                    return due
                self._take_one(heapq.heappop(self._heap), now, due)

    def seconds_to_sleep(self) -> float:
        """Asked by APScheduler's thread whenever it looks."""
        self._looked_at = time.monotonic()
        due_at = self.next_due_at()
        longest = LONGEST_SLEEP.total_seconds()
        if due_at is None:
            return longest
        return min(longest, max(0.0, due_at.timestamp() - self._clock.timestamp()))

    def _take_one(self, entry: Entry, now: datetime, due: list[Fire]) -> None:
        """The entry is not in the heap now."""
        fires = 0
        next_at: datetime | None = entry.next_at
        while next_at is not None and next_at + entry.spread <= now and fires < FIRES_PER_SCHEDULE:
            due.append(Fire(entry.schedule_id, next_at, next_at + entry.spread, entry.priority, entry.bucket))
            fires += 1
            next_at = entry.trigger.next_after(next_at)
        if fires == FIRES_PER_SCHEDULE:
            next_at = entry.trigger.next_after(now - entry.spread)
        if next_at is None:
            self._end(entry)
        else:
            entry.due_at = _due(next_at, entry.spread)
            self._push(entry)

    def _push(self, entry: Entry) -> None:
        if len(self._heap) > 2 * self._live + SPARE_ITEMS:  # most are removed ones: many edits, few fires
            self._heap = [kept for kept in self._heap if kept.is_live]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, entry)

    def _end(self, entry: Entry) -> None:
        self._live -= entry.is_live
        entry.is_live = False

    def _drop_removed(self) -> None:
        while self._heap and not self._heap[0].is_live:
            heapq.heappop(self._heap)


def _due(next_at: datetime, spread: timedelta) -> datetime:
    """Without a spread the trigger's own object, which its schedules share."""
    return next_at + spread if spread else next_at


class _NoTrigger(BaseTrigger):  # type: ignore[misc]  # APScheduler has no types
    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        return now


class _DueJob(Job):  # type: ignore[misc]
    """The one job that APScheduler sees. Its run times are the fires themselves."""

    __slots__ = ("_timer",)

    def __init__(self, timer: Timer, scheduler: Any) -> None:
        super().__init__(
            scheduler,
            id="due",
            func=_never_called,
            args=(),
            kwargs={},
            trigger=_NoTrigger(),
            executor="default",
            misfire_grace_time=None,
            coalesce=False,
            max_instances=1,
            next_run_time=datetime.now(UTC),
        )
        self._timer = timer

    def _get_run_times(self, now: datetime) -> list[Fire]:
        return self._timer.take_due()


class _DueStore(BaseJobStore):  # type: ignore[misc]
    """Tells when to wake up and that something is due. No job is ever added from outside."""

    def __init__(self, timer: Timer) -> None:
        super().__init__()
        self._timer = timer
        self._job: _DueJob | None = None

    def start(self, scheduler: Any, alias: str) -> None:
        super().start(scheduler, alias)
        self._job = _DueJob(self._timer, scheduler)

    def get_due_jobs(self, now: datetime) -> list[_DueJob | None]:
        return [self._job] if self._timer.seconds_to_sleep() <= 0 else []

    def get_next_run_time(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self._timer.seconds_to_sleep())

    def get_all_jobs(self) -> list[Job]:
        return []

    def lookup_job(self, job_id: str) -> None:
        return None

    def add_job(self, job: Job) -> None:
        raise TypeError("schedules are put into the Timer, not added as APScheduler jobs")

    def update_job(self, job: Job) -> None:
        """APScheduler stores the job's next run time here; ours is in the heap."""

    def remove_job(self, job_id: str) -> None:
        """The one job stays."""

    def remove_all_jobs(self) -> None:
        """The one job stays."""


class _HandOver(BaseExecutor):  # type: ignore[misc]
    """Takes the planned fires where other executors would run a function."""

    def __init__(self, hand_over: Callable[[Sequence[Fire]], None]) -> None:
        super().__init__()
        self._hand_over = hand_over

    def submit_job(self, job: Job, run_times: list[Fire]) -> None:
        self._hand_over(run_times)

    def _do_submit_job(self, job: Job, run_times: list[Fire]) -> None:
        raise AssertionError("submit_job does not come here")


def _never_called() -> None:
    raise AssertionError("the executor takes the fires; APScheduler calls no function")
