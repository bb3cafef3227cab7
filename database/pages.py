"""Keyset pagination, newest first: a cursor is the position of a page's last row; every page costs the same."""

import base64
import binascii
import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, literal, tuple_
from sqlalchemy.orm import InstrumentedAttribute

from services.errors import InvalidInput, Problem


def page_after(
    query: Select[Any],
    created_at: InstrumentedAttribute[datetime],
    key: InstrumentedAttribute[Any],
    limit: int,
    cursor: str | None,
) -> Select[Any]:
    """Selects one row more than the page, to detect the end of the list. Raises InvalidInput for an invalid cursor."""
    if cursor is not None:
        query = query.where(_is_after(created_at, key, cursor))
    return query.order_by(created_at.desc(), key.desc()).limit(limit + 1)


def cursor_of(created_at: datetime, key: object) -> str:
    return base64.urlsafe_b64encode(json.dumps([created_at.isoformat(), str(key)]).encode()).decode()


def _is_after(
    created_at: InstrumentedAttribute[datetime], key: InstrumentedAttribute[Any], cursor: str
) -> ColumnElement[bool]:
    try:
        said, text = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        at = datetime.fromisoformat(said)
        if at.tzinfo is None:
            raise ValueError("no instant")
        last = key.type.python_type(text)
        if isinstance(last, int) and not -(2**31) <= last < 2**31:
            raise ValueError("no key")
        place = tuple_(literal(at.astimezone(UTC), created_at.type), literal(last, key.type))
    except (ValueError, TypeError, binascii.Error, AttributeError, RecursionError, OverflowError):
        raise InvalidInput(Problem("cursor", "must come from an earlier page of this list")) from None
    return place > tuple_(created_at, key)
