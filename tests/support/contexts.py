"""Execution contexts for tests of handlers and of the pool."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from database.models import Cause
from enhanced_scheduler.context import LogLine, ProgressMade
from services.jobs import ExecutionContext


class Heard:
    """Listens to an execution; `kept` are the texts that are also stored with it."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.kept: list[str] = []
        self.progress: list[ProgressMade] = []

    def hear(self, line: LogLine, *, kept: bool) -> None:
        self.lines.append(line)
        self.kept += [line.text] * kept

    def see(self, progress: ProgressMade) -> None:
        self.progress.append(progress)

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines]


SCHEDULE_ID = UUID("11111111-2222-3333-4444-555555555555")


def a_context(job_type: str = "test", **changes: Any) -> ExecutionContext:
    facts: dict[str, Any] = {
        "execution_id": uuid4(),
        "schedule_id": SCHEDULE_ID,
        "job_id": "nightly",
        "job_type": job_type,
        "domain": "example.com",
        "domain_config_id": UUID(int=7),
        "job_config": {},
        "scheduled_for": datetime(2026, 3, 1, 2, 0, tzinfo=UTC),
        "attempt": 1,
        "cause": Cause.SCHEDULE,
        "fencing_token": 42,
        "instance_id": "replica-1",
        "timeout_seconds": 30.0,
    }
    return ExecutionContext(**(facts | changes))
