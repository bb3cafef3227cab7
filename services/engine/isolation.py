"""Runs a handler in its own process, which is killed when it has to end (`isolation: process`).

A fresh interpreter, never a fork: a fork of a process with many threads inherits locks that no thread will release.
The child leads its own session, so that SIGKILL to its group also ends the processes that the handler has started.

Lines of JSON, to the child's stdin:     {"context", "modules", "log_level"}, later perhaps {"cancel": reason}; then
                                         its end
               from the child's stdout:  {"log": line}, {"logging": line}, {"progress": [done, total]}, at last
                                         {"result": …}; a line is [at, level, text]
"""

import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import FileIO
from typing import Any, cast

from services.engine.calling import stopped_result
from services.jobs import results
from services.jobs.context import ExecutionContext, LogLine
from services.jobs.registry import JobDefinition
from services.jobs.results import JobFailed, JobResult, PermanentFailure

KILL_SECONDS = 5.0  # how long the kernel may take to end a killed process
POLL_SECONDS = 0.05
MAX_LINE_BYTES = 1024 * 1024
# The child gets this process' module search path first: `-m` would depend on the working directory.
CHILD = "import sys; sys.path[:] = sys.argv[2:]; from services.engine.child import main; main(int(sys.argv[1]))"


def run_isolated(
    definition: JobDefinition, context: ExecutionContext, modules: Sequence[str], grace_seconds: float
) -> JobResult:
    """Blocks until the child has ended, by itself or by force."""
    home = definition.handler.__module__
    if home == "__main__":
        reason = f"job type {definition.name!r} runs in its own process, so its handler must be in an importable module"
        return results.failed(PermanentFailure(reason))
    try:
        child = _Child(context, [*modules, home])
    except OSError as error:
        return results.failed(JobFailed(f"no process could be started: {error}"))
    try:
        return _converse(child, context, grace_seconds)
    finally:
        child.kill()


def _converse(child: "_Child", context: ExecutionContext, grace_seconds: float) -> JobResult:
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


class _Child:
    """The child process and the two pipes to it."""

    def __init__(self, context: ExecutionContext, modules: Sequence[str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and our own program
            [sys.executable, "-c", CHILD, str(os.getpid()), *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        self._stdin, self._stdout = cast(FileIO, self._process.stdin), cast(FileIO, self._process.stdout)
        os.set_blocking(self._stdout.fileno(), False)
        self._poll = select.poll()  # select() fails on descriptors above 1023
        self._poll.register(self._stdout, select.POLLIN)
        self.say({"context": context.to_wire(), "modules": modules, "log_level": logging.getLogger().level})

    def say(self, message: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):  # it is dead: `messages` will find out how
            left = memoryview(json.dumps(message, ensure_ascii=False).encode(errors="replace") + b"\n")
            while left:
                left = left[self._stdin.write(left) :]

    def messages(self) -> Iterator[dict[str, Any]]:
        """What the child says until it ends, and an empty message now and then: time to look at the clock."""
        unread = bytearray()
        while True:
            ended = self._ended()  # asked before reading: what it said last is still read
            chunk = self._read()
            unread += chunk or b""
            *lines, rest = unread.split(b"\n")
            unread = bytearray(rest)
            yield from map(json.loads, lines)
            if len(unread) > MAX_LINE_BYTES:
                raise JobFailed(f"the process sent a message of more than {MAX_LINE_BYTES} bytes", retryable=False)
            if chunk == b"" or (ended and chunk is None):
                return
            yield {}

    def _read(self) -> bytes | None:
        """None: nothing yet. Empty: the pipe is closed."""
        self._poll.poll(POLL_SECONDS * 1000)
        return self._stdout.read(65536)

    def _ended(self) -> bool:
        """Looks without reaping: the process number must stay ours until the group is killed."""
        with suppress(ChildProcessError):  # other code reaped it
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._ended() and time.monotonic() < until:
            time.sleep(0.005)

    def kill(self) -> int | None:
        """End the child and everything it has started; its return code. None: the kernel does not let it go."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(KILL_SECONDS)
            self._stdin.close()
            self._stdout.close()
        return self._process.returncode
