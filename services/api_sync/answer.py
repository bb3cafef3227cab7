"""Streaming reader of the API's response, `{"data": [item, …]}`: memory does not grow with the number of items.

The JSON must be complete: a caller that wants to verify this before the first write reads it twice. Errors confined to
one item (NaN, a number of a million digits, a thousand brackets, duplicate keys) are reported for that item only.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from services.api_sync.items import Ambiguous, Unreadable
from services.checks.strict_json import repeated_keys
from services.errors import SchedulerError

WINDOW_BYTES = 1024 * 1024
MAX_DIGITS = 300
SPACE = re.compile(r"[ \t\r\n]*")
# An unterminated text matches too; otherwise each of its quotes would start the same search again.
BRACKET_OR_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
CUT_OFF = "Unterminated string"  # json's error for a text that may just be longer than the window
NO_JSON = {"": "it is empty", "<": "it is a page of HTML or XML, not JSON"}  # by the first character
NEAR_THE_END = 16  # characters that may be missing from a token other than a text


class UnusableAnswer(SchedulerError):
    """The body does not have the documented form; nothing of it was used."""


def read_items(body: bytes) -> Iterator[Any]:
    """The elements of the list under "data". Raises UnusableAnswer."""
    window = _Window(body)
    try:
        yield from _items(window)
    except json.JSONDecodeError as error:
        raise UnusableAnswer(f"it is not JSON: {error.msg.lower()} near byte {window.offset}") from None
    except UnicodeDecodeError:
        raise UnusableAnswer("it is not UTF-8 text") from None


def count_items(body: bytes) -> int:
    """The number of items; verifies that the body is complete."""
    return sum(1 for _ in read_items(body))


def _items(window: "_Window") -> Iterator[Any]:
    first = window.next_sign()
    if first in NO_JSON:
        raise UnusableAnswer(NO_JSON[first])
    if first != "{":
        raise UnusableAnswer(f'it is {_kind(window.value())}, not an object with a list under "data"')
    found = False
    for name in _names(window):
        if name == "data" and window.next_sign() == "[" and not found:
            found = True
            yield from _elements(window)
        elif name == "data":
            again = "appears twice" if found else f"is {_kind(window.value())}, not a list"
            raise UnusableAnswer(f'"data" {again}')
        else:
            window.value()
    if not found:
        raise UnusableAnswer('it has no "data"')
    if window.next_sign():
        raise json.JSONDecodeError("Extra data", "", 0)


def _names(window: "_Window") -> Iterator[str]:
    """The keys of an object; the caller reads each value before the next key."""
    window.take("{")
    if window.next_sign() == "}":
        window.take("}")
        return
    while True:
        if window.next_sign() != '"':
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", "", 0)
        name = window.value()
        window.take(":")
        yield name
        if window.take(",", "}") == "}":
            return


def _elements(window: "_Window") -> Iterator[Any]:
    window.take("[")
    if window.next_sign() == "]":
        window.take("]")
        return
    while True:
        value = window.value()
        yield Ambiguous(value, tuple(window.repeated)) if window.repeated else value
        if window.take(",", "]") == "]":
            return


class _Window:
    """The part of the text that is being parsed; it grows when a value does not fit."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = memoryview(body.removeprefix(codecs.BOM_UTF8)), 0
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._text, self._position = "", 0
        self._objects = _Objects()

    @property
    def repeated(self) -> list[str]:
        """The duplicate keys inside the last value."""
        return self._objects.repeated

    @property
    def offset(self) -> int:
        """The approximate position in the body."""
        return max(0, self._at - len(self._text) + self._position)

    def next_sign(self) -> str:
        """The next character that is not a space; empty at the end."""
        while True:
            found = SPACE.match(self._text, self._position)
            self._position = found.end() if found else self._position
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._grow():
                return ""

    def take(self, *signs: str) -> str:
        sign = self.next_sign()
        if sign not in signs:
            raise json.JSONDecodeError(f"Expecting {' or '.join(map(repr, signs))}", "", 0)
        self._position += 1
        return sign

    def value(self) -> Any:
        self.next_sign()
        while True:
            self._objects.repeated.clear()
            try:
                value, end = self._objects.decode(self._text, self._position)
            except json.JSONDecodeError as error:
                cut_off = error.msg.startswith(CUT_OFF) or error.pos >= len(self._text) - NEAR_THE_END
                if not (cut_off and self._grow()):
                    raise
            except RecursionError:
                self._objects.repeated.clear()
                self._skip()
                return Unreadable()
            else:
                if end > len(self._text) - NEAR_THE_END and self._grow():
                    continue  # a number may continue
                self._position = end
                return value

    def _skip(self) -> None:
        """Skips a value that is nested too deeply to be built, by its brackets alone."""
        while self._grow():
            pass
        depth = 0
        for found in BRACKET_OR_TEXT.finditer(self._text, self._position):
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
            if depth == 0:
                self._position = found.end()
                return
        raise json.JSONDecodeError("Expecting a closing bracket", "", 0)

    def _grow(self) -> bool:
        """Doubles the window, so that a value of any size is parsed only a few times."""
        if self._at >= len(self._body):
            return False
        rest = self._text[self._position :]
        piece = self._body[self._at : self._at + max(WINDOW_BYTES, len(rest))]
        self._at += len(piece)
        self._text = rest + self._decode(piece, self._at >= len(self._body))
        self._position = 0
        return True


def _whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


class _Objects:
    """Decodes values and records their duplicate keys."""

    def __init__(self) -> None:
        self.repeated: list[str] = []
        self._decoder = json.JSONDecoder(object_pairs_hook=self._build)
        self._patient_decoder = json.JSONDecoder(object_pairs_hook=self._build, parse_int=_whole_number)

    def decode(self, text: str, position: int) -> tuple[Any, int]:
        """Python refuses numbers of more than 4300 digits; as a float they are refused by the item's validation."""
        try:
            return self._decoder.raw_decode(text, position)
        except json.JSONDecodeError:
            raise
        except ValueError:
            self.repeated.clear()
            return self._patient_decoder.raw_decode(text, position)

    def _build(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            self.repeated += repeated_keys(pairs)
        return found


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "an object"
