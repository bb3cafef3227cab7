"""A child process that speaks JSON through its pipes, and how it is ended. Its program is enhanced_scheduler/child.py.

The child leads its own session, so that SIGKILL to its group also ends the processes that it has started. The thread
that starts it has to outlive it: the kernel ends it with that thread (PR_SET_PDEATHSIG).
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, cast

from enhanced_scheduler.results import JobFailed

KILL_SECONDS = 5.0  # how long the kernel may take to end a killed process
POLL_SECONDS = 0.05
MAX_LINE_BYTES = 1024 * 1024


class ChildProcess:
    """The child process and the two pipes to it."""

    def __init__(self, command: Sequence[str], directory: Path | None = None) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - the interpreter and the program that the caller chose
            command,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        self._stdin, self._stdout = cast(FileIO, self._process.stdin), cast(FileIO, self._process.stdout)
        os.set_blocking(self._stdout.fileno(), False)
        self._poll = select.poll()  # select() fails on descriptors above 1023
        self._poll.register(self._stdout, select.POLLIN)

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

    def wait_to_end(self) -> None:
        """However long that takes; another thread may still end it."""
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    def signal_end(self) -> None:
        """Kill it and return at once: the thread that waits for it does the rest."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> int | None:
        """End the child and everything it has started; its return code. None: the kernel does not let it go."""
        if self._process.returncode is None:
            self.signal_end()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(KILL_SECONDS)
            self._stdin.close()
            self._stdout.close()
        return self._process.returncode
