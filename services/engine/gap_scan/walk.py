"""Which fires should have a row: schedules in blocks, each block processed in pieces of bounded size. Pure.

Schedules that share a trigger are processed together: the cost of a piece depends on its distinct fire times, and
Postgres combines those with the schedules. Start reading at `expected_fires` and `Block.piece`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from services.engine.loaded import Loaded
from services.triggers import Trigger

PAIRS_PER_PIECE = 50_000  # of a schedule and a fire, which one statement compares in a fraction of a second
SCHEDULES_PER_BLOCK = 1000


@dataclass(frozen=True, slots=True)
class Watched:
    """One schedule and the range of nominal times to check: after < t <= until."""

    schedule_id: UUID
    after: datetime
    until: datetime
    spread: timedelta = timedelta(0)
    revision: int | None = None  # None: of a definition that has ended
    priority: int = 0
    bucket: int = -1


@dataclass(frozen=True, slots=True)
class Window:
    """The range of one scan: fires due in (since, until], and earlier ones that a previous scan could not check."""

    since: datetime
    until: datetime
    oldest: datetime  # history ends here
    new_load: int  # timing that came with this load or a later one was not looked at yet
    behind: Mapping[UUID, datetime] = field(default_factory=dict)  # after which these still had fires without a row

    def is_usual(self, schedule_id: UUID, known: Loaded) -> bool:
        """Nothing but the time since the last scan is to be looked at."""
        if known.load >= self.new_load or known.effective_from > self.since:
            return False
        return not self.behind or schedule_id not in self.behind

    def of(self, known: Loaded) -> Watched:
        """A fire counts from when it is due, not from its nominal time; late commits bring timing that is not new."""
        entry = known.entry
        if entry is None:
            raise ValueError("a disabled or parked schedule has no expected fires")
        after = self.since - entry.spread if known.load < self.new_load else self.oldest
        after = min(after, self.behind.get(entry.schedule_id, after))
        until = self.until - entry.spread
        first = max(after, known.effective_from)
        return Watched(entry.schedule_id, first, until, entry.spread, known.revision, entry.priority, entry.bucket)


@dataclass(slots=True)
class Part:
    """Some schedules with one trigger, processed up to and including `reached`."""

    trigger: Trigger
    schedules: Sequence[Watched]
    reached: datetime
    until: datetime

    def fires(self, pairs: int) -> list[datetime]:
        """The next ones: as many as make so many pairs with the schedules, at least one."""
        most = max(1, pairs // len(self.schedules))
        return list(islice(self.trigger.between(self.reached, self.until), most))


@dataclass(frozen=True, slots=True)
class Piece:
    """The fires that one statement compares, and the parts that did not fit in."""

    taken: list[tuple[Part, list[datetime]]]
    rest: list[Part]

    def as_values(self) -> dict[str, list[Any]]:
        """The schedules and the fires as columns; a number says which belong together."""
        watched = [(number, item) for number, (part, _) in enumerate(self.taken) for item in part.schedules]
        fires = [(number, at) for number, (_, some) in enumerate(self.taken) for at in some]
        return {
            "parts": [number for number, _ in watched],
            "ids": [item.schedule_id for _, item in watched],
            "after": [item.after for _, item in watched],
            "until": [item.until for _, item in watched],
            "fire_parts": [number for number, _ in fires],
            "fires": [at for _, at in fires],
        }


@dataclass(slots=True)
class Block:
    """At most about SCHEDULES_PER_BLOCK schedules, so that the findings fit into memory."""

    parts: list[Part]
    _open: list[Part] = field(init=False)

    def __post_init__(self) -> None:
        self._open = self.parts

    def piece(self) -> Piece | None:
        """What to compare next, the same again until `advance`; None when everything was walked."""
        taken: list[tuple[Part, list[datetime]]] = []
        room = PAIRS_PER_PIECE
        for number, part in enumerate(self._open):
            if room <= 0:
                return Piece(taken, self._open[number:])
            if fires := part.fires(room):
                taken.append((part, fires))
                room -= len(fires) * len(part.schedules)
        return Piece(taken, []) if taken else None

    def advance(self, piece: Piece) -> None:
        for part, fires in piece.taken:
            part.reached = fires[-1]
        self._open = [*(part for part, _ in piece.taken), *piece.rest]

    def watched(self) -> dict[UUID, Watched]:
        return {item.schedule_id: item for part in self.parts for item in part.schedules}


def expected_fires(loaded: Mapping[UUID, Loaded], window: Window) -> Iterator[Block]:
    """Everything that must have a row, as far as the schedules are loaded."""
    return blocks(_parts(loaded, window))


def blocks(parts: Iterable[Part]) -> Iterator[Block]:
    held: list[Part] = []
    schedules = 0
    for part in parts:
        held.append(part)
        schedules += len(part.schedules)
        if schedules >= SCHEDULES_PER_BLOCK:
            yield Block(held)
            held, schedules = [], 0
    if held:
        yield Block(held)


def parts_of(trigger: Trigger, watched: Sequence[Watched]) -> Iterator[Part]:
    for start in range(0, len(watched), SCHEDULES_PER_BLOCK):
        some = watched[start : start + SCHEDULES_PER_BLOCK]
        yield Part(trigger, some, min(item.after for item in some), max(item.until for item in some))


def _parts(loaded: Mapping[UUID, Loaded], window: Window) -> Iterator[Part]:
    for trigger, schedules in _by_trigger(loaded, window):
        for start in range(0, len(schedules), SCHEDULES_PER_BLOCK):
            some = schedules[start : start + SCHEDULES_PER_BLOCK]
            watched = [item for item in map(window.of, some) if _fires(trigger, item.after, item.until)]
            yield from parts_of(trigger, watched)


def _by_trigger(loaded: Mapping[UUID, Loaded], window: Window) -> Iterable[tuple[Trigger, list[Loaded]]]:
    """Most triggers have no fire in a short window: their schedules cost nothing more than a look."""
    found: dict[int, tuple[Trigger, list[Loaded]]] = {}
    quiet: dict[int, bool] = {}
    since = window.since - max((known.entry.spread for known in loaded.values() if known.entry), default=timedelta(0))
    for known in loaded.values():
        if known.entry is None:
            continue
        trigger = known.entry.trigger
        key = id(trigger)
        if key not in quiet:
            quiet[key] = not _fires(trigger, since, window.until)
        if not quiet[key] or not window.is_usual(known.entry.schedule_id, known):
            found.setdefault(key, (trigger, []))[1].append(known)
    return found.values()


def _fires(trigger: Trigger, after: datetime, until: datetime) -> bool:
    at = trigger.next_after(after)
    return at is not None and at <= until
