"""`await run_job_loop(…)`: the job loop for coroutines, as the documents of its users call it.

The run has a thread, and the coroutines that it calls an event loop of their own; the caller's loop only waits. If the
caller is cancelled, the run claims nothing more and hands back what is in progress.
"""

import asyncio
from functools import partial
from typing import Any

from services.jobs import JobCancelled
from services.queues import job_loop
from services.queues.outcomes import RunContext, Summary, Unwatched

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


async def run_job_loop(*, context: RunContext = Unwatched(), **options: Any) -> Summary:
    """The keywords are those of `job_loop.run_job_loop`."""
    stoppable = _Stoppable(context)
    run = asyncio.ensure_future(asyncio.to_thread(partial(job_loop.run_job_loop, context=stoppable, **options)))
    try:
        return await asyncio.shield(run)
    except asyncio.CancelledError:
        stoppable.is_stopped = True
        await asyncio.wait([run], timeout=END_SECONDS)
        if run.done() and not run.cancelled():
            run.exception()  # JobCancelled; nobody else looks at it
        raise
