"""When a schedule fires: frequency + time_config + timezone -> instants in UTC. Pure: no clock, no I/O, no database.

The fires of a trigger are one fixed set of whole seconds, the same in every process. Start at Trigger.next_after; the
rules are in times.py, the validation of input in definition.py, the wording in words.py.
"""

import hashlib
import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from threading import Lock
from typing import Any, final
from uuid import UUID
from weakref import WeakValueDictionary

from services.triggers import words
from services.triggers.definition import FREQUENCIES, Definition, read_definition
from services.triggers.local_time import END_OF_TIME, instant_of, seconds_of, tzdata_version
from services.triggers.times import Times, fire_times

__all__ = ["FREQUENCIES", "Trigger", "parse_trigger", "spread_offset", "stored_trigger", "trigger_of", "tzdata_version"]

_LOOKAHEAD_SECONDS = 365 * 86_400
_STORED_TIMINGS = 4096
_SECOND = timedelta(seconds=1)
_NO_SPREAD = timedelta(0)  # one object for the many schedules without

_Answer = tuple[int, int, datetime | None]  # valid for every instant in [first, second)
_NO_ANSWER: _Answer = (0, 0, None)


@final
@dataclass(frozen=True, slots=True, weakref_slot=True)
class Trigger:
    """The fires of one definition, shared by all schedules that have it; obtained from `parse_trigger`."""

    definition: Definition
    _times: Times = field(repr=False, compare=False)
    _first: int = field(repr=False, compare=False)
    _limit: int = field(repr=False, compare=False)
    # The last answer: schedules that share a trigger ask the same question. One slot holding one tuple, replaced as a
    # whole, so that threads need no lock.
    _last: list[_Answer] = field(default_factory=lambda: [_NO_ANSWER], repr=False, compare=False)

    def next_after(self, instant: datetime) -> datetime | None:
        """The first fire strictly after `instant`, or None when none is left.

        A fire t satisfies start_at <= t < end_at.
        """
        seconds = seconds_of(instant)
        since, until, answer = self._last[0]
        if since <= seconds < until:
            return answer
        at = self._fire_after(seconds)
        answer = None if at is None else instant_of(at)
        self._last[0] = (seconds, END_OF_TIME if at is None else at, answer)
        return answer

    def fires_at(self, instant: datetime) -> bool:
        return self.next_after(instant - _SECOND) == instant

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """The fires t with after < t <= until, lazily."""
        for bound in (after, until):
            seconds_of(bound)  # refuses a naive datetime now, not at the first fire
        return self._between(after, until)

    def describe(self) -> str:
        return words.describe(self.definition)

    def warnings(self, since: datetime | None = None) -> list[str]:
        """Behaviour that may surprise the author; with `since`, also the clock changes in the year after it."""
        if self._fire_after(-1) is None:
            return ["never fires"]
        warnings = words.lasting_warnings(self.definition)
        if since is None:
            return warnings
        if self.next_after(since) is None:
            return [*warnings, f"has no fire after {since.isoformat(sep=' ', timespec='seconds')}"]
        start = seconds_of(since)
        return [*warnings, *words.clock_change_warnings(self.definition, start, start + _LOOKAHEAD_SECONDS)]

    def _fire_after(self, seconds: int) -> int | None:
        at = self._times.after(max(seconds, self._first - 1)) if seconds < self._limit else None
        return None if at is None or at >= self._limit else at

    def _between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        fire = self.next_after(after)
        while fire is not None and fire <= until:
            yield fire
            fire = self.next_after(fire)


_shared: WeakValueDictionary[Definition, Trigger] = WeakValueDictionary()
# A bulk save asks for one trigger after the other and keeps none; the newest stay alive with their cached answer.
_newest: deque[Trigger] = deque(maxlen=256)
_shared_lock = Lock()


def parse_trigger(
    frequency: str,
    time_config: Mapping[str, Any],
    timezone: str = "UTC",
    start_at: datetime | None = None,
    end_at: datetime | None = None,
    *,
    suggest: bool = True,
) -> Trigger:
    """The one Trigger of this definition; raises InvalidSchedule with every problem found.

    Without `suggest`, problems contain no "did you mean": for stored rows, of which thousands may be invalid.
    """
    definition = read_definition(frequency, time_config, timezone, start_at, end_at, suggest=suggest)
    with _shared_lock:
        trigger = _shared.get(definition)
        if trigger is None:
            trigger = _shared[definition] = _build(definition)
            _newest.append(trigger)
        return trigger


@lru_cache(_STORED_TIMINGS)
def stored_trigger(
    frequency: str, time_config: str, timezone: str, start_at: datetime | None, end_at: datetime | None
) -> Trigger:
    """The same for stored rows, with their JSON as text: many rows share a timing, which is parsed once."""
    return parse_trigger(frequency, json.loads(time_config), timezone, start_at, end_at, suggest=False)


def trigger_of(row: Any, *, suggest: bool = False) -> Trigger:
    """The Trigger of a row of schedules, or of a definition that it had before; raises InvalidSchedule.

    Where a statement reads `time_config` as text, `stored_trigger` answers.
    """
    timing = row.frequency, row.time_config, row.timezone, row.start_at, row.end_at
    return stored_trigger(*timing) if isinstance(row.time_config, str) else parse_trigger(*timing, suggest=suggest)


def _build(definition: Definition) -> Trigger:
    return Trigger(definition, fire_times(definition), definition.first, definition.limit)


def spread_offset(schedule_id: UUID, spread_seconds: int) -> timedelta:
    """How long this schedule waits after its nominal time: the same in every process, uniform in [0, spread_seconds).

    In milliseconds, so that 10,000 schedules spread over ten seconds do not fire in ten bursts.
    """
    if spread_seconds <= 0:
        return _NO_SPREAD
    digest = hashlib.blake2b(schedule_id.bytes, digest_size=8).digest()
    return timedelta(milliseconds=int.from_bytes(digest, "big") % (spread_seconds * 1000))
