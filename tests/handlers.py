"""Jobs for tests, registered through JOB_MODULES=tests.handlers."""

import time

from pydantic import BaseModel

from services.jobs import ExecutionContext, JobFailed, job


class SleepConfig(BaseModel):
    seconds: float = 0.0


@job("noop")
def noop(context: ExecutionContext, config: None) -> None:
    """Takes no time."""


@job("sleep", config_model=SleepConfig)
def sleep(context: ExecutionContext, config: SleepConfig) -> None:
    """Takes its time, and listens to nobody."""
    time.sleep(config.seconds)


@job("fail")
def fail(context: ExecutionContext, config: None) -> None:
    raise JobFailed(f"attempt {context.attempt} failed as told")
