"""Handlers that tests run in a separate process. The child imports this module, too."""

import atexit
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from services.jobs import ExecutionContext, JobFailed, JobRegistry, default_registry, job


class Where(BaseModel):
    path: str


def _tell_pid(config: Where) -> None:
    Path(config.path).write_text(str(os.getpid()))


@job("isolated_add", isolation="process")
def add(context: ExecutionContext, config: dict[str, Any]) -> Mapping[str, Any]:
    print("printed by a handler")  # noqa: T201 - must not disturb the pipe
    context.hide("hunter2")
    context.log("adding, with hunter2")
    logging.getLogger("adder").info("a is %s, not hunter2", config["a"])
    context.progress(1, 2)
    return {"sum": config["a"] + config["b"], "pid": os.getpid(), "key": context.idempotency_key}


@job("isolated_farewell", config_model=Where, isolation="process")
def farewell(context: ExecutionContext, config: Where) -> None:
    atexit.register(Path(config.path).write_text, "written at the end")
    atexit.register(time.sleep, 0.2)  # comes first


@job("isolated_spin", config_model=Where, isolation="process")
def spin(context: ExecutionContext, config: Where) -> None:
    _tell_pid(config)
    while True:
        pass


@job("isolated_frozen", config_model=Where, isolation="process")
def frozen(context: ExecutionContext, config: Where) -> None:
    """Sleeps while holding the GIL: no other thread of the process runs."""
    _tell_pid(config)
    ctypes.PyDLL(None).sleep(600)


@job("isolated_deaf", config_model=Where, isolation="process")
def deaf(context: ExecutionContext, config: Where) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    subprocess.Popen([sys.executable, "-c", f"import os, time; open({config.path + '.grandchild'!r}, 'w')"
                      ".write(str(os.getpid())); time.sleep(600)"])  # fmt: skip
    _tell_pid(config)
    while True:
        time.sleep(60)


@job("isolated_polite", config_model=Where, isolation="process")
def polite(context: ExecutionContext, config: Where) -> None:
    _tell_pid(config)
    while True:
        context.check()
        time.sleep(0.01)


@job("isolated_segfault", isolation="process")
def segfault(context: ExecutionContext, config: dict[str, Any]) -> None:
    context.log("about to crash")
    ctypes.string_at(0)


@job("isolated_exit", isolation="process")
def leave(context: ExecutionContext, config: dict[str, Any]) -> None:
    os._exit(3)


@job("isolated_fork", isolation="process")
def fork(context: ExecutionContext, config: dict[str, Any]) -> Mapping[str, Any]:
    """The child process returns first."""
    copy = os.fork()
    if copy:
        os.waitpid(copy, 0)
    return {"copy": copy == 0}


@job("isolated_huge", isolation="process")
def huge(context: ExecutionContext, config: dict[str, Any]) -> Mapping[str, Any]:
    return {"blob": "x" * 5_000_000}


@job("isolated_fail", isolation="process")
def fail(context: ExecutionContext, config: dict[str, Any]) -> None:
    raise JobFailed("not today", retryable=False, details={"code": 7})


@job("isolated_by_choice")
def by_choice(context: ExecutionContext, config: dict[str, Any]) -> Mapping[str, Any]:
    return {"pid": os.getpid(), "config": config}


REGISTRY: JobRegistry = default_registry
