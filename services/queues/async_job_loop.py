"""`await run_job_loop(…)`: the job loop for coroutines, as the documents of its users call it.

The run has a thread, and the coroutines that it calls an event loop of their own; the caller's loop only waits. If the
caller is cancelled, the run claims nothing more and hands back what is in progress.
"""

import asyncio
from enum import Enum
from functools import partial

from sqlalchemy import ClauseElement
from sqlalchemy.orm import DeclarativeBase

from database.connection import DatabaseConnection
from services.jobs import JobCancelled
from services.queues import job_loop
from services.queues.job_loop import Downstream
from services.queues.loop_limits import LoopLimits
from services.queues.outcomes import K, RunContext, Summary, Unwatched
from services.queues.steps import Process, Steps

END_SECONDS = 5.0  # for handing back


class _Stoppable:
    """The caller's context, and whether the caller was cancelled."""

    def __init__(self, context: RunContext) -> None:
        self._context, self.is_stopped = context, False
        self.log, self.progress = context.log, context.progress

    @property
    def draining(self) -> bool:
        return self._context.draining

    @property
    def remaining_seconds(self) -> float:
        return self._context.remaining_seconds

    def check(self) -> None:
        if self.is_stopped:
            raise JobCancelled("its caller was cancelled")
        self._context.check()


async def run_job_loop(
    model: type[DeclarativeBase],
    status_enum: type[Enum],
    queued_status: Enum,
    processing_status: Enum,
    completed_status: Enum,
    failed_status: Enum,
    processing_function: Process[K] | Steps[K],
    batch_size: int = 10,
    order_by_column: ClauseElement | None = None,
    status_field_name: str = "status",
    error_field_name: str = "error",
    *,
    column_prefix: str = "",
    queue: str | None = None,
    limits: LoopLimits = LoopLimits(),
    db: DatabaseConnection | None = None,
    context: RunContext = Unwatched(),
    downstream: Downstream | None = None,
) -> Summary:
    """See `job_loop.run_job_loop`, which has the same arguments."""
    stoppable = _Stoppable(context)
    call = partial(
        job_loop.run_job_loop,
        model,
        status_enum,
        queued_status,
        processing_status,
        completed_status,
        failed_status,
        processing_function,
        batch_size,
        order_by_column,
        status_field_name,
        error_field_name,
        column_prefix=column_prefix,
        queue=queue,
        limits=limits,
        db=db,
        context=stoppable,
        downstream=downstream,
    )
    run = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(run)
    except asyncio.CancelledError:
        stoppable.is_stopped = True
        await asyncio.wait([run], timeout=END_SECONDS)
        if run.done() and not run.cancelled():
            run.exception()  # JobCancelled; nobody else looks at it
        raise
