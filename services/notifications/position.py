"""How far the notifier has walked, and what a round of the walk has to look at. Pure; docs/decisions.md has the proof.

A position is a snapshot of Postgres, `seen`: all that it shows has been judged. A round goes from `seen` to a newer
snapshot, `target`. It looks at rows whose writer was not finished in `seen`, along the index of ends, from the earliest
end that such a writer can have written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

SLACK = timedelta(seconds=5)  # between the end that a statement computes and the transaction id that it then takes
CLOCK_STEP = timedelta(seconds=60)  # by which the server's clock may be set back between two looks
BEFORE_THE_FIRST = timedelta(hours=1)  # transactions that were open already when the first look began
AHEAD = timedelta(hours=1)
MOST_MARKS = 200
NOTHING = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """As Postgres writes it: `xmin:xmax:xid,xid,…`, the last of them those that are in progress."""

    text: str
    xmin: int
    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Self:
        xmin, xmax, running = text.split(":")
        return cls(text, int(xmin), int(xmax), frozenset(int(each) for each in running.split(",") if each))


@dataclass(frozen=True, slots=True)
class Round:
    """`first_xid`: the oldest writer whose rows may be new. `at` and `execution_id`: of the last row looked at."""

    target: str
    target_at: datetime
    first_xid: int
    at: datetime
    execution_id: UUID = NOTHING

    @property
    def until(self) -> datetime:
        return self.target_at + AHEAD

    def after(self, at: datetime, execution_id: UUID) -> Self:
        return replace(self, at=at, execution_id=execution_id)


@dataclass(frozen=True, slots=True)
class Position:
    """`marks`: (transaction id, time): what has this id or a higher one was written at this time or later."""

    seen: str | None = None
    marks: tuple[tuple[int, datetime], ...] = ()
    round: Round | None = None
    schedules_after: UUID = NOTHING  # the walk along schedules that have had no success

    def begin(self, snapshot: str, now: datetime) -> Self:
        """A new round; without a position the walk begins here, with nothing to look at."""
        if self.seen is None:
            return self.jump(snapshot, now)
        if now < self.marks[-1][1]:
            return self._set_back(now).begin(snapshot, now)
        seen, target = Snapshot.parse(self.seen), Snapshot.parse(snapshot)
        finished = [xid for xid in seen.running if xid not in target.running]
        first = min([seen.xmax, *finished])
        return replace(self, round=Round(snapshot, now, first, self._written_since(first) - SLACK))

    def done(self) -> Self:
        """The round is over: all that its target shows has been judged."""
        if self.round is None:
            return self
        target = Snapshot.parse(self.round.target)
        marks = (*self.marks, (target.xmax, self.round.target_at))
        return replace(self, seen=self.round.target, marks=_needed(marks, target.xmin), round=None)

    def jump(self, snapshot: str, now: datetime) -> Self:
        """To the present, without a look at what lies between."""
        target = Snapshot.parse(snapshot)
        marks = (*self.marks, (target.xmax, now)) if self.seen else ((target.xmax, now),)
        return replace(self, seen=snapshot, marks=_needed(marks, target.xmin), round=None)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"seen": self.seen, "schedules_after": str(self.schedules_after)}
        found["marks"] = [[xid, at.isoformat()] for xid, at in self.marks]
        if (now := self.round) is not None:
            found["round"] = {
                "target": now.target,
                "target_at": now.target_at.isoformat(),
                "first_xid": now.first_xid,
                "at": now.at.isoformat(),
                "execution_id": str(now.execution_id),
            }
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        now = found.get("round")
        return cls(
            seen=found.get("seen"),
            marks=tuple((int(xid), datetime.fromisoformat(at)) for xid, at in found.get("marks", ())),
            round=None
            if now is None
            else Round(
                target=now["target"],
                target_at=datetime.fromisoformat(now["target_at"]),
                first_xid=int(now["first_xid"]),
                at=datetime.fromisoformat(now["at"]),
                execution_id=UUID(now["execution_id"]),
            ),
            schedules_after=UUID(found.get("schedules_after") or str(NOTHING)),
        )

    def _set_back(self, now: datetime) -> Self:
        """The server's clock was: all that was noted as later has been written after this, too."""
        return replace(self, marks=tuple((xid, min(at, now - CLOCK_STEP)) for xid, at in self.marks))

    def _written_since(self, xid: int) -> datetime:
        """When the first row of a transaction with this id can have been written."""
        earlier = [at for known, at in self.marks if known <= xid]
        return max(earlier) if earlier else self.marks[0][1] - BEFORE_THE_FIRST


def _needed(marks: tuple[tuple[int, datetime], ...], xmin: int) -> tuple[tuple[int, datetime], ...]:
    """The last mark that is not above `xmin`, and all later ones; of too many every second one."""
    below = [mark for mark in marks if mark[0] <= xmin]
    kept = (*below[-1:], *(mark for mark in marks if mark[0] > xmin))
    while len(kept) > MOST_MARKS:
        kept = (kept[0], *kept[1:-1:2], kept[-1])
    return kept
