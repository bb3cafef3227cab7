"""Arrays as the text that Postgres reads.

psycopg2 would make an object of each element, and Postgres an expression of each: several times slower, on both sides.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID


def uuid_array(values: Iterable[UUID | None]) -> str:
    return _array(["NULL" if each is None else f"{each.int:032x}" for each in values])


def instant_array(values: Iterable[datetime | None]) -> str:
    return _array(["NULL" if each is None else each.isoformat() for each in values])


def number_array(values: Iterable[float | None]) -> str:
    return _array(["NULL" if each is None else repr(each) for each in values])


def flag_array(values: Iterable[bool]) -> str:
    return _array(["t" if each else "f" for each in values])


def text_array(values: Iterable[str | None]) -> str:
    return _array(["NULL" if each is None else _quoted(each) for each in values])


def _quoted(text: str) -> str:
    if '"' in text or "\\" in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _array(texts: Sequence[str]) -> str:
    return "{" + ",".join(texts) + "}"
