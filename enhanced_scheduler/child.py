"""The program of a child process: runs one handler, or answers what job types there are. Reports through its pipes.

It ends with its parent: the kernel kills it (PR_SET_PDEATHSIG); on platforms without that call, a thread does so when
the pipe closes. Processes started by the handler are ended in every other case, but not in this one.

Lines of JSON, to its stdin:     {"context", "modules", "log_level"}, later perhaps {"cancel": reason}; then its end
               from its stdout:  {"log": line}, {"logging": line}, {"progress": [done, total]}, at last {"result": …};
                                 a line is [at, level, text]
           or, to its stdin:     {"modules"}, then any number of {"check": [job type, job_config]}
               from its stdout:  {"job_types": […]} or {"refused": reason}; per check {"problems": [[field, reason]]}
"""

import ctypes
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from threading import Lock, Thread
from typing import Any

from enhanced_scheduler import jobs, results
from enhanced_scheduler.calling import call_handler
from enhanced_scheduler.containment import Raised, contained
from enhanced_scheduler.context import ExecutionContext, LogLine, ProgressMade
from enhanced_scheduler.jobs import JobDefinition
from enhanced_scheduler.results import JobResult

PR_SET_PDEATHSIG = 1

Load = Callable[[list[str]], None]
Find = Callable[[str], JobDefinition]
Orders = Iterator[dict[str, Any]]


def main(parent: int, load: Load = jobs.load_modules, find: Find = jobs.find_declared) -> None:
    _die_with(parent)
    orders, reports = _take_pipes()
    reporter = _Reporter(reports)
    for request in orders:
        loaded = contained(lambda modules=request["modules"]: load(modules))  # type: ignore[misc]
        if "context" not in request:
            _answer(orders, reporter, loaded.error if isinstance(loaded, Raised) else None)
            return
        logging.getLogger().setLevel(request["log_level"])  # what a thread of the replica would log
        context = ExecutionContext.from_wire(request["context"], reporter)
        Thread(target=_obey, args=(orders, context), daemon=True).start()
        result = results.failed(loaded.error, context.mask) if isinstance(loaded, Raised) else _run(context, find)
        reporter.send({"result": result.to_wire()})
        return


def _run(context: ExecutionContext, find: Find) -> JobResult:
    return call_handler(find(context.job_type), context)


def _answer(orders: Orders, reporter: "_Reporter", refused: BaseException | None) -> None:
    if refused is not None:
        reporter.send({"refused": str(refused) or type(refused).__name__})
        return
    reporter.send({"job_types": [_announced(definition) for definition in jobs.declared().values()]})
    for order in orders:
        job_type, job_config = order["check"]
        reporter.send({"problems": jobs.find_declared(job_type).problems(job_config)})


def _announced(definition: JobDefinition) -> dict[str, Any]:
    return {
        "name": definition.name,
        "where": definition.where,
        "doc": definition.doc,
        "schema": definition.config_schema(),
        "domain_is_host": definition.domain_is_host,
        "has_labels": definition.labels is not None,
        "has_offers": definition.offers is not tuple,
    }


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _take_pipes() -> tuple[Orders, int]:
    """Move both pipes away from 0 and 1, where the handler's print() and its own children would disturb them."""
    orders, reports = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return _orders(orders), reports


def _orders(pipe: int) -> Orders:
    """Without Python's buffers: a thread that waits inside one can disturb the end of the interpreter."""
    unread = b""
    while chunk := os.read(pipe, 65536):
        *lines, unread = (unread + chunk).split(b"\n")
        yield from map(json.loads, lines)


def _obey(orders: Orders, context: ExecutionContext) -> None:
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
