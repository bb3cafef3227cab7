"""Runs a handler in its own process, which is killed when it has to end (`isolation: process`).

A fresh interpreter, never a fork: a fork of a process with many threads inherits locks that no thread will release.
The child runs our interpreter with our search path, or that of the project that its job type is from (JOB_PROJECT).
enhanced_scheduler/child.py lists the messages.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from enhanced_scheduler import results
from enhanced_scheduler.calling import stopped_result
from enhanced_scheduler.context import ExecutionContext, LogLine
from enhanced_scheduler.jobs import JobDefinition
from enhanced_scheduler.results import JobFailed, JobResult, PermanentFailure
from services.jobs.child_process import ChildProcess
from services.jobs.project import ProjectJob

# The child gets this process' module search path first: `-m` would depend on the working directory.
CHILD = "import sys; sys.path[:] = sys.argv[2:]; from services.engine.child import main; main(int(sys.argv[1]))"


def run_isolated(
    definition: JobDefinition, context: ExecutionContext, modules: Sequence[str], grace_seconds: float
) -> JobResult:
    """Blocks until the child has ended, by itself or by force."""
    if definition.module == "__main__":
        reason = f"job type {definition.name!r} runs in its own process, so its handler must be in an importable module"
        return results.failed(PermanentFailure(reason))
    try:
        child, needed = _start(definition, modules)
    except OSError as error:
        return results.failed(JobFailed(f"no process could be started: {error}"))
    try:
        child.say({"context": context.to_wire(), "modules": needed, "log_level": logging.getLogger().level})
        return _converse(child, context, grace_seconds)
    finally:
        child.kill()


def _start(definition: JobDefinition, modules: Sequence[str]) -> tuple[ChildProcess, Sequence[str]]:
    if isinstance(definition, ProjectJob):
        return definition.project.child(), definition.project.modules
    command = [sys.executable, "-c", CHILD, str(os.getpid()), *sys.path]
    return ChildProcess(command), [*modules, definition.module]


def _converse(child: ChildProcess, context: ExecutionContext, grace_seconds: float) -> JobResult:
    told_at: float | None = None
    for message in child.messages():
        if "result" in message:
            child.wait(grace_seconds)  # it may flush its files
            return JobResult.from_wire(message["result"])
        _relay(message, context)
        if not context.must_stop:
            continue
        if told_at is None:
            told_at = time.monotonic()
            child.say({"cancel": context.cancel_reason})
        if time.monotonic() >= told_at + grace_seconds:
            return stopped_result(context)
    child.wait(grace_seconds)
    return stopped_result(context) if context.must_stop else results.failed(JobFailed(_obituary(child.kill())))


def _relay(message: dict[str, Any], context: ExecutionContext) -> None:
    if "log" in message:
        context.keep_line(LogLine.from_wire(message["log"]))
    if "logging" in message:
        context.pass_on(LogLine.from_wire(message["logging"]))
    if "progress" in message:
        context.progress(*message["progress"])


def _obituary(return_code: int | None) -> str:
    if return_code is None:
        return "the process cannot be killed; it still hangs in the kernel"
    if return_code >= 0:
        return f"the process ended with exit code {return_code}, without a result"
    hint = " (out of memory?)" if return_code == -signal.SIGKILL else ""
    return f"the process ended with signal {-return_code}{hint}"
