"""Keyset pagination: an order of rows, and cursors into it. Every page costs the same, because there is no OFFSET.

A cursor is the position of a page's last row: base64 of a JSON list with the values of the order's columns, preceded by
the order's name if the list has several orders.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, Select, literal, tuple_
from sqlalchemy.orm import InstrumentedAttribute
from sqlalchemy.sql.functions import coalesce

from services.errors import InvalidInput, Problem

MAX_PAGE = 1000
MALFORMED = (ValueError, TypeError, binascii.Error, AttributeError, RecursionError, OverflowError)

Column = InstrumentedAttribute[Any]
R = TypeVar("R")


@dataclass(frozen=True)  # no slots: with them a frozen class cannot be made through an alias such as `RowPage`
class PageOf(Generic[R]):
    """`next_cursor` leads to the next page and is None on the last."""

    items: list[R]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyset:
    """An order by columns that together identify a row."""

    columns: tuple[Column, ...]
    name: str | None = None  # for a list that has several orders
    descending: bool = True
    null: ColumnElement[Any] | None = None  # replaces NULL in the first column, so that such rows have a position
    same: tuple[tuple[Column, Any], ...] = ()  # equal in all rows; leads the order

    def page(self, query: Select[Any], limit: int, cursor: str | None = None) -> Select[Any]:
        """One row more than the page, so that the end of the list is known. Raises InvalidInput."""
        return self.apply(query, cursor).limit(checked_limit(limit) + 1)

    def cut(self, rows: Sequence[R], limit: int) -> PageOf[R]:
        """The page from the rows that `page` found."""
        return PageOf(list(rows[:limit]), self.cursor_after(rows[limit - 1]) if len(rows) > limit else None)

    def apply(self, query: Select[Any], cursor: str | None = None) -> Select[Any]:
        """Order the query, and start after the row that the cursor names. Raises InvalidInput."""
        first, *others = self.columns
        place = [first.expression if self.null is None else coalesce(first, self.null), *others]
        order = [*(column for column, _ in self.same), *place]
        if cursor is not None:
            here, there = tuple_(*order), tuple_(*self._place(cursor))
            query = query.where(there > here if self.descending else there < here)
        return query.order_by(*(part.desc() if self.descending else part for part in order))

    def cursor_after(self, row: Any) -> str:
        values = [getattr(row, column.key) for column in self.columns]
        name = [] if self.name is None else [self.name]
        return base64.urlsafe_b64encode(json.dumps([*name, *values], default=_as_text).encode()).decode()

    def _place(self, cursor: str) -> list[ColumnElement[Any]]:
        try:
            values = json.loads(base64.urlsafe_b64decode(cursor.encode()))
            if self.name is not None:
                name, *values = values
                if name != self.name:
                    raise InvalidInput(Problem("cursor", f"belongs to the sort order {name!r}, not {self.name!r}"))
            place = [self._literal(column, value) for column, value in zip(self.columns, values, strict=True)]
        except MALFORMED:
            raise InvalidInput(Problem("cursor", "must come from an earlier page of this list")) from None
        return [*(literal(value, column.type) for column, value in self.same), *place]

    def _literal(self, column: Column, value: Any) -> ColumnElement[Any]:
        if value is None and self.null is not None and column is self.columns[0]:
            return self.null
        return literal(_read(column, value), column.type)


def checked_limit(limit: int) -> int:
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(Problem("limit", f"must be between 1 and {MAX_PAGE}, got {limit}"))
    return limit


def _as_text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _read(column: Column, value: Any) -> Any:
    """A column's value from a cursor. The cursor may be forged, so the value is checked before Postgres compares with
    it.
    """
    kind = column.type.python_type
    if kind is datetime:
        return _instant(value)
    if kind is int:
        return _whole_number(value, 63 if isinstance(column.type, BigInteger) else 31)
    if kind is UUID:
        return UUID(value)
    if "\0" in value:
        raise ValueError("no text")
    return value.encode().decode()  # not half of a surrogate pair


def _instant(value: Any) -> datetime:
    instant = datetime.fromisoformat(value)
    if instant.tzinfo is None:
        raise ValueError("no instant")
    return instant.astimezone(UTC)  # Postgres supports fewer offsets


def _whole_number(value: Any, bits: int) -> int:
    if type(value) not in (int, str):  # older cursors have numbers as texts
        raise ValueError("no number")
    number = int(value)
    if not -(2**bits) <= number < 2**bits:
        raise ValueError("no number of this column")
    return number
