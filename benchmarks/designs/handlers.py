"""The jobs of our replicas in benchmarks: JOB_MODULES=benchmarks.designs.handlers."""

import os
import time

from pydantic import BaseModel

from benchmarks.designs import ledger
from services.jobs import ExecutionContext, job

LINES = "BENCHMARK_LOG_LINES"  # 1: the no-op logs a line in every execution


class SleepConfig(BaseModel):
    seconds: float


@job("noop")
def noop(context: ExecutionContext, config: None) -> None:
    if context.schedule_id is not None:
        ledger.noop(context.schedule_id, context.scheduled_for)
    if os.environ.get(LINES) == "1":
        context.log("done")


@job("sleep", config_model=SleepConfig)
def sleep(context: ExecutionContext, config: SleepConfig) -> None:
    """Sleeps, and ignores cancellation."""
    time.sleep(config.seconds)
