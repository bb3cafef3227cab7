"""Replicas by fork: one process has imported the program, which is four fifths of a short replica's CPU time.

Each replica is a process of its own, with its own environment, clock and connections; only its memory of the modules
comes from the fork. That `python services/enhanced_scheduler.py` does the same is tested where programs are started as
people start them: `manage.py dev`, tests/integration/cli, tests/proof.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from config import PROJECT_ROOT

LONGEST_REQUEST = 100_000


class Forked:
    """What tests need of subprocess.Popen."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self.returncode: int | None = None
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, log.open("ab") as output:
            request = json.dumps(dict(environment)).encode()
            socket.send_fds(_starter(), [request], [theirs.fileno(), output.fileno()])
        self.pid = int(self._channel.recv(100))

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout_seconds: float) -> int:
        if self.returncode is None:
            self._channel.settimeout(timeout_seconds)
            try:
                self.returncode = int(self._channel.recv(100))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("replica", timeout_seconds) from None
            self._channel.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _starter() -> socket.socket:
    """One per process that runs tests; it ends with that process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.run(  # returns after a fork: the starter itself is not our child
            [sys.executable, "-m", "tests.support.forked", str(theirs.fileno())],
            cwd=PROJECT_ROOT,
            env={"PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            check=True,
        )
    return ours


def _start_on_request(requests: socket.socket) -> bool:
    """True in a replica, which then has its environment and log; False when nobody can ask any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps those who watch replicas
    while True:
        request, files, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, 2)
        if not request:
            return False
        if os.fork() == 0:
            requests.close()
            return _watch_or_be_the_replica(json.loads(request), *files)
        for file in files:
            os.close(file)


def _watch_or_be_the_replica(environment: dict[str, str], channel: int, log: int) -> bool:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if replica := os.fork():
        os.write(channel, str(replica).encode())
        _, status = os.waitpid(replica, 0)
        os.write(channel, str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    os.close(channel)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()  # noqa: TID251 - a new program's
    os.environ.update(environment)  # noqa: TID251
    return True


if __name__ == "__main__":
    import gc

    if os.fork():
        os._exit(0)
    gc.disable()
    from services.enhanced_scheduler import run_enhanced_scheduler

    with socket.socket(fileno=int(sys.argv[1])) as asked_by:
        if _start_on_request(asked_by):
            run_enhanced_scheduler()
