"""The argument of a handler: the facts of its execution, and methods to report while it runs.

The facts are frozen; log, progress and the stop flag are shared between threads behind one lock.

JobCancelled and JobTimedOut are BaseExceptions, like asyncio.CancelledError: handlers often have `except Exception`
around a page or a row, and such a line must not swallow a stop and continue with the next one.
"""

import math
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Protocol
from uuid import UUID

from enhanced_scheduler.statuses import Cause
from enhanced_scheduler.texts import Mask, cut, masked, storable

MAX_LOG_BYTES = 64 * 1024
MAX_LINE_CHARACTERS = 4096
MAX_MASKED_CHARACTERS = 16 * MAX_LINE_CHARACTERS  # a line of megabytes is cut before its secrets are looked for, too
MAX_LEVEL_CHARACTERS = 16

ProgressMade = tuple[float, float | None]  # done, total


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of an execution's log; `text` may contain line breaks, such as those of a traceback."""

    at: datetime
    level: str
    text: str

    @property
    def stamped(self) -> str:
        stamp = self.at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return f"{stamp} {self.text}"

    def to_wire(self) -> list[str]:
        return [self.at.isoformat(), self.level, self.text]

    @classmethod
    def from_wire(cls, values: Sequence[str]) -> "LogLine":
        at, level, text = values
        return cls(datetime.fromisoformat(at), level, storable(text, MAX_LINE_CHARACTERS))


class Listener(Protocol):
    """Hears what an execution reports, as it happens, in the thread that reports it: it must not wait or raise."""

    def hear(self, line: LogLine, *, kept: bool) -> None:
        """`kept`: the line is also stored with the execution, as those of `context.log` are."""

    def see(self, progress: ProgressMade) -> None: ...


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
        self.bytes, self.dropped, self.overheard = 0, 0, 0
        self.progress: ProgressMade | None = None
        self.listener: Listener | None = None
        self.process = os.getpid()


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
        """Store a line with the execution; if there are too many, the oldest are dropped. Visible while it runs."""
        self.keep_line(LogLine(datetime.now(UTC), "INFO", self._clean(str(message))))

    def progress(self, done: float, total: float | None = None) -> None:
        made = (_number(done), None if total is None else _number(total))
        if self._is_a_copy:
            return
        self._live.progress = made
        if self._live.listener is not None:
            self._live.listener.see(made)

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

    def notice_stop(self) -> None:
        """The handler was told to stop by other means than `check` or `cancelled`: by a CancelledError."""
        self._live.noticed = True

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

    def listen(self, listener: Listener) -> None:
        self._live.listener = listener

    def keep_line(self, line: LogLine) -> None:
        if self._is_a_copy:
            return
        live, stamped = self._live, line.stamped
        with live.lock:
            live.lines.append(stamped)
            live.bytes += len(stamped.encode())
            while live.bytes > MAX_LOG_BYTES:
                live.bytes -= len(live.lines.popleft().encode())
                live.dropped += 1
        if live.listener is not None:
            live.listener.hear(line, kept=True)

    def overhear(self, level: str, text: str) -> None:
        """A line of the handler's own `logging`: shown with the others while it runs, not kept with the execution."""
        self.pass_on(LogLine(datetime.now(UTC), storable(level, MAX_LEVEL_CHARACTERS), self._clean(text)))

    def pass_on(self, line: LogLine) -> None:
        if self._live.listener is not None and not self._is_a_copy:
            self._live.overheard += 1
            self._live.listener.hear(line, kept=False)

    @property
    def _is_a_copy(self) -> bool:
        """In a fork of the process: its locks may never be released there, and nobody reads what it reports."""
        return os.getpid() != self._live.process

    def _clean(self, text: str) -> str:
        """Masked before it is cut: half a secret would not be recognised."""
        return storable(masked(self.mask(cut(text, MAX_MASKED_CHARACTERS))), MAX_LINE_CHARACTERS)

    def trace(self) -> dict[str, Any]:
        """What is kept with the execution: `log`, `progress`, and how many other lines there were (`logged`)."""
        live = self._live
        with live.lock:
            lines = [f"… {live.dropped} earlier lines were dropped"] if live.dropped else []
            kept: dict[str, Any] = {"log": [*lines, *live.lines]} if live.lines else {}
            if live.progress:
                kept["progress"] = dict(zip(("done", "total"), live.progress, strict=True))
            if live.overheard:
                kept["logged"] = live.overheard
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


def _number(value: float) -> float:
    if not math.isfinite(value):  # raises TypeError unless it is a number
        raise ValueError(f"progress must be a number, got {value!r}")
    return value if isinstance(value, int) else float(value)
