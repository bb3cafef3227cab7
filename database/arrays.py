"""Arrays as the text that Postgres reads: psycopg2 would make an object of each element, several times slower.

Texts are passed as a list; `text_array` is for an array inside of one.
"""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID


def uuid_array(values: Iterable[UUID | None]) -> str:
    return _array("NULL" if each is None else each.hex for each in values)


def instant_array(values: Iterable[datetime | None]) -> str:
    return _array("NULL" if each is None else each.isoformat() for each in values)


def number_array(values: Iterable[float | None]) -> str:
    return _array("NULL" if each is None else repr(each) for each in values)


def flag_array(values: Iterable[bool]) -> str:
    return _array("t" if each else "f" for each in values)


def text_array(values: Iterable[str]) -> str:
    quoted = (each.replace("\\", "\\\\").replace('"', '\\"') for each in values)
    return _array(f'"{each}"' for each in quoted)


def _array(texts: Iterable[str]) -> str:
    return "{" + ",".join(texts) + "}"
