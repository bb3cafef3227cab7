"""A replica beside your program: a child process that is started, watched, restarted and drained.

Its handlers run in your interpreter with your search path, each call in a process of its own (JOB_PROJECT). Your
program imports nothing of the application and shares neither threads nor connections with it.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from types import MappingProxyType
from typing import Self

from enhanced_scheduler import application

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0
STEADY_SECONDS = 60.0  # a replica that ran this long is restarted without a long pause
POLL_SECONDS = 0.05


class SchedulerFailed(RuntimeError):
    """The replica did not become ready; what it printed on stderr says why."""


class Scheduler:
    """One replica. `modules` declare your jobs; `settings` are its environment variables, over those of this process.

    Several programs, or several workers of one, may each start one: every fire still runs once.
    """

    program: Sequence[str] = ("services/enhanced_scheduler.py",)

    def __init__(
        self,
        modules: Iterable[str] = (),
        *,
        directory: str | Path | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
        stop_seconds: float = 45.0,
    ) -> None:
        self._modules = [modules] if isinstance(modules, str) else list(modules)
        self._directory = Path.cwd() if directory is None else Path(directory).resolve()
        self._settings, self._stop_seconds = dict(settings), stop_seconds
        self._has_started, self._stopping, self._ended = Event(), Event(), Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._thread: Thread | None = None
        self.restarts = 0

    def start(self, timeout_seconds: float = 120.0) -> None:
        """Returns when the replica is ready; raises SchedulerFailed if its first process ends before that."""
        if self._thread is not None:
            raise RuntimeError("this scheduler has already been started; make a new one")
        # The kernel ends the child with the thread that started it, so one thread starts all of them, and stays.
        self._thread = Thread(target=self._tend, name="enhanced-scheduler", daemon=True)
        self._thread.start()
        until = time.monotonic() + timeout_seconds
        while not self._has_started.is_set():
            if self.is_ready:
                self._has_started.set()
            if self._ended.is_set():
                code = None if self._process is None else self._process.returncode
                raise SchedulerFailed(f"the replica ended with exit code {code}; its output on stderr says why")
            if time.monotonic() >= until:
                self.stop()
                raise SchedulerFailed(f"the replica was not ready after {timeout_seconds:g} s; its output says why")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Let running executions end for SHUTDOWN_GRACE_SECONDS, hand back the rest, and end the replica."""
        self._stopping.set()
        self._signal(signal.SIGTERM)
        if self._thread is None or self._ended.wait(self._stop_seconds):
            return
        self._signal(signal.SIGKILL)
        self._ended.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """Of the replica's present process; None while there is none."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    @property
    def is_ready(self) -> bool:
        """Whether the replica claims fires at the moment."""
        if self.pid is None:
            return False
        from urllib.request import urlopen  # a third of this package's import, which each call of a handler pays

        try:
            with urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _tend(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        try:
            while True:
                begun = time.monotonic()
                code = self._run_one()
                if self._stopping.is_set() or not self._has_started.is_set():
                    return
                pause = FIRST_PAUSE_SECONDS if time.monotonic() - begun > STEADY_SECONDS else pause
                logger.error("the replica ended with exit code %s; the next one starts in %g s", code, pause)
                self.restarts += 1
                if self._stopping.wait(pause):
                    return
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        finally:
            self._ended.set()

    def _run_one(self) -> int:
        self._port = _free_port()
        command = application.command(*self.program, dies_with=os.getpid())
        self._process = process = subprocess.Popen(  # noqa: S603 - our own program
            command,
            cwd=self._directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal is for this program, which stops the replica
        )
        if self._stopping.is_set():  # `stop` may have looked before there was a process
            self._signal(signal.SIGTERM)
        return process.wait()

    def _environment(self) -> dict[str, str]:
        own = {"METRICS_HOST": "127.0.0.1", "METRICS_PORT": str(self._port)}
        if self._modules:
            own |= {"JOB_PROJECT": str(self._directory), "JOB_PROJECT_PYTHON": sys.executable}
            own |= {"JOB_MODULES": ",".join(self._modules)}
        return {**os.environ, **own, **self._settings}

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
