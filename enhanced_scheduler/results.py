"""The result of an execution as a value, and the exceptions with which a handler reports a failure."""

import json
import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

from enhanced_scheduler.application import ROOT
from enhanced_scheduler.statuses import ExecutionStatus
from enhanced_scheduler.texts import Mapper, cut_head, json_size, map_texts, storable, storable_json

MAX_MESSAGE_CHARACTERS = 1024
MAX_TRACEBACK_CHARACTERS = 16 * 1024
MAX_RESULT_BYTES = 64 * 1024
EXCERPT_CHARACTERS = 2048
LIBRARY = Path(traceback.__file__).parent
PLACES = (Path(__file__).parent, ROOT / "services" / "engine", LIBRARY / "asyncio", LIBRARY / "concurrent")
CALLERS = tuple(f"{place}{os.sep}" for place in PLACES)  # of handlers


class JobFailed(Exception):
    """Raise it in a handler: this run failed; `retryable` tells whether another attempt may help."""

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = True,
        retry_after_seconds: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.retryable, self.retry_after_seconds, self.details = retryable, retry_after_seconds, details


class PermanentFailure(JobFailed):
    """Another attempt would fail in the same way."""

    def __init__(self, message: str, *, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, retryable=False, details=details)


class JobSkipped(Exception):
    """Raise it in a handler: this run was skipped for a reason; it is neither a success nor a failure."""

    def __init__(self, reason: str, *, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.reason, self.details = reason, details


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The recorded result of an execution. All values can be stored by Postgres, and secrets are masked."""

    status: ExecutionStatus
    details: Mapping[str, Any] = field(default_factory=dict)  # `result`, `log`, `progress`: where there is one
    error_message: str | None = None
    error_details: Mapping[str, Any] | None = None
    retryable: bool = False
    retry_after_seconds: float | None = None
    scan_id: UUID | None = None
    reason: str | None = None  # why it was skipped: a word that history can be searched for

    def to_wire(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in JobResult.__dataclass_fields__}
        return values | {"scan_id": None if self.scan_id is None else str(self.scan_id)}

    @classmethod
    def from_wire(cls, values: Mapping[str, Any]) -> "JobResult":
        scan_id = values["scan_id"]
        status = ExecutionStatus(values["status"])
        return cls(**{**values, "status": status, "scan_id": None if scan_id is None else UUID(scan_id)})


def succeeded(returned: object, mapper: Mapper = str) -> JobResult:
    """From what a handler returned; a `scan_id` in it becomes the execution's own."""
    if returned is None:
        return JobResult(status=ExecutionStatus.SUCCESS)
    if not isinstance(returned, Mapping):
        raise PermanentFailure(f"the handler returned {type(returned).__name__}; it must return a mapping or None")
    scan_id = _scan_id(returned.get("scan_id"))
    plain = dict(returned) | ({"scan_id": str(scan_id)} if scan_id else {})
    try:
        result = storable_json(plain, mapper)
    except ValueError as error:
        raise PermanentFailure(f"the handler's result cannot be stored as JSON: {error}") from None
    return JobResult(status=ExecutionStatus.SUCCESS, details={"result": _capped(result)}, scan_id=scan_id)


def failed(error: BaseException, mapper: Mapper = str) -> JobResult:
    """From the exception of a handler. An unexpected one may be transient, so it is retryable."""
    if isinstance(error, JobFailed):
        return JobResult(
            status=ExecutionStatus.FAILED,
            error_message=_message(str(error), mapper),
            error_details=_details(error, mapper),
            retryable=error.retryable,
            retry_after_seconds=error.retry_after_seconds,
        )
    said = "".join(traceback.format_exception_only(error)).strip()
    trace = "".join(traceback.format_exception(type(error), error, _from_the_handler_on(error.__traceback__)))
    return JobResult(
        status=ExecutionStatus.FAILED,
        error_message=_message(said, mapper),
        error_details={
            "type": storable(type(error).__qualname__, 255),
            "message": _message(said, mapper),
            "traceback": cut_head(storable(mapper(trace)), MAX_TRACEBACK_CHARACTERS),
        },
        retryable=True,
    )


def timed_out(timeout_seconds: float, details: Mapping[str, Any] | None = None) -> JobResult:
    return JobResult(
        status=ExecutionStatus.TIMED_OUT,
        details=details or {},
        error_message=f"did not finish within {timeout_seconds:g} s",
        retryable=True,
    )


def cancelled(reason: str, details: Mapping[str, Any] | None = None) -> JobResult:
    message = storable(f"cancelled: {reason}", MAX_MESSAGE_CHARACTERS)
    return JobResult(status=ExecutionStatus.CANCELLED, details=details or {}, error_message=message)


def skipped(skip: JobSkipped, mapper: Mapper = str) -> JobResult:
    reason = storable(mapper(skip.reason), MAX_MESSAGE_CHARACTERS)
    return replace(succeeded(skip.details, mapper), status=ExecutionStatus.SKIPPED, reason=reason)


def _from_the_handler_on(trace: TracebackType | None) -> TracebackType | None:
    """Without the frames that called the handler. All of them, if it was never called."""
    inner = trace
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(CALLERS):
        inner = inner.tb_next
    return inner or trace


def _message(text: str, mapper: Mapper) -> str:
    return storable(mapper(text), MAX_MESSAGE_CHARACTERS)


def _details(error: JobFailed, mapper: Mapper) -> dict[str, Any]:
    known: dict[str, Any] = {"type": type(error).__qualname__}
    if error.details is None:
        return known
    try:
        return known | _capped(storable_json(dict(error.details), mapper))
    except ValueError as reason:  # the failure itself must not get lost over its details
        return known | {"details_dropped": storable(mapper(str(reason)), MAX_MESSAGE_CHARACTERS)}


def _capped(result: dict[str, Any]) -> dict[str, Any]:
    """A result that is too large is replaced by its beginning; failing would repeat a job that has done its work."""
    size = json_size(result)
    if size <= MAX_RESULT_BYTES:
        return result
    excerpt = json.dumps(result, ensure_ascii=False)[:EXCERPT_CHARACTERS]
    return {"truncated": True, "bytes": size, "excerpt": map_texts(excerpt, storable)}


def _scan_id(value: object) -> UUID | None:
    if value is None or isinstance(value, UUID):
        return value
    try:
        return UUID(str(value))
    except ValueError:
        raise PermanentFailure(f"the handler's scan_id is not a UUID: {value!r}") from None
