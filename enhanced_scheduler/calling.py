"""Runs one handler in the current thread and returns its outcome as a JobResult."""

from collections.abc import Mapping
from typing import Any

from enhanced_scheduler import results
from enhanced_scheduler.containment import Raised, Returned, contained
from enhanced_scheduler.context import ExecutionContext, JobCancelled, JobTimedOut
from enhanced_scheduler.jobs import JobDefinition
from enhanced_scheduler.log_capture import speaking_for
from enhanced_scheduler.results import JobFailed, JobResult, JobSkipped


def call_handler(definition: JobDefinition, context: ExecutionContext) -> JobResult:
    def call() -> JobResult:
        config = definition.parse_config(context.job_config)
        returned = speaking_for(context, lambda: definition.handler(context, config))
        return results.succeeded(returned, context.mask)

    match contained(call):
        case Returned(result):
            # It saw that it should stop, and returned: what it has so far is kept, but it is no success.
            return stopped_result(context, result.details) if context.noticed_stop else result
        case Raised(JobTimedOut()):
            return results.timed_out(context.timeout_seconds)
        case Raised(JobCancelled() as error):
            return results.cancelled(context.cancel_reason or str(error))
        case Raised(JobSkipped() as skip):
            return results.skipped(skip, context.mask)
        case Raised(SystemExit() as error):
            return results.failed(JobFailed(f"the handler called sys.exit({error.code!r})"), context.mask)
        case Raised(error):
            return results.failed(error, context.mask)


def stopped_result(context: ExecutionContext, details: Mapping[str, Any] | None = None) -> JobResult:
    """For an execution that did not end by itself."""
    if context.cancel_reason is not None:
        return results.cancelled(context.cancel_reason, details)
    return results.timed_out(context.timeout_seconds, details)
