"""Async jobs for tests: JOB_MODULES=tests.support.handlers,tests.support.async_handlers."""

import asyncio
import logging
import time

from services.jobs import ExecutionContext, JobFailed, job
from tests.support.handlers import SleepConfig, note


@job("async_sleep", config_model=SleepConfig)
async def async_sleep(context: ExecutionContext, config: SleepConfig) -> dict[str, float]:
    """Waits, and says so when it is told to stop."""
    note(context)
    try:
        await asyncio.sleep(config.seconds)
    except asyncio.CancelledError:
        logging.getLogger("waiting").warning("told to stop")
        context.log("told to stop")
        raise
    return {"seconds": config.seconds}


@job("async_block", config_model=SleepConfig)
async def async_block(context: ExecutionContext, config: SleepConfig) -> None:
    """Blocks the event loop."""
    note(context)
    time.sleep(config.seconds)


@job("async_fail")
async def async_fail(context: ExecutionContext, config: None) -> None:
    note(context)
    await asyncio.sleep(0)
    raise JobFailed(f"attempt {context.attempt} failed as told")


@job("async_hang")
async def async_hang(context: ExecutionContext, config: None) -> None:
    """Swallows every CancelledError."""
    note(context)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            context.log("swallowed")
