"""The words of an execution: its status, and why it exists. They are also in the database and in the HTTP API."""

from enum import StrEnum


class ExecutionStatus(StrEnum):
    """The state of an execution. A terminal status never changes."""

    PENDING = "pending"  # without an owner: a retry in its backoff, a manual run, a row handed back
    CLAIMED = "claimed"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"  # its replica died or froze
    SKIPPED = "skipped"
    MISSED = "missed"

    @property
    def is_terminal(self) -> bool:
        return self not in (ExecutionStatus.PENDING, ExecutionStatus.CLAIMED, ExecutionStatus.RUNNING)


class Cause(StrEnum):
    """Why an execution exists."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    CATCHUP = "catchup"
    BACKFILL = "backfill"
