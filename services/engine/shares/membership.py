"""The living replicas, as their heartbeats describe them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One replica, as its last heartbeat describes it."""

    instance_id: str
    incarnation: UUID
    started_at: datetime
    host: str | None = None
    claiming: bool = True
    on_duty: bool = True  # claiming, and not back from a pause a moment ago
    holds: int | None = 0  # the buckets that it has loaded; None: of the version before, which loads everything
    is_fresh: bool = True  # its last heartbeat is younger than its interval: it may be dead, but not for long
    free_slots: int = 0
    free_async_slots: int = 0  # of its event loop
    abilities: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    counts_streaks: bool = False  # versions before did not

    @property
    def is_elder(self) -> bool:
        return self.holds is None

    @property
    def identity(self) -> tuple[str, UUID]:
        return self.instance_id, self.incarnation

    @property
    def age_key(self) -> tuple[datetime, UUID]:
        return self.started_at, self.incarnation

    def free(self, *, in_loop: bool) -> int:
        return self.free_async_slots if in_loop else self.free_slots

    def is_able(self, needs: Iterable[str], queue: str) -> bool:
        return queue in self.queues and self.abilities.issuperset(needs)

    def holds_bucket(self, bucket: int) -> bool:
        return self.holds is not None and bool(self.holds >> bucket & 1)


@dataclass(frozen=True)
class Membership:
    """One member per name: a replica that was restarted counts once, with its newest process."""

    members: tuple[Member, ...] = ()
    elders: tuple[Member, ...] = ()

    @classmethod
    def of(cls, found: Iterable[Member]) -> "Membership":
        newest: dict[str, Member] = {}
        for member in found:
            known = newest.get(member.instance_id)
            if known is None or member.age_key > known.age_key:
                newest[member.instance_id] = member
        ordered = [newest[name] for name in sorted(newest)]
        return cls(
            tuple(each for each in ordered if not each.is_elder), tuple(each for each in ordered if each.is_elder)
        )

    def with_those_missing(self, former: "Membership", gone: Iterable[UUID] = ()) -> "Membership":
        """Also the members of a former reading: an observer that was away itself cannot tell who is dead.

        Those in `gone` have unregistered, which is no silence.
        """
        left = set(gone)
        kept = [each for each in (*former.members, *former.elders) if each.incarnation not in left]
        mine = {each.identity for each in (*self.members, *self.elders)}
        return Membership.of([*self.members, *self.elders, *(each for each in kept if each.identity not in mine)])

    def with_own(self, instance_id: str, incarnation: UUID, holds: int) -> "Membership":
        """What this replica holds is known to itself before a heartbeat says it."""
        return Membership(
            tuple(
                replace(each, holds=holds) if each.identity == (instance_id, incarnation) else each
                for each in self.members
            ),
            self.elders,
        )

    @cached_property
    def on_duty(self) -> tuple[Member, ...]:
        """Those that must hold buckets: all that claim steadily; if there is none, all that claim."""
        steady = tuple(each for each in self.members if each.claiming and each.on_duty)
        return steady or tuple(each for each in self.members if each.claiming)

    @cached_property
    def triers(self) -> tuple[tuple[tuple[str, UUID], bool, int | None], ...]:
        """All that decides who tries a fire first."""
        return tuple((each.identity, each.claiming, each.holds) for each in self.members)

    @cached_property
    def held(self) -> int:
        """What somebody that claims has loaded."""
        held = 0
        for member in self.members:
            held |= member.holds if member.claiming and member.holds is not None else 0
        return held
