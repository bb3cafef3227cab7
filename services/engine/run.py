"""One context in the pool, and the time at which the pool must end it."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from enhanced_scheduler.context import ExecutionContext
from enhanced_scheduler.jobs import JobDefinition
from services.engine.journals import Journal
from services.jobs.child_process import KILL_SECONDS


@dataclass(slots=True, eq=False)
class Run:
    """Modified only under the pool's lock."""

    context: ExecutionContext
    definition: JobDefinition
    submitted_at: float = field(default_factory=time.monotonic)
    begun_at: float | None = None
    told_at: float | None = None  # when the handler was told to stop
    settled: bool = False  # it is decided how this ends
    journal: Journal | None = None  # where its handler's lines go
    abandoned: bool = False  # its thread ignored that, and was replaced
    stop: Callable[[], object] | None = None  # delivers a CancelledError; only in the event loop
    confirmed_at: float | None = None  # by database.clock.awake_or_not, when the gate last said yes; in the event loop

    @property
    def isolated(self) -> bool:
        return self.definition.isolation_of(self.context.job_config) == "process"

    @property
    def duration_seconds(self) -> float:
        return 0.0 if self.begun_at is None else time.monotonic() - self.begun_at

    @property
    def in_loop(self) -> bool:
        return self.definition.is_async and not self.isolated

    def tell(self) -> None:
        """A thread asks its context whether it should stop; a coroutine has to be told."""
        if self.stop is not None:
            self.stop()

    def give_up_at(self, now: float, grace_seconds: float) -> float:
        """When this has to end without the handler's help; tells the handler before."""
        cancelled = self.context.cancel_reason is not None
        if self.begun_at is None:
            return now if cancelled else math.inf
        if self.told_at is None:
            deadline = self.begun_at + self.context.timeout_seconds
            if now < deadline and not cancelled:
                return deadline
            self.told_at = now
            self.tell()
        return self.told_at + grace_seconds + (KILL_SECONDS if self.isolated else 0)
