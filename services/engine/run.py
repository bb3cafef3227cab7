"""One context in the pool, and the time at which the pool must end it."""

import math
import time
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

    @property
    def isolated(self) -> bool:
        return self.definition.isolation_of(self.context.job_config) == "process"

    @property
    def duration_seconds(self) -> float:
        return 0.0 if self.begun_at is None else time.monotonic() - self.begun_at

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
        return self.told_at + grace_seconds + (KILL_SECONDS if self.isolated else 0)
