"""One line per event: for people in a terminal, as JSON for collectors.

In both, secrets in URLs are masked and control characters are escaped: what strangers send makes no line of its own.
"""

import json
import logging
import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TextIO

from services.wording.visible import visible

# What holds for everything that is said on the way, such as the id of the request that is being answered.
context: ContextVar[Mapping[str, Any]] = ContextVar("log_context", default=MappingProxyType({}))

_encode = json.JSONEncoder(default=str).encode
_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SECRET = re.compile(r"(://[^:/@\s]*):[^@\s]*@")
_KEY = re.compile(r"(?i)([?&][\w.-]*(?:key|token|secret|passw|pwd|sig|auth|credential)[\w.-]*=)[^&#\s\"']+")
_TOKEN = re.compile(r"\b(es_[0-9a-f]{12}_|once_|eyJ)[\w.-]{16,}")  # an API token, a one-time token, a JWT


def configure_logging(level: str, log_format: str) -> None:
    _ask_only_for_what_is_written()
    handler = _Stderr(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("apscheduler").setLevel(logging.WARNING)  # it is only the timer; its own words confuse
    logging.getLogger("urllib3").setLevel(logging.INFO)  # below that it repeats URLs, and with them keys


def _ask_only_for_what_is_written() -> None:
    """A fire is two lines: neither walks the stack for the caller's place nor asks for threads and processes.

    `logging._srcfile = None` is how the library's own documentation switches the walk off.
    """
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    own = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return {**context.get(), **own}


def masked(text: str) -> str:
    """Without passwords and keys in URLs, and without our tokens and JWTs.

    The marks come first: most texts have none, and looking for one is much cheaper than looking for a pattern.
    """
    if "://" in text:
        text = _SECRET.sub(r"\1:***@", text)
    if "?" in text or "&" in text:
        text = _KEY.sub(r"\1***", text)
    if "es_" in text or "once_" in text or "eyJ" in text:
        text = _TOKEN.sub(r"\1***", text)
    return text


class _Stderr(logging.StreamHandler[TextIO]):
    def flush(self) -> None:
        """Python's stderr writes at each end of a line; a second flush per line costs more than it brings."""


@lru_cache(2)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _instant(created: float) -> str:
    """ISO 8601 in UTC, with microseconds; the lines of one second share its text."""
    second = int(created)
    return f"{_second(second)}.{int((created - second) * 1e6):06d}+00:00"


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        facts = " ".join(f"{name}={value}" for name, value in _facts(record).items())
        line = visible(f"{at} {record.levelname:<7} {record.getMessage()}" + (f"  [{facts}]" if facts else ""))
        if record.exc_info:
            told = self.formatException(record.exc_info).split("\n")
            line += "".join(f"\n    {visible(each)}" for each in told)  # indented: no line of it looks like one of ours
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
