"""Text and JSON that Postgres accepts: truncated, cleaned, and without secrets. Pure."""

import json
import re
from collections.abc import Callable
from threading import Lock
from typing import Any
from urllib.parse import quote, quote_plus

HIDDEN = "***"
MAX_WORD = 255  # characters of a name, an actor, a domain
_REFUSED = re.compile("[\x00\ud800-\udfff]")  # Postgres stores neither NUL nor half a surrogate pair

_SECRET = re.compile(r"(://[^:/@\s]*):[^@\s]*@")
_KEY = re.compile(r"(?i)([?&][\w.-]*(?:key|token|secret|passw|pwd|sig|auth|credential)[\w.-]*=)[^&#\s\"']+")
_TOKEN = re.compile(r"\b(es_[0-9a-f]{12}_|once_|eyJ)[\w.-]{16,}")  # an API token, a one-time token, a JWT
_BEARER = re.compile(r"(?i)\b(bearer )[\w.~+/=-]{16,}")  # of a header that somebody logs

Mapper = Callable[[str], str]


def storable(text: str, limit: int | None = None) -> str:
    """The text in a form that a column can store, at most `limit` characters long."""
    return cut(_REFUSED.sub("\ufffd", text), limit)


def cut(text: str, limit: int | None) -> str:
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def cut_head(text: str, limit: int) -> str:
    """Keeps the end: the last lines of a traceback say what happened."""
    return text if len(text) <= limit else "…" + text[1 - limit :]


def storable_json(value: Any, mapper: Mapper = str) -> Any:
    """A copy of plain JSON types with every text mapped and cleaned; raises ValueError with the reason."""
    try:
        plain = json.loads(json.dumps(value, allow_nan=False))
        return map_texts(plain, lambda text: storable(mapper(text)))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (TypeError, ValueError) as error:
        reason = str(error)
        raise ValueError(reason[:1].lower() + reason[1:]) from None


def json_size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def map_texts(value: Any, mapper: Mapper) -> Any:
    """Apply `mapper` to every text inside a JSON value, keys included."""
    match value:
        case str():
            return mapper(value)
        case dict():
            return {map_texts(key, mapper): map_texts(item, mapper) for key, item in value.items()}
        case list():
            return [map_texts(item, mapper) for item in value]
        case _:
            return value


def masked(text: str) -> str:
    """The text without passwords and keys in URLs, tokens, JWTs and bearer tokens.

    Plain substrings are checked first: most texts contain none, and this is much cheaper than a regular expression.
    """
    if "://" in text:
        text = _SECRET.sub(r"\1:***@", text)
    if "?" in text or "&" in text:
        text = _KEY.sub(r"\1***", text)
    if "es_" in text or "once_" in text or "eyJ" in text:
        text = _TOKEN.sub(r"\1***", text)
    if "earer " in text:
        text = _BEARER.sub(r"\1***", text)
    return text


class Mask:
    """Replaces secrets with ***, including their escaped forms in a URL, JSON or repr()."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._spellings: tuple[str, ...] = ()  # replaced as a whole, so that reading needs no lock

    def add(self, secret: str) -> None:
        with self._lock:
            self._spellings = tuple(sorted({*self._spellings, *_spellings(secret)}, key=len, reverse=True))

    def __call__(self, text: str) -> str:
        for spelling in self._spellings:
            text = text.replace(spelling, HIDDEN)
        return text

    @property
    def longest(self) -> int:
        """Length of the longest secret: before truncating a text, read this much further, or half a secret remains."""
        return max(map(len, self._spellings), default=0)


def _spellings(secret: str) -> set[str]:
    bare = secret.strip()
    spellings = set()
    for text in (secret, bare):
        escaped = text.encode(errors="replace")
        spellings |= {text, quote(escaped), quote(escaped, safe=""), quote_plus(escaped)}
        spellings |= {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
    return {spelling for spelling in spellings if spelling.strip()}
