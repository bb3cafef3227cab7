"""The values of a job loop: claim, ending, verdict, failure and summary; and how an exception becomes a failure."""

import math
import traceback
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from enhanced_scheduler.containment import Outcome
from enhanced_scheduler.texts import cut_head, storable
from services.errors import SchedulerError
from services.jobs import JobFailed

K = TypeVar("K")

MAX_ERROR_CHARACTERS = 1024
MAX_TRACEBACK_CHARACTERS = 16 * 1024


@dataclass(frozen=True, slots=True)
class Claim(Generic[K]):
    """The right to work on one row, as long as the row carries this token."""

    key: K
    token: str  # a UUID; texts are quicker to hash and to send
    attempt: int


@dataclass(frozen=True, slots=True)
class Ending(Generic[K]):
    """How the work on one item ended: with the result for `save`, or with an exception."""

    claim: Claim[K]
    outcome: Outcome[Any]
    seconds: float = 0.0


class Verdict(StrEnum):
    """What was written about an item."""

    SUCCEEDED = "succeeded"
    RETRIED = "retried"  # queued again, after a backoff
    FAILED = "failed"  # another attempt would fail in the same way
    DEAD = "dead"  # its last attempt failed: there is a dead letter
    LOST = "lost"  # the run no longer holds the row: nothing was written


@dataclass(frozen=True, slots=True)
class Failure:
    message: str
    traceback: str | None
    retryable: bool
    retry_after_seconds: float


@runtime_checkable
class KnowsWhetherToRetry(Protocol):
    """JobFailed and FetchFailed."""

    retryable: bool
    retry_after_seconds: float | None


class ItemTimedOut(JobFailed):
    def __init__(self, seconds: float) -> None:
        super().__init__(f"did not finish within {seconds:g} s")


def failure_of(error: BaseException) -> Failure:
    """An unexpected exception may be transient: it is retryable and keeps its traceback.

    The message of an expected one is complete. Its traceback is dropped: it may quote URLs that contain keys.
    """
    planned = isinstance(error, SchedulerError | JobFailed)
    said = str(error) if planned else "".join(traceback.format_exception_only(error)).strip()
    retryable, retry_after_seconds = True, 0.0
    if isinstance(error, KnowsWhetherToRetry):
        retryable, retry_after_seconds = error.retryable, error.retry_after_seconds or 0.0
    return Failure(
        message=storable(said or type(error).__name__, MAX_ERROR_CHARACTERS),
        traceback=None if planned else cut_head(_traceback(error), MAX_TRACEBACK_CHARACTERS),
        retryable=retryable,
        retry_after_seconds=retry_after_seconds,
    )


def _traceback(error: BaseException) -> str:
    return storable("".join(traceback.format_exception(error)))


@dataclass(slots=True)
class Summary:
    """Result of one run of a queue, stored with its execution."""

    claimed: int = 0
    succeeded: int = 0
    retried: int = 0
    failed: int = 0
    dead: int = 0
    lost: int = 0
    stale: int = 0  # rows whose worker had vanished
    seconds: float = 0.0
    ended: str = "empty"  # why the run claimed no further item
    skipped: str | None = None  # why the run did nothing at all

    def as_dict(self) -> dict[str, Any]:
        kept = asdict(self) | {"seconds": round(self.seconds, 3)}
        return {name: value for name, value in kept.items() if value is not None}


class RunContext(Protocol):
    """What the loop needs of an execution."""

    @property
    def draining(self) -> bool: ...
    @property
    def remaining_seconds(self) -> float: ...
    def check(self) -> None: ...
    def log(self, message: str) -> None: ...
    def progress(self, done: float, total: float | None = None) -> None: ...


class Unwatched:
    """For a run without an execution: it cannot be stopped, and its log and progress are discarded."""

    draining = False
    remaining_seconds = math.inf

    def check(self) -> None:
        pass

    def log(self, message: str) -> None:
        pass

    def progress(self, done: float, total: float | None = None) -> None:
        pass
