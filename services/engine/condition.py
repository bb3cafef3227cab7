"""Whether this replica may claim and makes progress, and the reasons if not.

`claiming` has one meaning everywhere (heartbeat, metric, `/readyz`, dashboard): the replica may claim, and every loop
that a fire passes through makes progress.
"""

import time
from collections.abc import Callable
from datetime import datetime
from threading import Event
from typing import Any

from database.clock import DatabaseClock
from services.distributed_lock import Coordinator
from services.engine.heart import Heart
from services.engine.loops import Loops
from services.engine.shares.shares import Shares
from services.engine.timer import Timer
from services.telemetry import metrics

FIRES_WAY = ("dispatcher", "finisher", "watcher", "heart")  # loops without which nothing runs, and the timer


class Condition:
    """Used by dispatcher, heart and health. `is_started` is false while the replica starts or drains."""

    def __init__(
        self,
        heart: Heart,
        clock: DatabaseClock,
        coordinator: Coordinator,
        timer: Timer,
        loops: Loops,
        stopping: Event,
        *,
        shares: Shares,
        pauses_without_redis: bool,
        is_started: Callable[[], bool],
    ) -> None:
        self._heart, self._clock, self._coordinator, self._timer = heart, clock, coordinator, timer
        self._loops, self._stopping, self._shares = loops, stopping, shares
        self._pauses_without_redis, self._is_started = pauses_without_redis, is_started
        self._told_claiming: bool | None = None  # by the last heartbeat
        self._idle_since: datetime | None = None
        self._back_since: float | None = None  # when it began to claim again, after a pause
        self._has_paused = False

    @property
    def may_claim(self) -> bool:
        """What the dispatcher asks. Its own failures do not stop it: by trying it finds out that they are over.

        A result that cannot be written is a reason not to begin, so the finisher's failures do.
        """
        can_finish = self._loops.trouble("finisher") is None
        return self._heart.is_trusted and not self._stopping.is_set() and not self._obstacles() and can_finish

    @property
    def may_give_away(self) -> bool:
        """Also while it drains: may it write rows for others? One of the version before tries all fires itself."""
        return self._heart.is_trusted and not self._obstacles() and not self._shares.elders

    @property
    def claiming(self) -> bool:
        return self._heart.is_trusted and self._would_claim

    @property
    def _would_claim(self) -> bool:
        """As `may_claim`, for a heartbeat: once written, the heartbeat itself is the sign of life."""
        return not self._stopping.is_set() and not self._obstacles() and not self._failing_loops()

    def for_heartbeat(self) -> dict[str, Any]:
        """What a heartbeat says about it, and since when."""
        self._told_claiming = claiming = self._would_claim
        self._idle_since = None if claiming else self._idle_since or self._clock.now()
        said = {"claiming": claiming, "on_duty": self._is_on_duty(claiming)}
        if claiming or self._stopping.is_set():
            return said
        reasons = [*self._obstacles(), *self._failing_loops()]
        return {**said, "not_claiming": reasons, "not_claiming_since": str(self._idle_since)}

    def _is_on_duty(self, claiming: bool) -> bool:
        """At once after a start; after a pause not before one quiet timeout, or buckets would go to and fro."""
        now = time.monotonic()
        if not claiming:
            self._has_paused, self._back_since = True, None
        elif self._has_paused and self._back_since is None:
            self._back_since = now
        is_quiet = self._back_since is not None and now - self._back_since >= self._heart.pulse.timeout_seconds
        return claiming and (is_quiet or not self._has_paused)

    def announce(self) -> None:
        """Send a heartbeat now, so that replicas and operators learn at once that this replica starts or stops."""
        would_claim = self._would_claim
        metrics.CLAIMING.set(int(would_claim and self._heart.is_trusted))
        if would_claim != self._told_claiming:
            self._loops.wake("heart")

    def liveness(self) -> dict[str, float]:
        """Loops without recent progress, with the seconds since their last tick; empty means alive."""
        if not self._is_started():
            return {}  # while it starts or drains some stand still on purpose
        return {part.name: part.stalled_seconds() for part in (self._timer, *self._loops) if not part.is_live}

    def readiness(self) -> list[str]:
        """Reasons why this replica is not doing its work; empty means ready."""
        reasons = [] if self._is_started() else ["draining" if self._stopping.is_set() else "starting"]
        if not self._heart.is_trusted:
            reasons.append("no recent heartbeat could be written: check Postgres")
        if lacking := self._shares.lacking:
            duty = self._shares.duty
            reasons.append(f"loading: {duty - lacking} of {duty} buckets of its duty are held")
        return [*reasons, *self._obstacles(), *self._failing_loops()]

    def _obstacles(self) -> list[str]:
        """Reasons not to claim although all parts work."""
        reasons = []
        if not self._clock.is_trustworthy:
            reasons.append(f"the clock differs from Postgres by {self._clock.skew_seconds:.1f} s")
        if self._coordinator.degraded and self._pauses_without_redis:
            reasons.append("Redis does not answer and LOCK_FAILURE_POLICY is pause")
        return reasons

    def _failing_loops(self) -> list[str]:
        """Loops on a fire's path that fail repeatedly or make no progress."""
        troubles: dict[str, list[str]] = {}
        for name in FIRES_WAY:
            if (trouble := self._loops.trouble(name)) is not None:
                troubles.setdefault(trouble, []).append(name)
        reasons = [f"failing repeatedly: {', '.join(names)} ({trouble})" for trouble, names in troubles.items()]
        stalled = {name: seconds for name, seconds in self.liveness().items() if name in (*FIRES_WAY, self._timer.name)}
        return reasons + [f"stalled: {name}, for {seconds:.0f} s" for name, seconds in stalled.items()]
