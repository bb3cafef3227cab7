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
from types import MappingProxyType
from typing import Any

from services.wording.visible import visible

# What holds for everything that is said on the way, such as the id of the request that is being answered.
context: ContextVar[Mapping[str, Any]] = ContextVar("log_context", default=MappingProxyType({}))

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SECRET = re.compile(r"(://[^:/@\s]*):[^@\s]*@")
_KEY = re.compile(r"(?i)([?&][\w.-]*(?:key|token|secret|passw|pwd|sig|auth|credential)[\w.-]*=)[^&#\s\"']+")
_TOKEN = re.compile(r"\b(es_[0-9a-f]{12}_|once_|eyJ)[\w.-]{16,}")  # an API token, a one-time token, a JWT


def configure_logging(level: str, log_format: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("apscheduler").setLevel(logging.WARNING)  # it is only the timer; its own words confuse
    logging.getLogger("urllib3").setLevel(logging.INFO)  # below that it repeats URLs, and with them keys


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    own = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return {**context.get(), **own}


def masked(text: str) -> str:
    """Without passwords and keys in URLs, and without our tokens and JWTs."""
    return _TOKEN.sub(r"\1***", _KEY.sub(r"\1***", _SECRET.sub(r"\1:***@", text)))


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
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return masked(json.dumps(line, default=str))
