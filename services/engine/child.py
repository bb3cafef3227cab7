"""The program of a child process: runs one handler and reports through its pipes. See isolation.py for the messages.

It ends with its parent: the kernel kills it (PR_SET_PDEATHSIG); on platforms without that call, a thread does so when
the pipe closes. Processes started by the handler are ended in every other case, but not in this one.
"""

import ctypes
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from threading import Lock, Thread
from typing import Any

from services.engine.calling import call_handler
from services.jobs import results
from services.jobs.containment import Raised, contained
from services.jobs.context import ExecutionContext, LogLine, ProgressMade
from services.jobs.registry import default_registry
from services.jobs.results import JobResult

PR_SET_PDEATHSIG = 1


def main(parent: int) -> None:
    _die_with(parent)
    orders, reports = _take_pipes()
    request = next(orders)
    reporter = _Reporter(reports)
    logging.getLogger().setLevel(request["log_level"])  # what a thread of the replica would log
    context = ExecutionContext.from_wire(request["context"], reporter)
    Thread(target=_obey, args=(orders, context), daemon=True).start()
    reporter.send({"result": _run(context, request["modules"]).to_wire()})


def _run(context: ExecutionContext, modules: list[str]) -> JobResult:
    match contained(lambda: default_registry.load_modules(",".join(modules))):
        case Raised(error):
            return results.failed(error, context.mask)
    return call_handler(default_registry.get_or_refusal(context.job_type), context)


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _take_pipes() -> tuple[Iterator[dict[str, Any]], int]:
    """Move both pipes away from 0 and 1, where the handler's print() and its own children would disturb them."""
    orders, reports = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return _orders(orders), reports


def _orders(pipe: int) -> Iterator[dict[str, Any]]:
    """Without Python's buffers: a thread that waits inside one can disturb the end of the interpreter."""
    unread = b""
    while chunk := os.read(pipe, 65536):
        *lines, unread = (unread + chunk).split(b"\n")
        yield from map(json.loads, lines)


def _obey(orders: Iterator[dict[str, Any]], context: ExecutionContext) -> None:
    for order in orders:
        if reason := order["cancel"]:
            context.cancel(reason)
    os.killpg(0, signal.SIGKILL)  # the parent is gone


class _Reporter:
    """The child's end of the pipe; it listens to the context."""

    def __init__(self, pipe: int) -> None:
        self._pipe, self._lock = pipe, Lock()

    def hear(self, line: LogLine, *, kept: bool) -> None:
        self.send({"log" if kept else "logging": line.to_wire()})

    def see(self, progress: ProgressMade) -> None:
        self.send({"progress": progress})

    def send(self, message: dict[str, Any]) -> None:
        left = memoryview(json.dumps(message).encode() + b"\n")
        with self._lock:
            while left:
                left = left[os.write(self._pipe, left) :]
