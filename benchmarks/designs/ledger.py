"""Ledger of the no-op handler's calls, for every design: a fixed-size record per call, appended to a file in one write.

No unique key can hide a second call, no round trip is added, and a record survives the kill -9 of who wrote it. Needs
nothing but Python: other schedulers live in environments of their own.
"""

import os
import statistics
import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from uuid import UUID

from benchmarks.designs.plan import Plan

VARIABLE = "BENCHMARK_LEDGER"  # names the file to the processes of a design
RECORD = struct.Struct("=16sqq")  # schedule, planned for, called at; instants in microseconds

Fire = tuple[UUID, int]


def noop(schedule_id: UUID | str, planned: datetime) -> None:
    """The handler of every design: records its call and the fire."""
    schedule = schedule_id if isinstance(schedule_id, UUID) else UUID(schedule_id)
    os.write(_file(), RECORD.pack(schedule.bytes, _microseconds(planned), time.time_ns() // 1000))


@cache
def _file() -> int:
    return os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@dataclass(frozen=True, slots=True)
class Tally:
    """The fires of a plan beside the calls that were made."""

    lateness: list[float]  # seconds until the first call, of each fire that was called; ascending
    twice: int  # calls beyond the first of a fire
    missing: int  # fires without a call

    @property
    def run(self) -> int:
        return len(self.lateness)

    def later_than(self, seconds: float) -> int:
        """Fires called later than this, or never."""
        return sum(late > seconds for late in self.lateness) + self.missing

    def percentile(self, percent: int) -> float:
        """Percentile over the fires that were called; 0 if none was."""
        if self.run < 2:
            return sum(self.lateness)
        return statistics.quantiles(self.lateness, n=100, method="inclusive")[percent - 1]


class Ledger:
    """Reads the ledger."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __len__(self) -> int:
        return self._file.stat().st_size // RECORD.size if self._file.exists() else 0

    def tally(self, plan: Plan, schedule_ids: Iterable[UUID]) -> Tally:
        """Tally of the plan's fires; calls for other instants are ignored."""
        instants = [_microseconds(at) for at in plan.instants()]
        planned = {(schedule_id, at) for schedule_id in schedule_ids for at in instants}
        calls: Counter[Fire] = Counter()
        first: dict[Fire, int] = {}
        for fire, called in self._records():
            if fire in planned:
                calls[fire] += 1
                first[fire] = min(called, first.get(fire, called))
        return Tally(
            lateness=sorted((called - fire[1]) / 1e6 for fire, called in first.items()),
            twice=calls.total() - len(calls),
            missing=len(planned) - len(calls),
        )

    def _records(self) -> Iterator[tuple[Fire, int]]:
        data = self._file.read_bytes() if self._file.exists() else b""
        for schedule, planned, called in RECORD.iter_unpack(data):
            yield (UUID(bytes=schedule), planned), called


def _microseconds(at: datetime) -> int:
    return round(at.timestamp() * 1e6)
