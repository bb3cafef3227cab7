"""Ends executions that exceed their timeout or ignore a cancel request: one thread that looks when the next one is due.

A handler is told to stop first (`Run.give_up_at`); if it has not ended after the grace period, its execution ends
without it. A thread that ignores this cannot be killed and is replaced; an isolated handler's process is killed.
"""

import math
import time
from collections.abc import Callable, Mapping
from threading import Condition
from uuid import UUID

from services.engine.run import Run
from services.engine.threads import Threads


class Watchdog:
    """Shares the lock and the runs of its pool. `give_up` is called for each overdue run, and must not raise."""

    def __init__(
        self,
        changed: Condition,
        runs: Mapping[UUID, Run],
        grace_seconds: float,
        *,
        give_up: Callable[[Run], None],
        is_over: Callable[[], bool],
    ) -> None:
        self._changed, self._runs, self._grace_seconds = changed, runs, grace_seconds
        self._give_up, self._is_over = give_up, is_over
        self._look_at = math.inf

    def start(self, threads: Threads) -> None:
        threads.thread(target=self._watch, name="job-watchdog", daemon=True).start()

    def look_by(self, at: float) -> None:
        """Under the lock. Most executions end in time: the thread is woken only if it would look too late."""
        if at < self._look_at:
            self._look_at = at
            self._changed.notify_all()

    def _watch(self) -> None:
        while True:
            with self._changed:
                overdue = self._overdue()
                if not overdue:
                    if self._is_over():
                        return
                    self._changed.wait(None if self._look_at == math.inf else self._look_at - time.monotonic())
            for run in overdue:
                self._give_up(run)

    def _overdue(self) -> list[Run]:
        now, self._look_at = time.monotonic(), math.inf
        overdue = []
        for run in self._runs.values():
            if run.settled:
                continue
            at = run.give_up_at(now, self._grace_seconds)
            if at <= now:
                overdue.append(run)
            self._look_at = min(self._look_at, at)
        return overdue
