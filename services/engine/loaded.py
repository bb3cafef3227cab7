"""The loaded schedules, bucket by bucket: written by the watcher, read by the gap scan."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from services.engine.timer import Entry
from services.schedules.buckets import BUCKETS


@dataclass(frozen=True, slots=True)
class Loaded:
    """What this replica knows about a schedule; without an entry in the timer it is disabled or parked."""

    revision: int
    effective_from: datetime
    entry: Entry | None
    load: int = 0  # how many loads were finished when this timing came


@dataclass(slots=True)
class Bucket:
    """The schedules of one bucket that this replica holds."""

    number: int
    load: int = 0  # how many loads were finished when the bucket came
    loaded_at: datetime | None = None  # None: it is not held, and is read from the table for one scan
    schedules: dict[UUID, Loaded] = field(default_factory=dict)
    revisions: int = 0  # the sum over them

    def put(self, schedule_id: UUID, loaded: Loaded) -> Loaded | None:
        """Returns what was known before."""
        former = self.schedules.get(schedule_id)
        self.schedules[schedule_id] = loaded
        self.revisions += loaded.revision - (former.revision if former else 0)
        return former

    def pop(self, schedule_id: UUID) -> Loaded | None:
        former = self.schedules.pop(schedule_id, None)
        self.revisions -= former.revision if former else 0
        return former

    @property
    def digest(self) -> tuple[int, int]:
        return len(self.schedules), self.revisions


class LoadedBuckets:
    """One thread writes. Others read what `copy` gives them."""

    def __init__(self) -> None:
        self._held: list[Bucket | None] = [None] * BUCKETS

    def __len__(self) -> int:
        return sum(len(bucket.schedules) for bucket in self.held())

    def held(self) -> Iterable[Bucket]:
        return (bucket for bucket in self._held if bucket is not None)

    def get(self, number: int) -> Bucket | None:
        """None: not held."""
        return self._held[number]

    def add(self, bucket: Bucket) -> None:
        self._held[bucket.number] = bucket

    def drop(self, number: int) -> Bucket | None:
        bucket, self._held[number] = self._held[number], None
        return bucket

    @property
    def digest(self) -> tuple[int, int]:
        digests = [bucket.digest for bucket in self.held()]
        return sum(total for total, _ in digests), sum(revisions for _, revisions in digests)

    def copy(self, numbers: Collection[int]) -> Mapping[int, Bucket]:
        """Of those that are held. The dictionaries are copies; what they hold never changes."""
        found = ((number, self._held[number]) for number in numbers)
        return {
            number: Bucket(number, bucket.load, bucket.loaded_at, dict(bucket.schedules), bucket.revisions)
            for number, bucket in found
            if bucket is not None
        }
