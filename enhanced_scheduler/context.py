"""The argument of a handler: the facts of its execution, and methods to report while it runs.

The facts are frozen; log, progress and the stop flag are shared between threads behind one lock.

JobCancelled and JobTimedOut are BaseExceptions, like asyncio.CancelledError: handlers often have `except Exception`
around a page or a row, and such a line must not swallow a stop and continue with the next one.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Any
from uuid import UUID

from enhanced_scheduler.statuses import Cause
from enhanced_scheduler.texts import Mask, storable

MAX_LOG_BYTES = 64 * 1024
MAX_LINE_CHARACTERS = 4096

Listener = Callable[[dict[str, Any]], None]


class JobStopped(BaseException):
    """Raised by `check()`: let it propagate, or clean up and raise it again."""


class JobCancelled(JobStopped):
    pass


class JobTimedOut(JobStopped):
    pass


class _Live:
    """The mutable state of a running execution."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.mask = Mask()
        self.begun_at: float | None = None  # monotonic
        self.cancel_reason: str | None = None
        self.noticed = False  # the handler has been told to stop
        self.draining = False
        self.lines: deque[str] = deque()
        self.bytes, self.dropped = 0, 0
        self.progress: tuple[float, float | None] | None = None
        self.listener: Listener | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExecutionContext:
    """One execution, as seen by its handler."""

    execution_id: UUID
    schedule_id: UUID | None
    job_id: str
    job_type: str
    domain: str
    domain_config_id: UUID
    job_config: Mapping[str, Any] = field(repr=False)  # may be private, and a repr ends in logs
    scheduled_for: datetime
    attempt: int
    cause: Cause
    fencing_token: int
    instance_id: str
    timeout_seconds: float
    _live: _Live = field(default_factory=_Live, init=False, repr=False)

    # --- for handlers ---

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at a fire, including a backfill; a manual run has its own key."""
        if self.schedule_id is None or self.cause == Cause.MANUAL:
            return str(self.execution_id)
        return f"{self.schedule_id}/{self.scheduled_for_text}"

    @property
    def scheduled_for_text(self) -> str:
        return self.scheduled_for.astimezone(UTC).isoformat().replace("+00:00", "Z")

    @property
    def cancelled(self) -> bool:
        """True once the handler should stop: the execution was cancelled or has timed out."""
        if self.must_stop:
            self._live.noticed = True
        return self._live.noticed

    @property
    def remaining_seconds(self) -> float:
        begun_at = self._live.begun_at
        elapsed = 0.0 if begun_at is None else time.monotonic() - begun_at
        return max(0.0, self.timeout_seconds - elapsed)

    @property
    def draining(self) -> bool:
        """The replica will stop soon: a handler that works in pieces should start no further piece."""
        return self._live.draining

    def check(self) -> None:
        """Call it between two steps: raises JobCancelled or JobTimedOut when the handler should stop."""
        if not self.cancelled:
            return
        if self._live.cancel_reason is not None:
            raise JobCancelled(self._live.cancel_reason)
        raise JobTimedOut(f"did not finish within {self.timeout_seconds:g} s")

    def log(self, message: str) -> None:
        """Store a line with the execution; if there are too many, the oldest are dropped."""
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.keep_line(f"{stamp} {storable(self.mask(str(message)), MAX_LINE_CHARACTERS)}")

    def progress(self, done: float, total: float | None = None) -> None:
        made = (_number(done), None if total is None else _number(total))
        self._live.progress = made
        self._tell({"progress": made})

    def hide(self, secret: str) -> None:
        """From now on this value appears as *** in the log, the result and the error of this execution."""
        if secret:
            self.mask.add(secret)

    # --- for the engine ---

    @property
    def mask(self) -> Mask:
        return self._live.mask

    @property
    def begun(self) -> bool:
        """False: the handler was never called."""
        return self._live.begun_at is not None

    @property
    def must_stop(self) -> bool:
        return self._live.cancel_reason is not None or self.remaining_seconds <= 0

    @property
    def noticed_stop(self) -> bool:
        """The handler was told to stop: a value returned after that is not a success."""
        return self._live.noticed

    @property
    def cancel_reason(self) -> str | None:
        return self._live.cancel_reason

    def begin(self) -> None:
        """Start the clock of `timeout_seconds`."""
        self._live.begun_at = time.monotonic()

    def drain(self) -> None:
        self._live.draining = True

    def cancel(self, reason: str) -> None:
        with self._live.lock:
            if self._live.cancel_reason is None:
                self._live.cancel_reason = reason

    def keep_line(self, line: str) -> None:
        live = self._live
        with live.lock:
            live.lines.append(line)
            live.bytes += len(line.encode())
            while live.bytes > MAX_LOG_BYTES:
                live.bytes -= len(live.lines.popleft().encode())
                live.dropped += 1
        self._tell({"log": line})

    def trace(self) -> dict[str, Any]:
        """`log` and `progress` as they are kept with the execution; empty when there is neither."""
        live = self._live
        with live.lock:
            lines = [f"… {live.dropped} earlier lines were dropped"] if live.dropped else []
            kept: dict[str, Any] = {"log": [*lines, *live.lines]} if live.lines else {}
            if live.progress:
                kept["progress"] = dict(zip(("done", "total"), live.progress, strict=True))
        return kept

    # --- for a child process ---

    def to_wire(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "_live"}
        values |= {name: str(values[name]) for name in ("execution_id", "domain_config_id", "cause")}
        values["schedule_id"] = None if self.schedule_id is None else str(self.schedule_id)
        values["job_config"] = dict(self.job_config)
        values["scheduled_for"] = self.scheduled_for.isoformat()
        return values | {
            "begun_at": self._live.begun_at
        }  # the monotonic clock is the same in every process of a machine

    @classmethod
    def from_wire(cls, values: Mapping[str, Any], listener: Listener) -> "ExecutionContext":
        facts = dict(values)
        begun_at = facts.pop("begun_at")
        facts |= {name: UUID(facts[name]) for name in ("execution_id", "domain_config_id")}
        facts["schedule_id"] = None if facts["schedule_id"] is None else UUID(facts["schedule_id"])
        facts |= {"cause": Cause(facts["cause"]), "scheduled_for": datetime.fromisoformat(facts["scheduled_for"])}
        context = cls(**facts)
        context._live.begun_at = begun_at
        context._live.listener = listener
        return context

    def _tell(self, message: dict[str, Any]) -> None:
        if self._live.listener is not None:
            self._live.listener(message)


def _number(value: float) -> float:
    if not math.isfinite(value):  # raises TypeError unless it is a number
        raise ValueError(f"progress must be a number, got {value!r}")
    return value if isinstance(value, int) else float(value)
