"""Runs one handler in the current thread and returns its outcome as a JobResult.

A coroutine gets an event loop of its own here (`run_alone`). A replica calls coroutine functions in the one event loop
that they share (services/engine/async_runs.py), and asks `result_of` what became of the call.
"""

import inspect
import sys
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any

from enhanced_scheduler import results
from enhanced_scheduler.containment import Outcome, Raised, Returned, contained
from enhanced_scheduler.context import ExecutionContext, JobCancelled, JobStopped, JobTimedOut
from enhanced_scheduler.jobs import JobDefinition
from enhanced_scheduler.log_capture import speaking_for
from enhanced_scheduler.results import JobFailed, JobResult, JobSkipped
from enhanced_scheduler.texts import storable

OBEY_SECONDS = 0.05  # how soon a coroutine with a loop of its own hears that it should stop
END_SECONDS = 1.0  # what tasks that it left behind get to clean up
MOST_NAMED = 3  # errors of a group, in its message


def call_handler(definition: JobDefinition, context: ExecutionContext) -> JobResult:
    def call() -> JobResult:
        config = definition.parse_config(context.job_config)
        returned = speaking_for(context, lambda: _called(definition, context, config))
        return results.succeeded(returned, context.mask)

    return result_of(contained(call), context)


def result_of(outcome: Outcome[JobResult], context: ExecutionContext) -> JobResult:
    """`Returned`: what the handler returned could be stored."""
    match outcome:
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
        case Raised(error) if _is_cancellation(error):
            if context.noticed_stop:
                return stopped_result(context)
            return results.failed(JobFailed("the handler raised CancelledError although it was not cancelled"))
        case Raised(BaseExceptionGroup() as group):
            return _result_of_group(group, context)
        case Raised(error):
            return results.failed(error, context.mask)


def stopped_result(context: ExecutionContext, details: Mapping[str, Any] | None = None) -> JobResult:
    """For an execution that did not end by itself."""
    if context.cancel_reason is not None:
        return results.cancelled(context.cancel_reason, details)
    return results.timed_out(context.timeout_seconds, details)


def _called(definition: JobDefinition, context: ExecutionContext, config: Any) -> object:
    returned: object = definition.handler(context, config)
    return run_alone(returned, context) if inspect.iscoroutine(returned) else returned


def run_alone(coroutine: Coroutine[Any, Any, object], context: ExecutionContext) -> object:
    """In an event loop that ends with it. When the execution should stop, the coroutine gets a CancelledError.

    As in a replica's loop, tasks and threads that the coroutine leaves behind cost it nothing: asyncio.run would wait.
    """
    import asyncio
    from concurrent.futures import ThreadPoolExecutor
    from contextvars import copy_context

    async def obey() -> object:
        task = asyncio.create_task(coroutine)
        await asyncio.sleep(0)  # it comes to its first `await`: one that is stopped already hears it there
        while not task.done():
            if context.must_stop and not context.noticed_stop and task.cancel():
                context.notice_stop()
            await asyncio.wait({task}, timeout=OBEY_SECONDS)
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            context.log(left_behind(len(left)))
            for other in left:
                other.cancel()
            await asyncio.wait(left, timeout=END_SECONDS)
        return task.result()

    def run() -> object:
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(obey())
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    if asyncio._get_running_loop() is None:  # the public one raises, and its error would be part of every traceback
        return run()
    with ThreadPoolExecutor(1) as beside:  # called by a coroutine, such as a test: a thread has one loop
        return beside.submit(copy_context().run, run).result()


def left_behind(tasks: int) -> str:
    return f"the handler has ended; {tasks} tasks that it had started are cancelled"


def _is_cancellation(error: BaseException) -> bool:
    asyncio = sys.modules.get("asyncio")  # nobody who has not imported it can raise one
    return asyncio is not None and isinstance(error, asyncio.CancelledError)


def _result_of_group(group: BaseExceptionGroup[BaseException], context: ExecutionContext) -> JobResult:
    """Of a TaskGroup: what its tasks raised decides, as if the handler had raised it itself."""
    errors = _leaves(group)
    stops = [error for error in errors if isinstance(error, JobStopped)]
    if stops or len(errors) == 1:
        return result_of(Raised((stops or errors)[0]), context)
    failure = results.failed(group, context.mask)
    said = "; ".join(str(results.failed(error, context.mask).error_message) for error in errors[:MOST_NAMED])
    more = f"; and {len(errors) - MOST_NAMED} more" if len(errors) > MOST_NAMED else ""
    message = storable(f"{len(errors)} errors: {said}{more}", results.MAX_MESSAGE_CHARACTERS)
    retryable = all(error.retryable for error in errors if isinstance(error, JobFailed))
    waits = [error.retry_after_seconds for error in errors if isinstance(error, JobFailed)]
    return replace(
        failure,
        error_message=message,
        retryable=retryable,
        retry_after_seconds=max((wait for wait in waits if wait is not None), default=None),
    )


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
