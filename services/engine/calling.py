"""Runs one handler in the current thread and returns the outcome as a JobResult."""

from services.jobs import results
from services.jobs.containment import Raised, Returned, contained
from services.jobs.context import ExecutionContext, JobCancelled, JobTimedOut
from services.jobs.registry import JobDefinition
from services.jobs.results import JobFailed, JobResult, JobSkipped


def call_handler(definition: JobDefinition, context: ExecutionContext) -> JobResult:
    def call() -> JobResult:
        config = definition.parse_config(context.job_config)
        return results.succeeded(definition.handler(context, config), context.mask)

    match contained(call):
        case Returned(result):
            return _stopped(context, result) if context.noticed_stop else result
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


def stopped_result(context: ExecutionContext) -> JobResult:
    """For an execution that did not end by itself."""
    if context.cancel_reason is not None:
        return results.cancelled(context.cancel_reason)
    return results.timed_out(context.timeout_seconds)


def _stopped(context: ExecutionContext, result: JobResult) -> JobResult:
    """The handler saw that it should stop, and returned: what it has so far is kept, but it is no success."""
    if context.cancel_reason is not None:
        return results.cancelled(context.cancel_reason, result.details)
    return results.timed_out(context.timeout_seconds, result.details)
