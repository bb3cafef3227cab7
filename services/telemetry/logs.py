"""Logging: one line per event, as text for a terminal or as JSON for collectors.

Both mask secrets in URLs and escape control characters, so that foreign text cannot forge a line.
"""

import json
import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TextIO

from enhanced_scheduler import log_capture
from enhanced_scheduler.texts import masked
from services.wording.visible import visible

# Fields for every line of the current context, such as the id of the request that is being answered.
context: ContextVar[Mapping[str, Any]] = ContextVar("log_context", default=MappingProxyType({}))

_encode = json.JSONEncoder(default=str).encode
_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(level: str, log_format: str) -> None:
    _ask_only_for_what_is_written()
    handler = _Stderr(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("apscheduler").setLevel(logging.WARNING)  # only the timer; its log lines would be misleading
    logging.getLogger("urllib3").setLevel(logging.INFO)  # its INFO lines repeat URLs, and with them keys


def _ask_only_for_what_is_written() -> None:
    """Cheap records: a fire logs two lines, which need neither the caller's source line nor thread and process names.

    `logging._srcfile = None` is the documented way to disable the stack walk.
    """
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    own = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return {**context.get(), **log_capture.facts(), **own}


class _Stderr(logging.StreamHandler[TextIO]):
    def flush(self) -> None:
        """Does nothing: Python's stderr is line-buffered, and a second flush per line is costly."""


@lru_cache(2)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _instant(created: float) -> str:
    """ISO 8601 in UTC, with microseconds; the lines of one second share the formatted second."""
    second = int(created)
    return f"{_second(second)}.{int((created - second) * 1e6):06d}+00:00"


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        facts = " ".join(f"{name}={value}" for name, value in _facts(record).items())
        line = visible(f"{at} {record.levelname:<7} {record.getMessage()}" + (f"  [{facts}]" if facts else ""))
        if record.exc_info:
            traceback = self.formatException(record.exc_info).split("\n")
            line += "".join(f"\n    {visible(each)}" for each in traceback)  # never looks like a line of ours
        return masked(line)


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": _instant(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return masked(_encode(line))
