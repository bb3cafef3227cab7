"""The job of a fault run: writes its call into the ledger, works for a while, writes how it ended.

Registered through JOB_MODULES=tests.proof.handlers. One line, one write: processes share the file, and any
may be killed.
"""

import os
import time
from functools import cache

from pydantic import BaseModel

from services.jobs import ExecutionContext, JobFailed, job


class CallConfig(BaseModel):
    ledger: str
    seconds: float = 0.0
    fails_every: int = 0  # n: the first attempt at every n-th fire fails


@job("proof_call", config_model=CallConfig)
def proof_call(context: ExecutionContext, config: CallConfig) -> None:
    """Takes its time, and listens to nobody."""
    _note("began", context, config)
    time.sleep(config.seconds)
    if context.attempt == 1 and config.fails_every and int(context.scheduled_for.timestamp()) % config.fails_every == 0:
        _note("ended", context, config, "failed")
        raise JobFailed("the first attempt at this fire fails as told")
    _note("ended", context, config, "ok")


def _note(what: str, context: ExecutionContext, config: CallConfig, outcome: str = "") -> None:
    facts = context.schedule_id, context.scheduled_for.timestamp(), context.attempt, context.fencing_token, os.getpid()
    line = "\t".join(map(str, (what, *facts, f"{time.time():.6f}", outcome))) + "\n"
    os.write(_opened(config.ledger), line.encode())


@cache
def _opened(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
