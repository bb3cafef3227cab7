"""Jobs for tests: JOB_MODULES=tests.support.handlers. Each call is recorded, whatever its outcome."""

import logging
import os
import time
from datetime import UTC, datetime

from pydantic import BaseModel

from services.jobs import ExecutionContext, JobFailed, job


def note(context: ExecutionContext) -> None:
    """One line in one write: several processes share the file, and any may be killed. Cluster.calls reads it."""
    if path := os.environ.get("CALLS_FILE"):
        fire = f"{context.schedule_id} {context.scheduled_for.isoformat()} {context.attempt}"
        line = f"{fire} {context.instance_id} {datetime.now(UTC).isoformat()}\n"
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)


class SleepConfig(BaseModel):
    seconds: float = 0.0


@job("noop")
def noop(context: ExecutionContext, config: None) -> None:
    """Takes no time."""
    note(context)


@job("sleep", config_model=SleepConfig)
def sleep(context: ExecutionContext, config: SleepConfig) -> None:
    """Sleeps, and ignores cancellation."""
    note(context)
    time.sleep(config.seconds)


@job("patient")
def patient(context: ExecutionContext, config: None) -> None:
    """Does nothing until it is told to stop."""
    note(context)
    while True:
        context.check()
        time.sleep(0.01)


class TalkConfig(BaseModel):
    lines: int = 1
    pause_seconds: float = 0.0


@job("talk", config_model=TalkConfig)
def talk(context: ExecutionContext, config: TalkConfig) -> None:
    """Says what it does, with both kinds of log, and how far it is."""
    note(context)
    for number in range(config.lines):
        context.log(f"attempt {context.attempt} said {number}")
        logging.getLogger("talking").warning("attempt %d logged %d", context.attempt, number)
        context.progress(number + 1, config.lines)
        time.sleep(config.pause_seconds)


@job("fail")
def fail(context: ExecutionContext, config: None) -> None:
    note(context)
    raise JobFailed(f"attempt {context.attempt} failed as told")


class ForkConfig(BaseModel):
    child_seconds: float = 0.0


@job("fork", config_model=ForkConfig)
def fork(context: ExecutionContext, config: ForkConfig) -> None:
    """Returns in two processes, as a faulty handler may."""
    note(context)
    if os.fork() == 0:
        time.sleep(config.child_seconds)
