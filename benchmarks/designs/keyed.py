"""The job of the limits benchmark, and the ledger of its calls: two fixed-size records per call, appended to a file."""

import os
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import UUID

from pydantic import BaseModel

from benchmarks.designs import ledger
from services.jobs import ExecutionContext, job

RECORD = struct.Struct("=16s16sid?")  # execution, schedule, key, time, whether it is the end


class KeyedConfig(BaseModel):
    seconds: float
    key: int


@dataclass(frozen=True, slots=True)
class Call:
    schedule: UUID
    key: int
    began_at: float
    ended_at: float | None


def ledger_file(environment: Mapping[str, str]) -> Path:
    return Path(environment[ledger.VARIABLE] + "-keyed")


@cache
def _file() -> int:
    return os.open(ledger_file(os.environ), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@job("keyed", config_model=KeyedConfig)
def keyed(context: ExecutionContext, config: KeyedConfig) -> None:
    schedule = context.schedule_id or context.execution_id
    for is_end in (False, True):
        if is_end and config.seconds:
            time.sleep(config.seconds)
        os.write(_file(), RECORD.pack(context.execution_id.bytes, schedule.bytes, config.key, time.time(), is_end))


def calls_in(file: Path) -> list[Call]:
    """One per execution, in the order in which they began."""
    data = file.read_bytes() if file.exists() else b""
    found: dict[bytes, Call] = {}
    for execution, schedule, key, at, is_end in RECORD.iter_unpack(data[: len(data) // RECORD.size * RECORD.size]):
        if not is_end:
            found[execution] = Call(UUID(bytes=schedule), key, at, None)
        elif began := found.get(execution):
            found[execution] = Call(began.schedule, key, began.began_at, at)
    return list(found.values())
