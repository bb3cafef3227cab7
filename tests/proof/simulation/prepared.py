"""The product's own statements, parsed and planned once per session instead of each time.

The text stays the product's: each placeholder becomes a parameter of the type that its value has in the text, and
EXECUTE is given the same values in the same words. A statement that cannot be prepared like this is sent as it is.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg2

PLACEHOLDER = re.compile(r"%\((\w+)\)s(::\w+(?:\[\])?)?")
INT4 = 2**31


@dataclass(frozen=True, slots=True)
class Prepared:
    types: str
    body: str
    values: str  # placeholders again, for EXECUTE

    def preparation(self, name: str) -> str:
        return f"PREPARE {name}{self.types} AS {self.body}"

    def execution(self, name: str) -> str:
        return f"EXECUTE {name}{self.values}"


def _own_type(value: object) -> str | None:
    """What Postgres takes the value for where its text stands alone; None: leave the statement as it is."""
    match value:
        case None | str():
            return "unknown"
        case bool():
            return "boolean"
        case int():
            return "int" if -INT4 < value < INT4 else "bigint"
        case float():
            return "numeric"
        case UUID():
            return "uuid"
        case datetime():
            return "timestamptz" if value.tzinfo else "timestamp"
    return None


class Statements:
    """All that are known; whether one can be prepared is tried out once, on a session of no concern."""

    def __init__(self, run: Callable[[str], object]) -> None:
        self._run = run
        self._known: dict[tuple[str, tuple[str | None, ...]], Prepared | None] = {}
        self._uncast: dict[str, tuple[str, ...]] = {}

    def prepared(self, body: str, values: Mapping[str, Any]) -> Prepared | None:
        if body not in self._uncast:
            self._uncast[body] = tuple(found[1] for found in PLACEHOLDER.finditer(body) if not found[2])
        types = tuple(_own_type(values.get(name)) for name in self._uncast[body])
        key = (body, types)
        if key not in self._known:
            self._known[key] = None if None in types else self._try(_translated(body, values))
        return self._known[key]

    def _try(self, statement: Prepared) -> Prepared | None:
        try:
            self._run(f"{statement.preparation('tried')}; DEALLOCATE tried")
        except psycopg2.Error:
            return None
        return statement


def _translated(body: str, values: Mapping[str, Any]) -> Prepared:
    types: list[str] = []
    given: list[str] = []

    def parameter(found: re.Match[str]) -> str:
        cast = found[2] or ""
        types.append(cast.removeprefix("::") or str(_own_type(values.get(found[1]))))
        given.append(found[0])
        return f"${len(types)}{cast}"

    text = PLACEHOLDER.sub(parameter, body)
    if not types:
        return Prepared("", text, "")
    return Prepared(f" ({', '.join(types)})", text, f" ({', '.join(given)})")
